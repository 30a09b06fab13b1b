import { resolve } from 'node:path';
import { namePattern } from '../base/name-pattern.ts';
import { parseProxy } from '../base/proxy.ts';
import { parseBytes, parseDuration } from './units.ts';

/**
 * The table of mount options. The type `Options`, the flags, `--help`, the names in the environment and in config.toml, and
 * the options section of README.md are generated from it. A new option is one entry here and its use.
 */

/** One option. `T` is the type of its parsed value. */
export interface OptionDefinition<T = unknown> {
  /** `--dir-ttl`; the environment has CFS_DIR_TTL and config.toml has dir-ttl. */
  readonly flag: string;
  /** The value's placeholder in `--help`; null for a switch, which takes no value. */
  readonly placeholder: string | null;
  /** The default in its textual form. */
  readonly default: string;
  readonly help: string;
  /** For developers: absent from `--help` and README.md. */
  readonly hidden: boolean;
  /** The only accepted values, if they are enumerated. */
  readonly choices?: readonly string[];
  /** Must be a string in config.toml: a parsed TOML number does not keep its notation (octal, hexadecimal). */
  readonly isQuoted?: true;
  /** May be repeated; may be an array in config.toml. */
  readonly isRepeatable?: true;
  /** Converts text to a value. @throws RangeError with the reason; the caller prefixes the flag, variable or key. */
  readonly parse: (text: string) => T;
}

export const OPTIONS = {
  dirTtlMs: duration('--dir-ttl', '30s', 'how long a folder listing stays fresh'),
  openWaitMs: duration('--open-wait', '500ms', 'how long open(2) waits for the check for a newer version', {
    maxMs: 60_000,
  }),
  settleMs: duration('--settle', '2s', 'delay between the last change of a file and its push', { maxMs: 3_600_000 }),
  saveWindowMs: duration(
    '--save-window',
    '60s',
    'how long after its creation, or after the old file left the name, a file counts as a save of the old one',
  ),
  openPushMs: duration('--open-push', '5m', 'minimum interval between pushes of a file that stays open for writing', {
    minMs: 10_000,
    maxMs: 86_400_000,
  }),
  drainMs: duration(
    '--drain',
    '5s',
    'how long an unmount pushes pending changes; the rest is pushed after the next mount',
  ),
  readTimeoutMs: duration('--read-timeout', '30s', 'how long a read waits without progress before it fails', {
    minMs: 100,
  }),
  attrTimeoutMs: duration(
    '--attr-timeout',
    '5m',
    'how long the kernel caches attributes; remote changes invalidate them earlier',
  ),
  entryTimeoutMs: duration(
    '--entry-timeout',
    '5m',
    'how long the kernel caches names; remote changes invalidate them earlier',
  ),
  inlineMaxBytes: size('--inline-max', '32KiB', 'contents up to this size are stored inside the database', {
    maxBytes: 128 * 1024,
  }),
  cacheBytes: sizeOrAuto(
    '--cache-size',
    'auto',
    'disk space for cached contents; auto: 10 % of the free space, at most 20GiB',
  ),
  cacheReserveBytes: sizeOrAuto(
    '--cache-reserve',
    'auto',
    'free disk space that the read cache preserves; auto: 1GiB or 5 % of the disk, whichever is less',
  ),
  transfers: count('--transfers', '8', 'maximum number of concurrent file transfers', { max: 64 }),
  connections: count('--connections', '8', 'maximum number of connections to the service', { max: 64 }),
  upLimitBytes: rate('--up-limit', 'upload limit per second over all files; off: no limit'),
  downLimitBytes: rate('--down-limit', 'download limit per second over all files; off: no limit'),
  deletion: choice(
    '--delete',
    '<where>',
    ['trash', 'forever'],
    'trash',
    'what a deletion does: trash (move to the trash of the service) or forever (delete permanently)',
  ),
  emptyTrash: choice(
    '--empty-trash',
    '<where>',
    ['here', 'service'],
    'here',
    "what emptying a file manager's trash deletes: here (nothing on the service) or service (permanently, in its trash too)",
  ),
  root: choice(
    '--root',
    '<what>',
    ['briefcase', 'account'],
    'briefcase',
    'the mounted folder: briefcase (the main folder of the account) or account (all folders, workspaces and shares)',
  ),
  localOnly: patterns(
    '--local-only',
    'further names that stay on this machine, such as *.part; may be repeated or separated by commas',
  ),
  showVersions: toggle('--show-versions', 'list .versions in the root folder; its path works without this option too'),
  readOnly: toggle('--read-only', 'reject every change (EROFS)'),
  allowOther: toggle(
    '--allow-other',
    'allow other users to access the mount (needs user_allow_other in /etc/fuse.conf unless you are root)',
  ),
  uid: idOrAuto('--uid', 'auto', 'owner of all files; auto: the user who mounts, and for new files their creator'),
  gid: idOrAuto('--gid', 'auto', 'group of all files; auto: as for --uid'),
  umask: octal('--umask', '022', 'permission bits to clear on files of the service, as in umask(2)'),
  noNotify: toggle('--no-notify', 'do not report changes made elsewhere to programs that watch folders (inotify)'),
  nonempty: toggle('--nonempty', 'allow a mount over a directory that is not empty'),
  proxy: proxyOrAuto(
    '--proxy',
    'auto',
    'proxy for the connection to the service; none: connect directly; auto: use HTTPS_PROXY, ALL_PROXY and NO_PROXY',
  ),
  insecure: toggle('--insecure', 'allow an unencrypted connection to a service on another machine'),
  logLevel: choice(
    '--log-level',
    '<level>',
    ['error', 'warn', 'info', 'debug', 'trace', 'silent'],
    'info',
    'log level: error, warn, info, debug, trace or silent',
  ),
  logFile: pathOrAuto(
    '--log-file',
    'auto',
    'log file; auto: mount.log in the state directory of the account, or the journal under systemd',
  ),
  binding: choice(
    '--binding',
    '<name>',
    ['linux', 'fuse-native', 'nfs'],
    process.platform === 'darwin' ? 'nfs' : 'linux',
    'how to mount: linux (FUSE, our own addon), fuse-native (FUSE; only in a clone) or nfs (experimental, for macOS); limits: docs/semantics.md',
  ),
  continuity: toggle(
    '--continuity',
    'experimental: when the mount process dies, it is restarted, and programs wait meanwhile',
  ),
  standby: choice(
    '--standby',
    '<on|off>',
    ['on', 'off'],
    'off',
    'with --continuity: on keeps a second process ready, which shortens the pause and takes up to 35 MiB',
  ),
  maskFeatures: list('--mask-features', '', 'kernel features to disable, separated by commas', { hidden: true }),
} as const satisfies Record<string, OptionDefinition>;

export type OptionKey = keyof typeof OPTIONS;

/**
 * All options, parsed. `null` stands for `auto`. Durations are in milliseconds (`…Ms`), sizes in bytes (`…Bytes`),
 * `umask` is the number itself (0o022).
 */
export type Options = {
  readonly [Key in OptionKey]: (typeof OPTIONS)[Key] extends OptionDefinition<infer T> ? T : never;
};

/** The table as rows, in its order. */
export function optionRows(): readonly (readonly [OptionKey, OptionDefinition])[] {
  return Object.entries(OPTIONS) as unknown as readonly (readonly [OptionKey, OptionDefinition])[];
}

/** `dir-ttl`: the name in config.toml. */
export function fileKeyOf(option: OptionDefinition): string {
  return option.flag.slice('--'.length);
}

/** `CFS_DIR_TTL`: the name in the environment. */
export function envNameOf(option: OptionDefinition): string {
  return `CFS_${fileKeyOf(option).replaceAll('-', '_').toUpperCase()}`;
}

function duration(flag: string, standard: string, help: string, limits: { minMs?: number; maxMs?: number } = {}) {
  const parse = (text: string): number => {
    const ms = parseDuration(text);
    if (ms < (limits.minMs ?? 0)) throw new RangeError(`${text} is less than ${limits.minMs}ms`);
    if (ms > (limits.maxMs ?? 366 * 86_400_000)) throw new RangeError(`${text} is too long`);
    return ms;
  };
  return { flag, placeholder: '<duration>', default: standard, help, hidden: false, parse };
}

function size(flag: string, standard: string, help: string, limits: { minBytes?: number; maxBytes?: number } = {}) {
  const parse = (text: string): number => {
    const bytes = parseBytes(text);
    if (bytes < (limits.minBytes ?? 0)) throw new RangeError(`${text} is less than ${limits.minBytes} bytes`);
    if (bytes > (limits.maxBytes ?? Number.MAX_SAFE_INTEGER))
      throw new RangeError(`${text} is more than ${limits.maxBytes} bytes`);
    return bytes;
  };
  return { flag, placeholder: '<size>', default: standard, help, hidden: false, parse };
}

function sizeOrAuto(flag: string, standard: string, help: string) {
  return { flag, placeholder: '<size>', default: standard, help, hidden: false, parse: orAuto(parseBytes) };
}

/** Bytes per second; null for `off`. */
function rate(flag: string, help: string) {
  const parse = (text: string): number | null => {
    if (text.trim() === 'off') return null;
    const bytes = parseBytes(text);
    // Below this rate a single packet would exceed its time.
    if (bytes < 1024) throw new RangeError(`${text} is less than 1KiB`);
    return bytes;
  };
  return { flag, placeholder: '<size>', default: 'off', help, hidden: false, parse };
}

function count(flag: string, standard: string, help: string, limits: { max: number }) {
  const parse = (text: string): number => {
    const number = /^\d{1,9}$/.test(text.trim()) ? Number(text) : Number.NaN;
    if (!(number >= 1 && number <= limits.max))
      throw new RangeError(`"${text}" is not a number from 1 to ${limits.max}`);
    return number;
  };
  return { flag, placeholder: '<number>', default: standard, help, hidden: false, parse };
}

function choice<const T extends string>(
  flag: string,
  placeholder: string,
  choices: readonly T[],
  standard: T,
  help: string,
) {
  const parse = (text: string): T => {
    const chosen = choices.find((known) => known === text.trim());
    if (chosen === undefined) throw new RangeError(`"${text}" is not one of ${choices.join(', ')}`);
    return chosen;
  };
  return { flag, placeholder, default: standard as string, help, hidden: false, choices, parse };
}

function toggle(flag: string, help: string) {
  const parse = (text: string): boolean => {
    const value = text.trim().toLowerCase();
    if (['true', '1', 'yes', 'on'].includes(value)) return true;
    if (['false', '0', 'no', 'off', ''].includes(value)) return false;
    throw new RangeError(`"${text}" is neither true nor false`);
  };
  return { flag, placeholder: null, default: 'false', help, hidden: false, parse };
}

function idOrAuto(flag: string, standard: string, help: string) {
  const parse = orAuto((text: string): number => {
    const id = /^\d{1,10}$/.test(text.trim()) ? Number(text) : Number.NaN;
    if (!(id <= 0xfffffffe)) throw new RangeError(`"${text}" is not a numeric id`);
    return id;
  });
  return { flag, placeholder: '<id>', default: standard, help, hidden: false, parse };
}

/** `none`, or scheme, host and port; null for `auto`. Credentials are rejected: command lines and units are readable by others. */
function proxyOrAuto(flag: string, standard: string, help: string) {
  const parse = orAuto((text: string): string => {
    if (text.trim() === 'none') return 'none';
    const { address, credentials } = parseProxy(text);
    if (credentials === null) return address;
    throw new RangeError(
      'must not contain a user name or password; set them in HTTPS_PROXY for cfs login or cfs service install, which save them with the account',
    );
  });
  return { flag, placeholder: '<address>', default: standard, help, hidden: false, parse };
}

function octal(flag: string, standard: string, help: string) {
  const parse = (text: string): number => {
    if (!/^0?[0-7]{1,3}$/.test(text.trim())) throw new RangeError(`"${text}" is not an octal mask such as 022`);
    return Number.parseInt(text, 8);
  };
  // TOML parses umask = 0o077 to 63, which would be read as 0o063.
  return { flag, placeholder: '<octal>', default: standard, help, hidden: false, isQuoted: true as const, parse };
}

function pathOrAuto(flag: string, standard: string, help: string) {
  const parse = orAuto((text: string): string => {
    if (text.trim() === '' || text.includes('\0')) throw new RangeError('is not a path');
    // No shell expands `--log-file=~/x`, config.toml or fstab(5). A folder named `~` invites `rm -r ~`.
    if (/^~[^/]*(\/|$)/.test(text)) throw new RangeError(`"${text}": ~ is not expanded here; write the full path`);
    return resolve(text);
  });
  return { flag, placeholder: '<path>', default: standard, help, hidden: false, parse };
}

function list(flag: string, standard: string, help: string, { hidden }: { hidden: boolean }) {
  const parse = (text: string): readonly string[] =>
    text
      .split(',')
      .map((word) => word.trim())
      .filter((word) => word !== '');
  return { flag, placeholder: '<list>', default: standard, help, hidden, parse };
}

/** Patterns of names. */
function patterns(flag: string, help: string) {
  const { parse: words } = list(flag, '', help, { hidden: false });
  const parse = (text: string): readonly string[] => {
    const parsed = words(text);
    for (const pattern of parsed) namePattern(pattern);
    return parsed;
  };
  return { flag, placeholder: '<pattern>', default: '', help, hidden: false, isRepeatable: true as const, parse };
}

function orAuto<T>(parse: (text: string) => T): (text: string) => T | null {
  return (text) => (text.trim() === 'auto' ? null : parse(text));
}
