import { optionRows } from '../../config/options.ts';
import type { ArgumentRow, CommandRow, Completion } from '../command-row.ts';
import { CFS_MOUNT, commandRows, GROUPS } from '../command-table.ts';

/** The completions for a value or an argument. `none`: a value that cannot be completed. */
export type Offer =
  | { readonly kind: 'path' | 'directory' | 'account' | 'none' }
  | { readonly kind: 'words'; readonly words: readonly string[] };

export interface OfferedFlag {
  /** `--foreground` and `-f`. */
  readonly names: readonly string[];
  readonly help: string;
  /** null: a switch. */
  readonly value: Offer | null;
  readonly isRepeated: boolean;
}

/** One place of the command line: a program, a group of commands, or a command. */
export interface OfferedCommand {
  /** `cfs serve user add`. */
  readonly path: string;
  /** The possible next words. */
  readonly words: readonly { readonly word: string; readonly help: string }[];
  readonly flags: readonly OfferedFlag[];
  readonly args: readonly { readonly offer: Offer; readonly help: string; readonly isRepeated: boolean }[];
}

const HELP: OfferedFlag = { names: ['--help', '-h'], help: 'show this help', value: null, isRepeated: false };
const VERSION: OfferedFlag = { names: ['--version', '-V'], help: 'show the version', value: null, isRepeated: false };

/** Both programs, every group and every command, from the command table and the option table. */
export function offeredCommands(): readonly OfferedCommand[] {
  const rows = new Map<string, CommandRow>(commandRows().map((row) => [row.name, row]));
  const groups = Object.keys(GROUPS).filter((name) => !rows.has(name));
  const names = ['', ...groups, ...rows.keys()];
  const commands = names.map((name): OfferedCommand => {
    const row = rows.get(name);
    const flags = row === undefined ? [] : flagsOf(row);
    return {
      path: name === '' ? 'cfs' : `cfs ${name}`,
      words: childrenOf(name, rows),
      flags: name === '' ? [VERSION, HELP] : [...flags, HELP],
      args: (row?.args ?? []).map(argumentOf),
    };
  });
  const { args } = CFS_MOUNT;
  const mount = {
    path: 'cfs-mount',
    words: [],
    flags: [...flagsOf(CFS_MOUNT), VERSION, HELP],
    args: args.map(argumentOf),
  };
  return [...commands, mount];
}

function childrenOf(name: string, rows: ReadonlyMap<string, CommandRow>): OfferedCommand['words'] {
  const prefix = name === '' ? '' : `${name} `;
  const children = new Map<string, string>();
  for (const [path, { summary }] of rows) {
    if (!path.startsWith(prefix) || path === name) continue;
    const word = path.slice(prefix.length).split(' ')[0] ?? '';
    const whole = `${prefix}${word}`;
    children.set(word, rows.get(whole)?.summary ?? GROUPS[whole] ?? summary);
  }
  return [...children].map(([word, help]) => ({ word, help }));
}

function flagsOf(row: CommandRow): readonly OfferedFlag[] {
  const own = row.flags.map(({ flag, short, placeholder, help, completion, choices, isRepeated }) => ({
    names: short === undefined ? [flag] : [flag, short],
    help,
    value: placeholder === null ? null : offerOf(completion ?? null, choices),
    isRepeated: isRepeated === true,
  }));
  if (row.mountOptions !== true) return own;
  const options = optionRows()
    .filter(([, option]) => !option.hidden)
    .map(([, { flag, placeholder, help, choices }]) => ({
      names: [flag],
      help,
      value: placeholder === null ? null : offerOf(placeholder === '<path>' ? 'path' : null, choices ?? undefined),
      isRepeated: false,
    }));
  return [...own, ...options];
}

function argumentOf({ completion, choices, help, isRepeated }: ArgumentRow): OfferedCommand['args'][number] {
  return { offer: offerOf(completion, choices), help, isRepeated: isRepeated === true };
}

function offerOf(completion: Completion, choices: readonly string[] | undefined): Offer {
  if (choices !== undefined) return { kind: 'words', words: choices };
  return { kind: completion === null || completion === 'command' ? 'none' : completion };
}
