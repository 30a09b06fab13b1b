import { fileKeyOf, type OptionKey, optionRows } from '../config/options.ts';

/** The options of `-o` that concern the mount itself. All others are in the table of `config/options`. */
export interface DashOOptions {
  /** As mount(8) names them: noatime, noexec, … */
  readonly flags: readonly string[];
  /** The source that /proc/mounts shows; null: a default text with the account. */
  readonly fsname: string | null;
  /** Whether the mount is removed when the mounting process is killed. */
  readonly autoUnmount: boolean;
}

/** The parsed values of `-o`. */
export interface DashOGiven {
  /** Values for options of the table, as texts. */
  readonly options: Readonly<Partial<Record<OptionKey, string>>>;
  readonly mount: DashOOptions;
  /** An error message that names every unknown option; null if all are known. */
  readonly problem: string | null;
}

/** Our mounts have the type `fuse.cfs-mount` in /proc/mounts; it also identifies a dead one. */
export const MOUNT_SUBTYPE = 'cfs-mount';

export const NO_DASH_O_OPTIONS: DashOOptions = { flags: [], fsname: null, autoUnmount: false };

/** Options of mount(8) that set an option of the table, with the value. */
const SWITCHES: ReadonlyMap<string, readonly [OptionKey, string]> = new Map([
  ['ro', ['readOnly', 'true']],
  ['rw', ['readOnly', 'false']],
  ['allow_other', ['allowOther', 'true']],
  ['nonempty', ['nonempty', 'true']],
]);
/** Every option of the table, by its name in config.toml: a line of fstab(5) can set them only here. */
const OPTION_KEYS: ReadonlyMap<string, OptionKey> = new Map(
  optionRows().map(([key, option]) => [fileKeyOf(option), key] as const),
);
/** Listed in the error message as examples; the table has more. */
const SHOWN_VALUES = ['uid', 'gid', 'umask'];
const FLAGS: ReadonlySet<string> = new Set([
  ...['noexec', 'exec', 'noatime', 'atime', 'relatime', 'strictatime', 'nodiratime', 'diratime'],
  ...['nosuid', 'nodev', 'sync', 'async', 'dirsync'],
]);
/**
 * Accepted without effect: options that always apply, and options that mount.fuse3(8) adds when root mounts. `dev` and `suid` only allow
 * devices and setuid files, and the service has neither.
 */
const ALWAYS: ReadonlySet<string> = new Set([
  ...['default_permissions', 'defaults', 'dev', 'suid'],
  `subtype=${MOUNT_SUBTYPE}`,
]);

/**
 * Parses `-o ro,noatime,uid=1000 -o …`, with the syntax of mount(8) and other FUSE programs. In fsname a backslash quotes the next
 * character.
 */
export function readDashOOptions(texts: readonly string[]): DashOGiven {
  const options: Partial<Record<OptionKey, string>> = {};
  const flags: string[] = [];
  const refused: string[] = [];
  let fsname: string | null = null;
  let autoUnmount = false;
  for (const word of texts.flatMap(wordsOf)) {
    const [name = '', value] = split(word);
    const option = SWITCHES.get(word);
    const key = OPTION_KEYS.get(name);
    if (option !== undefined) options[option[0]] = option[1];
    else if (key !== undefined && (value !== undefined || isSwitch(key))) options[key] = value ?? 'true';
    else if (FLAGS.has(word)) flags.push(word);
    else if (word === 'auto_unmount') autoUnmount = true;
    else if (name === 'fsname' && value !== undefined && value !== '') fsname = value;
    else if (!ALWAYS.has(word)) refused.push(word);
  }
  return { options, mount: { flags, fsname, autoUnmount }, problem: refused.length > 0 ? unknown(refused) : null };
}

function unknown(refused: readonly string[]): string {
  const known = [...SWITCHES.keys(), ...SHOWN_VALUES.map((name) => `${name}=`), 'fsname=', 'auto_unmount'];
  const words = [...known, 'default_permissions', ...FLAGS].join(', ');
  return `-o: unknown: ${refused.join(', ')} (known: ${words}, and the options of cfs-mount --help without their dashes)`;
}

function isSwitch(wanted: OptionKey): boolean {
  return optionRows().some(([key, { placeholder }]) => key === wanted && placeholder === null);
}

/** Splits at commas that follow no backslash. */
function wordsOf(text: string): string[] {
  return (text.match(/(?:\\.|[^,\\])+/gs) ?? []).map((word) => word.trim().replace(/\\(.)/gs, '$1')).filter(Boolean);
}

function split(word: string): [string, string | undefined] {
  const at = word.indexOf('=');
  return at < 0 ? [word, undefined] : [word.slice(0, at), word.slice(at + 1)];
}
