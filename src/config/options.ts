import { resolve } from 'node:path';
import { namePattern } from '../base/name-pattern.ts';
import { parseProxy } from '../base/proxy.ts';
import { parseBytes, parseDuration } from './units.ts';

/**
 * THE table: every option of a mount, once. The type `Options`, the flags and `--help`, the names in the environment and in
 * config.toml, and the options section of README.md are all made from it. A new option is one entry here and its use.
 */

/** One option. `T` is the type of its value once parsed. */
export interface OptionDefinition<T = unknown> {
  /** `--dir-ttl`; the environment has CFS_DIR_TTL and config.toml has dir-ttl. */
  readonly flag: string;
  /** What stands behind the flag in `--help`; null for a switch, which takes no value. */
  readonly placeholder: string | null;
  /** The default as one would write it. */
  readonly default: string;
  readonly help: string;
  /** For developers: neither in `--help` nor in README.md. */
  readonly hidden: boolean;
  /** Where only these are taken. */
  readonly choices?: readonly string[];
  /** In config.toml no number: TOML has other ways to write one, of which nothing is left in its value. */
  readonly isQuoted?: true;
  /** May be given several times; in config.toml it may be an array. */
  readonly isRepeatable?: true;
  /** Text to value. @throws RangeError with what is wrong, to be put behind the place. */
  readonly parse: (text: string) => T;
}

export const OPTIONS = {
  dirTtlMs: duration('--dir-ttl', '30s', 'how long a folder listing is believed before the service is asked again'),
  openWaitMs: duration('--open-wait', '500ms', 'how long open(2) waits to learn whether a file has a newer version', {
    maxMs: 60_000,
  }),
  settleMs: duration('--settle', '2s', 'pause after the last change before a change is pushed', { maxMs: 3_600_000 }),
  saveWindowMs: duration(
    '--save-window',
    '60s',
    'how long a new file that replaces another one counts as a save of it',
  ),
  openPushMs: duration('--open-push', '5m', 'how often at most a file that stays open for writing is pushed', {
    minMs: 10_000,
    maxMs: 86_400_000,
  }),
  drainMs: duration(
    '--drain',
    '5s',
    'how long an unmount pushes what is pending; the rest is pushed at the next start',
  ),
  readTimeoutMs: duration('--read-timeout', '30s', 'how long a read waits for the service before it fails', {
    minMs: 100,
  }),
  attrTimeoutMs: duration(
    '--attr-timeout',
    '5m',
    'how long the kernel keeps attributes; it is told what others change',
  ),
  entryTimeoutMs: duration('--entry-timeout', '5m', 'how long the kernel keeps names; it is told what others change'),
  inlineMaxBytes: size('--inline-max', '32KiB', 'contents up to this size are stored together with their names', {
    maxBytes: 128 * 1024,
  }),
  cacheBytes: sizeOrAuto(
    '--cache-size',
    'auto',
    'disk space for contents kept locally; auto: 10 % of the free space, at most 20GiB',
  ),
  cacheReserveBytes: sizeOrAuto(
    '--cache-reserve',
    'auto',
    'disk space that read caching leaves free; auto: 1GiB or 5 %, whichever is less',
  ),
  transfers: count('--transfers', '8', 'how many files are pushed or fetched at the same time', { max: 64 }),
  connections: count('--connections', '8', 'how many connections to the service are open at most', { max: 64 }),
  upLimitBytes: rate('--up-limit', 'how much is sent in a second at most, over all files; off: as fast as the line is'),
  downLimitBytes: rate('--down-limit', 'how much is fetched in a second at most, over all files; off: no limit'),
  deletion: choice(
    '--delete',
    '<where>',
    ['trash', 'forever'],
    'trash',
    'where deleted files go: trash (that of the service), or forever',
  ),
  root: choice(
    '--root',
    '<what>',
    ['briefcase', 'account'],
    'briefcase',
    'what is mounted: briefcase (the magic briefcase), or account (all folders, workspaces and shares)',
  ),
  localOnly: patterns(
    '--local-only',
    'names that stay on this machine besides the usual ones, such as *.part; may be given several times, or separated by commas',
  ),
  showVersions: toggle('--show-versions', 'show .versions in the listing of the root; it is there without, too'),
  readOnly: toggle('--read-only', 'refuse every change (EROFS)'),
  allowOther: toggle(
    '--allow-other',
    'let other users see the mount (ordinary users need user_allow_other in /etc/fuse.conf)',
  ),
  uid: idOrAuto(
    '--uid',
    'auto',
    'owner of everything in the mount; auto: whoever mounts, and who creates a file owns it',
  ),
  gid: idOrAuto('--gid', 'auto', 'group of everything in the mount; auto: as for --uid'),
  umask: octal('--umask', '022', 'permission bits that files from the service do not get'),
  nonempty: toggle('--nonempty', 'mount over a directory that is not empty'),
  proxy: proxyOrAuto(
    '--proxy',
    'auto',
    'proxy between here and the service; none: reach it directly; auto: what HTTPS_PROXY, ALL_PROXY and NO_PROXY say',
  ),
  insecure: toggle('--insecure', 'accept a service without encryption on another machine'),
  logLevel: choice(
    '--log-level',
    '<level>',
    ['error', 'warn', 'info', 'debug', 'trace', 'silent'],
    'info',
    'how much the log says: error, warn, info, debug, trace or silent',
  ),
  logFile: pathOrAuto(
    '--log-file',
    'auto',
    'where the log is written; auto: mount.log in the state directory of the account, under systemd the journal',
  ),
  binding: choice(
    '--binding',
    '<name>',
    ['linux', 'fuse-native'],
    'linux',
    'how the kernel is spoken to: linux (our own addon), or fuse-native (in a clone only; slower, with limits: docs/semantics.md)',
  ),
  maskFeatures: list('--mask-features', '', 'kernel features to do without, separated by commas', { hidden: true }),
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
    // With less a single packet would be overdue.
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
    if (chosen === undefined) throw new RangeError(`"${text}" is none of ${choices.join(', ')}`);
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

/** `none`, or scheme, host and port; null for `auto`. The password has no place in a command line or a unit. */
function proxyOrAuto(flag: string, standard: string, help: string) {
  const parse = orAuto((text: string): string => {
    if (text.trim() === 'none') return 'none';
    const { address, credentials } = parseProxy(text);
    if (credentials === null) return address;
    throw new RangeError(
      'no user name or password here: cfs login and cfs service install keep those of HTTPS_PROXY with the account',
    );
  });
  return { flag, placeholder: '<address>', default: standard, help, hidden: false, parse };
}

function octal(flag: string, standard: string, help: string) {
  const parse = (text: string): number => {
    if (!/^0?[0-7]{1,3}$/.test(text.trim())) throw new RangeError(`"${text}" is not an octal mask such as 022`);
    return Number.parseInt(text, 8);
  };
  // umask = 0o077 comes as 63, and 63 would be taken for 0o063.
  return { flag, placeholder: '<octal>', default: standard, help, hidden: false, isQuoted: true as const, parse };
}

function pathOrAuto(flag: string, standard: string, help: string) {
  const parse = orAuto((text: string): string => {
    if (text.trim() === '' || text.includes('\0')) throw new RangeError('is not a path');
    // `--log-file=~/x`, config.toml and fstab(5) have no shell. A folder of that name would be made, and some day removed: rm -r ~.
    if (/^~[^/]*(\/|$)/.test(text)) throw new RangeError(`"${text}": ~ is for a shell, write the whole path`);
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
