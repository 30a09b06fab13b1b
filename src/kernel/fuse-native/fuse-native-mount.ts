import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Clock } from '../../base/clock.ts';
import { FsError, UsageError } from '../../base/errors.ts';
import type { Logger } from '../../base/log.ts';
import { type Channel, Port } from '../../base/port.ts';
import type { FileSystemOps, Invalidator, MountedFileSystem, MountOptions } from '../binding.ts';
import { loadKernelAddon } from '../kernel-addon.ts';
import { MOUNT_REFUSAL } from '../mount-refusal.ts';
import { mountOn, placeOf } from '../mount-table.ts';
import * as MountPoint from '../mounting.ts';
import { OpBoundary } from '../op-boundary.ts';
import type { FuseNativeProcess, FuseNativeWatcher, PathFiles } from './fuse-native.ts';
import { PathOperations } from './path-operations.ts';

/** The library sends no notifications to its kernel: names and attributes are cached for a second, bytes until the next open. */
const NO_INVALIDATOR: Invalidator = { inode: () => undefined, entry: () => undefined, deleted: () => undefined };
const DEADLINE_MS = 30_000;
/** How long to wait for the end of the library after an unmount. It comes immediately, or only when another namespace releases the mount. */
const ELSEWHERE_MS_MAX = 3_000;
/** The time limit for a mount that was detached from outside: the kernel may still write back dirty pages. */
const DETACHED_MS_MAX = 10_000;

export interface FuseNativeDeps {
  readonly log: Logger;
  readonly clock: Clock;
  /** Deadline of an operation that may wait for the service: longer than the timeouts of its requests. */
  readonly deadlineMs?: number;
  /** When bytes of files last arrived, on the clock of `elapsedMs`: no read times out while some do. */
  readonly bytesCameMs?: () => number;
}

/**
 * Mounts `ops` with the second binding: the package fuse-native in a process of its own (see `fuse-native.ts`), whose calls are served in
 * the loop of the calling thread. Resolves after INIT.
 *
 * @throws UsageError with a message: package or library not installed, or as `mountLinux`
 */
export async function mountFuseNative(
  options: MountOptions,
  ops: FileSystemOps,
  deps: FuseNativeDeps,
): Promise<MountedFileSystem> {
  const addon = loadKernelAddon();
  const directory = MountPoint.canonicalDirectory(options.directory);
  if (await MountPoint.detachDeadMount(directory, options.fsname, { addon, clock: deps.clock })) {
    deps.log.info({ directory }, 'dead mount detached');
  }
  MountPoint.checkMountPoint(directory, options);
  // The path is relative to dist/mount/mount-worker.bundle.cjs, the bundle that holds this file (ADR 23).
  const child = fork(fileURLToPath(new URL('../kernel/fuse-native/fuse-native.js', import.meta.url)), [], {
    execArgv: [],
    env: { ...process.env, CFS_FUSE_NATIVE_PROCESS: '1' },
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    serialization: 'advanced', // bytes as bytes
  });
  const mount = new Mount({ ...deps, ops, directory, child });
  try {
    await mount.library.mount({
      directory,
      fsname: options.fsname,
      subtype: options.subtype,
      words: [
        ...(options.readOnly ? ['ro'] : []),
        ...(options.allowOther ? ['allow_other'] : []),
        ...(options.defaultPermissions ? ['default_permissions'] : []),
        ...(options.allowNonEmpty ? ['nonempty'] : []),
        ...MountPoint.flagsForFuse(options.flags),
      ],
    });
  } catch (error) {
    child.kill('SIGKILL');
    await mount.ended;
    throw error instanceof UsageError
      ? error
      : new UsageError(`could not mount on ${directory}: ${(error as Error).message}`, MOUNT_REFUSAL.noFuse);
  }
  mount.made();
  ops.init?.(NO_INVALIDATOR);
  return mount;
}

class Mount implements MountedFileSystem {
  readonly directory: string;
  device = '';
  readonly invalidator = NO_INVALIDATOR;
  readonly ended: Promise<'unmounted' | 'aborted'>;
  readonly library: FuseNativeProcess;
  readonly #ops: FileSystemOps;
  readonly #log: Logger;
  readonly #boundary: OpBoundary;
  readonly #files: PathOperations;
  readonly #port: Port;
  readonly #clock: Clock;
  #how: 'unmounted' | 'aborted' = 'aborted';

  constructor(deps: FuseNativeDeps & { ops: FileSystemOps; directory: string; child: ChildProcess }) {
    const { child, log } = deps;
    this.directory = deps.directory;
    this.#ops = deps.ops;
    this.#log = log;
    this.#clock = deps.clock;
    this.#boundary = new OpBoundary({
      log,
      clock: deps.clock,
      deadlineMs: deps.deadlineMs ?? DEADLINE_MS,
      bytesCameMs: deps.bytesCameMs,
    });
    this.#files = new PathOperations({
      ops: deps.ops,
      boundary: this.#boundary,
      caller: { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 },
    });
    const channel: Channel = {
      postMessage: (message) => child.connected && child.send(message as object, () => undefined),
      on: (event, listener) => child.on(event, listener),
    };
    this.#port = new Port(channel);
    this.library = this.#port.remote<FuseNativeProcess>('library');
    this.#port.offer('files', this.#files satisfies PathFiles);
    this.#port.offer('watcher', {
      ended: async () => {
        this.#how = 'unmounted';
      },
    } satisfies FuseNativeWatcher);
    child.stderr
      ?.setEncoding('utf8')
      .on('data', (said: string) => log.warn({ said: said.trim() }, 'fuse-native output'));
    const gone = new Promise<void>((resolve) => {
      child.once('exit', () => resolve());
      child.once('error', () => resolve()); // could not be started
    });
    this.ended = gone.then(() => this.#over());
  }

  made(): void {
    this.device = mountOn(this.directory)?.device ?? '';
  }

  /** The library does not report its queue: only the requests that its threads have handed over can be waited for. */
  async requestsDrained(): Promise<void> {
    await new Promise((resume) => setImmediate(resume));
  }

  /** The library takes no notifications: its caches expire after a second. */
  async notificationsFlushed(): Promise<void> {}

  async unmount(how: 'orderly' | 'lazily'): Promise<void> {
    const place = this.#how === 'unmounted' ? null : placeOf(this.device, this.directory);
    if (place !== null) await MountPoint.unmountInBackground(place, how);
    if (how === 'lazily') return;
    // As in the own binding: a file is open in a mount that was detached, or another mount namespace has it.
    let cancel = (): void => {};
    const late = new Promise<void>((_resolve, reject) => {
      cancel = this.#clock.after(place === null ? DETACHED_MS_MAX : ELSEWHERE_MS_MAX, () =>
        reject(new FsError('EBUSY', `${this.directory} was detached, but is still in use`)),
      );
    });
    try {
      await Promise.race([this.ended, late]);
    } finally {
      cancel();
    }
  }

  async #over(): Promise<'unmounted' | 'aborted'> {
    this.#port.close(new Error('the process of fuse-native has ended'));
    if (this.#how === 'aborted') {
      this.#log.warn({}, 'the process of fuse-native ended before its mount');
      // The device is unknown until the mount exists.
      const isOurs = this.device === '' && mountOn(this.directory)?.type.startsWith('fuse');
      const place = isOurs ? this.directory : placeOf(this.device, this.directory);
      if (place !== null) {
        await MountPoint.unmountInBackground(place, 'lazily').catch((err: unknown) =>
          this.#log.warn({ err, directory: this.directory }, 'dead mount not detached'),
        );
      }
    }
    await this.#files.closeAll();
    this.#boundary.close();
    try {
      this.#ops.destroy?.();
    } catch (error) {
      this.#log.error({ err: error }, 'closing the file system failed');
    }
    return this.#how;
  }
}
