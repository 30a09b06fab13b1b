/** What a shell offers in this place; null: nothing can be offered. */
export type Completion = 'path' | 'directory' | 'account' | 'command' | null;

export interface ArgumentRow {
  /** `file`: shown as `<file>`, or `[file]` where it may be left out. */
  readonly name: string;
  readonly isRequired: boolean;
  /** Takes all that follow, too. */
  readonly isRepeated?: boolean;
  readonly help: string;
  readonly completion: Completion;
  readonly choices?: readonly string[];
}

export interface FlagRow {
  /** `--timeout`. */
  readonly flag: string;
  /** `-f`. */
  readonly short?: string;
  /** `<duration>`; null for a switch. */
  readonly placeholder: string | null;
  /** As one would write it; shown and used where the flag is not given. */
  readonly default?: string;
  readonly isRepeated?: boolean;
  readonly help: string;
  readonly completion?: Completion;
  readonly choices?: readonly string[];
}

export interface CommandRow {
  /** The words behind the program: `status`, `trash list`. */
  readonly name: string;
  /** One sentence part without a full stop, in lower case. */
  readonly summary: string;
  /** Behind the name, where the rows of `args` do not say it. */
  readonly usage?: string;
  readonly args: readonly ArgumentRow[];
  readonly flags: readonly FlagRow[];
  /** True: all options of `config/options` as well. */
  readonly mountOptions?: true;
  /** Not for daily use: left out of the table in README.md. */
  readonly isAdministration?: true;
}

export const ACCOUNT: FlagRow = {
  flag: '--account',
  placeholder: '<name>',
  help: 'the account; required if several are signed in',
  completion: 'account',
};
export const JSON_SWITCH: FlagRow = { flag: '--json', placeholder: null, help: 'print JSON for scripts' };

export function duration(flag: string, help: string): FlagRow {
  return { flag, placeholder: '<duration>', help };
}

/** Of every command that waits for the service (`service-wait`). */
export const TIMEOUT: FlagRow = duration('--timeout', 'maximum time to wait for the service');

export function toggle(flag: string, help: string): FlagRow {
  return { flag, placeholder: null, help };
}

export function argument(name: string, help: string, completion: Completion = 'path'): ArgumentRow {
  return { name, isRequired: true, help, completion };
}

export function optional(name: string, help: string, completion: Completion = 'path'): ArgumentRow {
  return { name, isRequired: false, help, completion };
}
