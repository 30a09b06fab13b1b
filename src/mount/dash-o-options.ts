import { fileKeyOf, type OptionKey, optionRows } from '../config/options.ts';

/** What of `-o` concerns the mount itself; the rest are options of the table in `config/options`. */
export interface DashOOptions {
  /** As mount(8) names them: noatime, noexec, … */
  readonly flags: readonly string[];
  /** What /proc/mounts shows as the source; null: our own text, with the account. */
  readonly fsname: string | null;
  /** Whether the directory is freed when the mounting process was killed. */
  readonly autoUnmount: boolean;
}

/** What `-o` said. */
export interface DashOGiven {
  /** What it sets options of the table to, as texts. */
  readonly options: Readonly<Partial<Record<OptionKey, string>>>;
  readonly mount: DashOOptions;
  /** Names every word that is not known; null where all are. */
  readonly problem: string | null;
}

/** Mounts of ours have the type `fuse.cfs-mount` in /proc/mounts; a dead one is recognised by it. */
export const MOUNT_SUBTYPE = 'cfs-mount';

export const NO_DASH_O_OPTIONS: DashOOptions = { flags: [], fsname: null, autoUnmount: false };

/** Words that are flags of an option of the table, and what they set it to. */
const SWITCHES: ReadonlyMap<string, readonly [OptionKey, string]> = new Map([
  ['ro', ['readOnly', 'true']],
  ['rw', ['readOnly', 'false']],
  ['allow_other', ['allowOther', 'true']],
  ['nonempty', ['nonempty', 'true']],
]);
/** Every option of the table by its name in config.toml: a line of fstab(5) has no other place for it. */
const OPTION_KEYS: ReadonlyMap<string, OptionKey> = new Map(
  optionRows().map(([key, option]) => [fileKeyOf(option), key] as const),
);
/** What mount(8) names first in its own manual; the table has more. */
const SHOWN_VALUES = ['uid', 'gid', 'umask'];
const FLAGS: ReadonlySet<string> = new Set([
  ...['noexec', 'exec', 'noatime', 'atime', 'relatime', 'strictatime', 'nodiratime', 'diratime'],
  ...['nosuid', 'nodev', 'sync', 'async', 'dirsync'],
]);
/**
 * What holds for every mount of ours anyway, and what mount.fuse3(8) adds by itself when root mounts: `dev` and `suid` say
 * what is allowed there, and nothing of the service is ever a device or setuid.
 */
const ALWAYS: ReadonlySet<string> = new Set([
  ...['default_permissions', 'defaults', 'dev', 'suid'],
  `subtype=${MOUNT_SUBTYPE}`,
]);

/**
 * The words of `-o ro,noatime,uid=1000 -o …`, as mount(8) and other FUSE programs have them: which options of the table they set
 * (as texts, like flags), and what is left for the mount. In fsname a backslash takes the next character as it is.
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

/** Separated by commas that no backslash stands before. */
function wordsOf(text: string): string[] {
  return (text.match(/(?:\\.|[^,\\])+/gs) ?? []).map((word) => word.trim().replace(/\\(.)/gs, '$1')).filter(Boolean);
}

function split(word: string): [string, string | undefined] {
  const at = word.indexOf('=');
  return at < 0 ? [word, undefined] : [word.slice(0, at), word.slice(at + 1)];
}
