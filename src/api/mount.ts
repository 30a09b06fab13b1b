import type { Options } from '../config/options.ts';
import { pathsOf } from '../config/paths.ts';
import { callControl } from '../control/client.ts';
import type { EventRecord } from '../control/event-model.ts';
import { type FollowOptions, followEvents } from '../control/follow-events.ts';
import type { Status, SyncOutcome, UmountOutcome } from '../control/status-model.ts';
import { launchMount } from '../mount/launch.ts';
import { prepareMount } from '../mount/mount-preparation.ts';
import { settledOptions } from '../mount/settled-options.ts';

export { UsageError } from '../base/errors.ts';
export type { Options } from '../config/options.ts';
export type * from '../control/event-model.ts';
export type { FollowOptions } from '../control/follow-events.ts';
export type * from '../control/status-model.ts';

export interface MountOptions {
  /** Where to mount: an existing, empty directory. */
  readonly directory: string;
  /** An account of `cfs login`, by its name or user name; by default the only one. */
  readonly account?: string;
  /** Mount options; by default those of config.toml and the environment, as for `cfs-mount`. */
  readonly options?: Partial<Options>;
  /** The environment: HOME and the XDG directories hold the account and the store. The process's own by default. */
  readonly env?: Readonly<Record<string, string | undefined>>;
}

/** A mount in a process of its own. It outlives this process unless it is unmounted. */
export interface Mount {
  readonly directory: string;
  /** The mounting process. */
  readonly pid: number;
  /** Resolves with the exit code when the mounting process has ended, for whatever reason. */
  readonly ended: Promise<number>;
  status(): Promise<Status>;
  /**
   * Pushes everything that is closed now, and resolves when each change is on the service or parked.
   * @param path one file or folder, relative to the mount
   */
  sync(path?: string): Promise<SyncOutcome>;
  /** What happens in the mount from now on, and with `since` before; ends with the mount. */
  events(options?: FollowOptions): AsyncIterable<EventRecord>;
  /**
   * Pushes pending changes for up to `timeoutMs` (by default the option `drainMs`; null: until all are pushed), and unmounts. The
   * other changes stay in the store, for the next mount.
   */
  unmount(how?: { readonly timeoutMs?: number | null }): Promise<UmountOutcome>;
}

/**
 * Mounts an account of `cfs login` at a directory, as `cfs-mount` does. Resolves when the mount answers.
 *
 * @throws UsageError naming what prevents it
 */
export async function mount(options: MountOptions): Promise<Mount> {
  const env = options.env ?? process.env;
  const paths = pathsOf(env);
  const { request } = await prepareMount(
    { paths, options: { ...settledOptions(env, paths), ...options.options } },
    options.account ?? null,
    { directory: options.directory, foreground: false },
  );
  const { socketPath, directory } = request;
  const launched = await launchMount(request, { env });
  launched.release();
  return {
    directory,
    pid: launched.pid,
    ended: launched.ended,
    status: () => callControl(socketPath, 'status', {}),
    sync: (path) => callControl(socketPath, 'sync', { path: path ?? null, wait: true }),
    events: (follow) => followEvents(socketPath, follow),
    unmount: ({ timeoutMs = request.options.drainMs } = {}) => callControl(socketPath, 'umount', { timeoutMs }),
  };
}
