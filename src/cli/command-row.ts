/** The completions of a shell for an argument or value; null for none. */
export type Completion = 'path' | 'directory' | 'account' | 'command' | null;

export interface ArgumentRow {
  /** `file`: shown as `<file>`, or as `[file]` if it is optional. */
  readonly name: string;
  readonly isRequired: boolean;
  /** Takes all following arguments as well. */
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
  /** The default, in the form of the command line; also shown in the help. */
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
  /** The usage after the name, if it differs from `args`. */
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

/** The flag of every command that waits for the service (`service-wait`). */
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
