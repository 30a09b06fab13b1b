import type { Clock } from '../base/clock.ts';
import { FsError, UsageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { FileSystemOps, Invalidator, MountedFileSystem, MountOptions } from '../kernel/binding.ts';
import { MOUNT_REFUSAL } from '../kernel/mount-refusal.ts';
import { mountOn, placeOf, readMountTable } from '../kernel/mount-table.ts';
import { canonicalDirectory, checkMountPoint, unmountInBackground } from '../kernel/mounting.ts';
import { type ContinuedMount, LISTENING_DESCRIPTOR, type Successor } from './continued-mount.ts';
import { MountGuard } from './mount-guard.ts';
import { NfsServer } from './nfs-server.ts';
import { type Command, mountCommand, runMount, sourceOf } from './system-mount.ts';

/** How often the mount table is read: no system call reports an unmount of NFS to its server. */
const WATCH_MS = 1_000;
/** Longer than the client keeps attributes (`actimeo=1`). */
const ATTRIBUTES_MS_MAX = 1_100;
const ENDED_MS_MAX = 10_000;
/** A request that ends its process does so immediately: a client repeats it as soon as it is connected again. */
const SERVED_MS = 1_000;

export interface NfsMountDeps {
  readonly log: Logger;
  readonly clock: Clock;
  /** Deadline of an operation that may wait for the service: longer than the timeouts of its requests. */
  readonly deadlineMs?: number;
  /** When bytes of files last arrived, on the clock of `elapsedMs`: no read times out while some do. */
  readonly bytesCameMs?: () => number;
  /** The file that records calls for a successor; null: there will be none. */
  readonly callsFile?: string | null;
  /** Continues the mount when this process has died; null: the mount is taken away then. */
  readonly successor?: Successor | null;
  /** The mount that this process continues. */
  readonly continued?: ContinuedMount | null;
  /** A continued mount has served its client for a while. */
  readonly served?: () => void;
  /** Runs the system's mount command. */
  readonly run?: (command: Command, directory: string) => Promise<void>;
}

/**
 * Mounts `ops` on `options.directory` over NFS version 3: serves it on a port of 127.0.0.1, and mounts that port with the system's own client.
 *
 * @throws UsageError with a message: the mount point, or what the mount command printed
 */
export async function mountNfs(
  options: MountOptions,
  ops: FileSystemOps,
  deps: NfsMountDeps,
): Promise<MountedFileSystem> {
  const { continued = null } = deps;
  if (continued !== null) return continueNfs(options, ops, { ...deps, continued });
  const directory = canonicalDirectory(options.directory);
  checkMountPoint(directory, options);
  const server = await NfsServer.start(ops, options, deps);
  try {
    const command = mountCommand(server.exported, { ...options, directory });
    await (deps.run ?? runMount)(command, directory);
    const entry = mountOn(directory);
    if (entry?.source !== sourceOf(server.exported))
      throw new UsageError(
        `could not mount on ${directory}: it does not appear in the mount table`,
        MOUNT_REFUSAL.noFuse,
      );
    const guard = new MountGuard(
      { ...server.state, directory, source: sourceOf(server.exported) },
      server.descriptor,
      deps.successor ?? null,
    );
    const mount = new Mount(directory, entry.device, { server, guard }, deps);
    server.admit();
    ops.init?.(mount.invalidator);
    return mount;
  } catch (error) {
    // Another program may have used the secret path first: its handle is worth nothing from here on.
    await server.close();
    throw error;
  }
}

/**
 * Serves a mount that exists. The directory is not accessed: only this process can answer its client.
 *
 * @throws UsageError when the mount is gone: it was unmounted meanwhile
 */
async function continueNfs(
  options: MountOptions,
  ops: FileSystemOps,
  deps: NfsMountDeps & { readonly continued: ContinuedMount },
): Promise<MountedFileSystem> {
  const { continued } = deps;
  const entry = readMountTable().find(({ source }) => source === sourceOf(continued));
  if (entry === undefined)
    throw new UsageError(`the mount on ${options.directory} ended before it could be continued`, MOUNT_REFUSAL.noFuse);
  let hasClient = false;
  const onConnected = (): void => {
    if (!hasClient) deps.clock.after(SERVED_MS, () => deps.served?.());
    hasClient = true;
  };
  const server = await NfsServer.start(ops, options, { ...deps, descriptor: LISTENING_DESCRIPTOR, onConnected });
  const mount = new Mount(entry.directory, entry.device, { server, guard: null }, deps);
  ops.init?.(mount.invalidator);
  deps.log.warn({ directory: entry.directory }, 'continues an NFS mount after the death of its process');
  return mount;
}

class Mount implements MountedFileSystem {
  readonly directory: string;
  readonly device: string;
  readonly invalidator: Invalidator;
  readonly ended: Promise<'unmounted' | 'aborted'>;
  readonly #server: NfsServer;
  /** Null in a successor: the guard is its parent process. */
  readonly #guard: MountGuard | null;
  readonly #clock: Clock;
  #isOver = false;
  #resolveEnded!: (how: 'unmounted') => void;
  #cancelWatch: () => void = () => {};

  constructor(
    directory: string,
    device: string,
    { server, guard }: { readonly server: NfsServer; readonly guard: MountGuard | null },
    { clock }: NfsMountDeps,
  ) {
    this.directory = directory;
    this.device = device;
    this.#server = server;
    this.#clock = clock;
    this.invalidator = server.invalidator;
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
    this.#guard = guard;
    this.#watch();
  }

  async unmount(how: 'orderly' | 'lazily'): Promise<void> {
    const place = this.#isOver ? null : placeOf(this.device, this.directory);
    if (place !== null) await unmountInBackground(place, how);
    await this.#look();
    if (how === 'lazily' || this.#isOver) return;
    // Detached before (umount -l), and in use.
    let cancel = (): void => {};
    const late = new Promise<void>((_resolve, reject) => {
      cancel = this.#clock.after(ENDED_MS_MAX, () =>
        reject(new FsError('EBUSY', `${this.directory} was detached, but is still in use`)),
      );
    });
    try {
      await Promise.race([this.ended, late]);
    } finally {
      cancel();
    }
  }

  /** A client sends WRITE and COMMIT before close(2) returns, but no CLOSE: what is committed counts as closed. */
  async requestsDrained(): Promise<void> {
    await this.#server.opens.settle();
  }

  /** No notification exists: the client's attributes expire. */
  async notificationsFlushed(): Promise<void> {
    await this.#clock.sleep(ATTRIBUTES_MS_MAX);
  }

  #watch(): void {
    this.#cancelWatch = this.#clock.after(WATCH_MS, () => {
      void this.#look().then(() => {
        if (!this.#isOver) this.#watch();
      });
    });
  }

  async #look(): Promise<void> {
    if (this.#isOver || readMountTable().some(({ device }) => device === this.device)) return;
    this.#isOver = true;
    this.#cancelWatch();
    this.#guard?.dismiss();
    await this.#server.close();
    this.#resolveEnded('unmounted');
  }
}
