import { type SpawnSyncReturns, spawn, spawnSync } from 'node:child_process';
import { readdirSync, realpathSync, statSync, writeFileSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { constants } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import type { Clock } from '../base/clock.ts';
import { FsError, UsageError } from '../base/errors.ts';
import { checked, errnoOf } from '../base/native.ts';
import type { MountOptions } from './binding.ts';
import { findFusermount, programPath, whyNoFusermount, withMtabCure } from './fusermount.ts';
import { type KernelAddon, PAYLOAD_BYTES_MAX } from './kernel-addon.ts';
import { MOUNT_REFUSAL } from './mount-refusal.ts';
import { mountOn, readMountTable } from './mount-table.ts';

/**
 * Mounting and unmounting: the state of the directory, mount(2) as root and `fusermount3` otherwise, and one message for each way to fail.
 *
 * Nothing here accesses the mounted file system (no stat of it): the thread that runs this would have to reply.
 */

/** umount2(2) */
const MNT_FORCE = 1;
const MNT_DETACH = 2;

/** mount(2): the defaults of every FUSE mount, as in fusermount3. */
const MS_RDONLY = 0x1;
const MS_NOSUID = 0x2;
const MS_NODEV = 0x4;
const MOUNT_FLAGS: ReadonlyMap<string, readonly [set: number, clear: number]> = new Map([
  ['ro', [MS_RDONLY, 0]],
  ['rw', [0, MS_RDONLY]],
  ['nosuid', [MS_NOSUID, 0]],
  ['suid', [0, MS_NOSUID]],
  ['nodev', [MS_NODEV, 0]],
  ['dev', [0, MS_NODEV]],
  ['noexec', [0x8, 0]],
  ['exec', [0, 0x8]],
  ['sync', [0x10, 0]],
  ['async', [0, 0x10]],
  ['dirsync', [0x80, 0]],
  ['noatime', [0x400, 0]],
  ['atime', [0, 0x400]],
  ['nodiratime', [0x800, 0]],
  ['diratime', [0, 0x800]],
  ['relatime', [0x200000, 0]],
  ['norelatime', [0, 0x200000]],
  ['strictatime', [0x1000000, 0]],
]);
/** Flags that an ordinary user may not pass (fusermount3's own table refuses dev and suid). */
const ROOT_ONLY_FLAGS: ReadonlySet<string> = new Set(['dev', 'suid']);
/**
 * Options of mount(8) that fusermount3 and libfuse refuse: for access times they know only noatime and atime. Leaving them out has no
 * effect: the kernel never updates the access time of a FUSE file itself (S_NOATIME, fuse_iget).
 */
const UNKNOWN_TO_FUSE: ReadonlySet<string> = new Set([
  'relatime',
  'norelatime',
  'strictatime',
  'nodiratime',
  'diratime',
]);

/**
 * No READ exceeds the longest reply. INIT limits it only in pages (max_pages), which are 4 KiB on x86, and 16 or 64 KiB on some arm64
 * machines: there a read(2) of 2 MiB that bypasses the page cache would come in one piece, and fail with EIO.
 */
const MAX_READ = `max_read=${PAYLOAD_BYTES_MAX}`;

/** How long a mounted directory may take to respond. */
const PROBE_MS = 2000;

/**
 * The directory as the mount table names it: no symlinks, no `..`. Under a FUSE mount only the parent is resolved: the mount may be dead,
 * or hang, or be the caller's own.
 */
export function canonicalDirectory(directory: string): string {
  const absolute = resolve(directory);
  if (absolute === '/') return absolute;
  try {
    const candidate = join(realpathSync(dirname(absolute)), basename(absolute));
    return mountOn(candidate)?.type.startsWith('fuse') ? candidate : realpathSync(candidate);
  } catch {
    return absolute; // checkMountPoint reports the problem
  }
}

/**
 * Frees `directory` from a mount of this program whose process is gone (it fails with ENOTCONN).
 *
 * @returns whether there was one
 * @throws FsError when it cannot be detached
 */
export async function detachDeadMount(
  directory: string,
  fsname: string,
  deps: { addon: KernelAddon; clock: Clock },
): Promise<boolean> {
  const canonical = canonicalDirectory(directory);
  let detached = false;
  for (;;) {
    const entry = mountOn(canonical);
    if (entry === null || !entry.type.startsWith('fuse') || entry.source !== fsname) return detached;
    if ((await probe(canonical, deps.clock)) !== 'dead') return detached;
    unmountDirectory(canonical, 'lazily', deps.addon);
    detached = true;
  }
}

/** @throws UsageError with a message if the directory is no valid mount point */
export function checkMountPoint(directory: string, options: { allowNonEmpty: boolean }): void {
  const mounted = mountOn(directory);
  if (mounted?.type.startsWith('fuse')) {
    throw new UsageError(
      `${directory} is already mounted (${mounted.source}, ${mounted.type})`,
      MOUNT_REFUSAL.alreadyMounted,
    );
  }
  let isDirectory: boolean;
  try {
    isDirectory = statSync(directory).isDirectory();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const sentence =
      code === 'ENOENT'
        ? 'does not exist'
        : code === 'EACCES'
          ? 'cannot be reached: permission denied'
          : `cannot be used: ${code}`;
    throw new UsageError(`the mount point ${directory} ${sentence}`, MOUNT_REFUSAL.mountPoint, { cause: error });
  }
  if (!isDirectory) throw new UsageError(`the mount point ${directory} is not a directory`, MOUNT_REFUSAL.mountPoint);
  if (!options.allowNonEmpty && readdirSync(directory).length > 0) {
    throw new UsageError(`the mount point ${directory} is not empty`, MOUNT_REFUSAL.mountPoint);
  }
}

/**
 * Mounts and returns the connection's descriptor. `directory` is canonical and was checked.
 *
 * @throws UsageError with a message
 */
export function openMount(options: MountOptions, deps: { addon: KernelAddon; uid: number }): number {
  return deps.uid === 0 ? mountAsRoot(options, deps.addon) : mountAsUser(options, deps.addon);
}

/** The mount(8) flags that fusermount3 and libfuse accept. */
export function flagsForFuse(flags: readonly string[]): readonly string[] {
  return flags.filter((name) => !UNKNOWN_TO_FUSE.has(name));
}

/** @throws FsError EBUSY when in use and not lazily */
export function unmountDirectory(directory: string, how: 'orderly' | 'lazily', addon: KernelAddon): void {
  if (process.geteuid?.() === 0 && process.platform !== 'darwin') {
    checked(`unmount ${directory}`, addon.unmount(directory, how === 'lazily' ? MNT_DETACH : 0));
    return;
  }
  const { command, args } = unmountCommand(directory, how);
  const result = spawnSync(command, args, {
    stdio: ['ignore', 'ignore', 'pipe'],
    env: { ...process.env, PATH: programPath() },
    encoding: 'utf8',
  });
  if (result.status === 0 || mountOn(directory) === null) return;
  const said = saidBy(result);
  throw new FsError(
    /busy/i.test(said) || how === 'orderly' ? 'EBUSY' : 'EIO',
    `could not unmount ${directory}: ${withMtabCure(said)}`,
  );
}

/** As `unmountDirectory`, in a child process: unmounting flushes, and the calling thread must reply meanwhile. */
export function unmountInBackground(directory: string, how: 'orderly' | 'lazily'): Promise<void> {
  const { command, args } = unmountCommand(directory, how);
  return new Promise((done, fail) => {
    const child = spawn(command, args, {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { PATH: programPath(), LC_ALL: 'C' },
    });
    let said = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
    child.on('error', (error) => fail(new FsError('EIO', `could not run ${command}`, { cause: error })));
    child.on('close', (code) => {
      if (code === 0 || mountOn(directory) === null) done();
      else
        fail(
          new FsError(
            /busy/i.test(said) ? 'EBUSY' : 'EIO',
            `could not unmount ${directory}: ${withMtabCure(said.trim())}`,
          ),
        );
    });
  });
}

/** The command that unmounts a directory on this system, for this user. macOS detaches a mount in use only by force (umount(8)). */
function unmountCommand(directory: string, how: 'orderly' | 'lazily'): { command: string; args: string[] } {
  const isLazy = how === 'lazily';
  if (process.platform === 'darwin') return { command: 'umount', args: [...(isLazy ? ['-f'] : []), directory] };
  if (process.geteuid?.() === 0)
    return { command: 'umount', args: ['-i', '--no-canonicalize', ...(isLazy ? ['-l'] : []), '--', directory] };
  return { command: 'fusermount3', args: ['-u', ...(isLazy ? ['-z'] : []), '--', directory] };
}

/**
 * Aborts the connection of a mount of any process: waiting callers get an error immediately. By the kernel's control file, which the
 * mounting user may write (fuse_conn_abort_write, fs/fuse/control.c). Where that file system is not mounted, as in most containers, by
 * MNT_FORCE, for root only, at the `place` where the mount is on top.
 */
export function abortConnection(device: string, place: string | null, addon: KernelAddon): void {
  const number = device.slice(device.indexOf(':') + 1);
  try {
    writeFileSync(`/sys/fs/fuse/connections/${number}/abort`, '1');
  } catch {
    if (place !== null && process.geteuid?.() === 0) addon.unmount(place, MNT_FORCE);
  }
}

/** The control file of this mount's read-ahead; null if the directory is not mounted. */
export function readAheadFile(directory: string): string | null {
  const entry = mountOn(directory, readMountTable());
  return entry === null ? null : `/sys/class/bdi/${entry.device}/read_ahead_kb`;
}

function mountAsRoot(options: MountOptions, addon: KernelAddon): number {
  const fd = addon.openDevice();
  if (fd < 0) throw deviceRefused(errnoOf(fd));
  let flags = MS_NOSUID | MS_NODEV | (options.readOnly ? MS_RDONLY : 0);
  for (const name of options.flags) {
    const effect = MOUNT_FLAGS.get(name);
    if (effect === undefined) {
      addon.closeDescriptor(fd);
      throw new UsageError(`unknown mount option: ${name}`);
    }
    flags = (flags | effect[0]) & ~effect[1];
  }
  const data = [
    `fd=${fd}`,
    'rootmode=40000',
    `user_id=${process.getuid?.() ?? 0}`,
    `group_id=${process.getgid?.() ?? 0}`,
    MAX_READ,
    ...(options.defaultPermissions ? ['default_permissions'] : []),
    ...(options.allowOther ? ['allow_other'] : []),
  ].join(',');
  const type = options.subtype === '' ? 'fuse' : `fuse.${options.subtype}`;
  const result = addon.mount(options.fsname, options.directory, type, flags, data);
  if (result === 0) return fd;
  addon.closeDescriptor(fd);
  throw new UsageError(`could not mount on ${options.directory}: ${errnoOf(result)}`, MOUNT_REFUSAL.noFuse);
}

/** fusermount3 opens the device with the user's rights, mounts, and sends the descriptor over a socket. */
function mountAsUser(options: MountOptions, addon: KernelAddon): number {
  const unknown = options.flags.find((name) => !MOUNT_FLAGS.has(name));
  if (unknown !== undefined) throw new UsageError(`unknown mount option: ${unknown}`);
  const words = [
    `fsname=${escaped(options.fsname)}`,
    `subtype=${escaped(options.subtype)}`,
    MAX_READ,
    ...(options.readOnly ? ['ro'] : []),
    ...(options.defaultPermissions ? ['default_permissions'] : []),
    ...(options.allowOther ? ['allow_other'] : []),
    ...flagsForFuse(options.flags).filter((name) => !ROOT_ONLY_FLAGS.has(name)),
  ];
  const ends = addon.socketPair();
  const [ours, theirs] = ends;
  if (ours === undefined || theirs === undefined)
    throw new UsageError('no socket for fusermount3: too many open files', MOUNT_REFUSAL.noFuse);
  try {
    const result = spawnSync('fusermount3', ['-o', words.join(','), '--', options.directory], {
      stdio: ['ignore', 'ignore', 'pipe', theirs],
      env: { PATH: programPath(), LC_ALL: 'C', _FUSE_COMMFD: '3' },
      encoding: 'utf8',
      timeout: 30_000,
    });
    if (['ENOENT', 'EACCES'].includes((result.error as NodeJS.ErrnoException | undefined)?.code ?? '')) {
      const why = whyNoFusermount(findFusermount());
      if (why !== null) throw new UsageError(why, MOUNT_REFUSAL.noFuse);
    }
    if (result.status !== 0) {
      throw new UsageError(`could not mount on ${options.directory}: ${saidBy(result)}`, MOUNT_REFUSAL.noFuse);
    }
    const fd = addon.receiveDescriptor(ours);
    if (fd < 0) throw deviceRefused(errnoOf(fd));
    return fd;
  } finally {
    addon.closeDescriptor(ours);
    addon.closeDescriptor(theirs);
  }
}

/** The error message of fusermount3. It has none if it could not be started: EACCES, EAGAIN, ENOMEM. */
function saidBy(result: SpawnSyncReturns<string>): string {
  const failure: NodeJS.ErrnoException | undefined = result.error;
  if (failure !== undefined) return `fusermount3 cannot be started: ${failure.code}`;
  const said = result.stderr.trim().replace(/^fusermount3?: /, '');
  return said === '' ? 'fusermount3 failed' : said;
}

function deviceRefused(errno: string): UsageError {
  if (errno === 'ENOENT' || errno === 'ENODEV' || errno === 'ENXIO') {
    return new UsageError(
      'there is no /dev/fuse: load the kernel module (modprobe fuse), or pass the device into the container',
      MOUNT_REFUSAL.noFuse,
    );
  }
  if (errno === 'EACCES' || errno === 'EPERM')
    return new UsageError('/dev/fuse cannot be opened: permission denied', MOUNT_REFUSAL.noFuse);
  return new UsageError(`/dev/fuse cannot be opened: ${errno}`, MOUNT_REFUSAL.noFuse);
}

/** fusermount3 splits at commas, and a backslash quotes the next character. */
function escaped(text: string): string {
  return text.replace(/[\\,]/g, '\\$&');
}

/** By statfs(2): the kernel answers stat(2) from its cache for minutes, even after the process of the mount was killed. */
async function probe(directory: string, clock: Clock): Promise<'alive' | 'dead' | 'silent'> {
  const { ENOTCONN, ECONNABORTED } = constants.errno;
  const asked = statfs(directory).then(
    () => 'alive' as const,
    // Aborted: the mount died during the probe.
    ({ errno = 0 }: NodeJS.ErrnoException) =>
      [ENOTCONN, ECONNABORTED].includes(-errno) ? ('dead' as const) : ('alive' as const),
  );
  return Promise.race([asked, clock.sleep(PROBE_MS).then(() => 'silent' as const)]);
}
