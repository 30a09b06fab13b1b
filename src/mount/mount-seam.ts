import type { LogLevel } from '../base/log-level.ts';
import type { Extent, Inode, ResourceUrl } from '../base/vocabulary.ts';
import type { MountEvent } from '../control/event-model.ts';
import type { ControlMethods } from '../control/methods.ts';
import type { MountMetrics } from '../control/mount-metrics.ts';
import type {
  DiscardedChange,
  Evicted,
  HeldRemoval,
  LocalFiles,
  Located,
  ParkedChange,
  PendingChange,
  PinnedPath,
  SyncOutcome,
  UmountOutcome,
  UnsyncedFile,
} from '../control/status-model.ts';
import type { Keeper } from '../kernel/keeper.ts';
import type { Pause } from '../sync/push-pause.ts';
import type { SyncLeft } from '../sync/sync-request.ts';
import type { MountRequest } from './mount-request.ts';
import type { pathStates } from './path-states.ts';
import type { UnsyncedPart } from './pending-changes.ts';

/**
 * The messages between the two threads of a mount beside `ServiceSide`: typed here once, so that both
 * composition roots are checked against it.
 */

/** Given to the Worker at its start. */
export interface WorkerStart {
  readonly request: MountRequest;
  readonly accountName: string;
  /** The default owner of files from the service. */
  readonly owner: { readonly uid: number; readonly gid: number };
}

/** Identifies a mount for another thread that abandons it. The descriptor of the connection is -1 if another process has it. */
export interface MountedAt {
  readonly directory: string;
  readonly device: string;
  readonly descriptor: number;
}

export interface Mounted extends MountedAt {
  /** The kernel sends unanswered requests again to the next process (FUSE_NOTIFY_RESEND). */
  readonly doesResend: boolean;
}

/** The life of the mount: the Worker's interface for the main thread, under the name `mount`. */
export interface MountService {
  /** Resolves when the Worker has loaded its program. */
  loaded(): Promise<void>;
  /** For a standby: loads what `mount` needs. */
  load(): Promise<void>;
  /**
   * Opens the store.
   *
   * @param keeper with `--continuity`; otherwise null
   * @returns whether a root folder is known: then a start without network can continue
   */
  open(keeper: Keeper | null): Promise<{ readonly hasRoot: boolean }>;
  /** Makes the root of an empty store. */
  createRoot(root: ResourceUrl): Promise<void>;
  /** Mounts. Resolves when the kernel has been answered. */
  mount(): Promise<Mounted>;
  /** Starts the sync, the pins and the housekeeping: of a continued mount, when the programs that waited for it are answered. */
  begin(): Promise<void>;
  /**
   * Unmounts and closes the store; pushes for up to `timeoutMs` (null: until nothing is left, or until a second call sets a
   * limit). Idempotent.
   */
  stop(timeoutMs: number | null): Promise<StopOutcome>;
  /** The quota that the service reported, for statfs(2). */
  quota(limitBytes: number, usedBytes: number): Promise<void>;
  /** The service is reachable again: waiting work resumes immediately. */
  reachable(): Promise<void>;
  /** The service is unreachable, even if no request of the Worker has failed yet. */
  unreachable(): Promise<void>;
}

/** What people and programs ask of an open store, under the name `commands`. Paths are relative to the mount point. */
export interface MountCommands {
  /** `urls`: files or versions whose paths are returned too. */
  status(urls: readonly string[]): Promise<WorkerStatus>;
  /** `id`: the argument of `left` during the sync. */
  sync(path: string | null, id: number, signal: AbortSignal): Promise<SyncOutcome>;
  /** The remaining work of a `sync`, or of a `stop` (STOP_ID); null if it is not running. */
  left(id: number): Promise<SyncLeft | null>;
  /** `accept`: also applies removals that were held back. @returns the removals that are held back afterwards */
  refresh(path: string | null, accept: boolean): Promise<readonly HeldRemoval[]>;
  retry(path: string | null): Promise<number>;
  conflicts(path: string | null): Promise<ControlMethods['conflicts']['result']>;
  /** `untilMs`: wall clock; null: until `resume`. */
  pause(untilMs: number | null): Promise<void>;
  /** @returns whether pushing was paused */
  resume(): Promise<boolean>;
  paused(): Promise<Pause | null>;
  /** Drops pending and parked changes there. Without `isSure` it only reports them. @throws UsageError while it is written */
  discard(path: string | null, isSure: boolean): Promise<readonly DiscardedChange[]>;
  /** Pins a path, with `once` until `endOnce`. @returns the argument of `pinned` */
  pin(path: string, how: 'always' | 'once'): Promise<Inode>;
  endOnce(ino: Inode): Promise<void>;
  evict(path: string): Promise<Evicted>;
  /** @returns whether the path itself was pinned */
  unpin(path: string): Promise<boolean>;
  /** The progress of a pin; null if the path is not pinned. */
  pinned(ino: Inode): Promise<PinnedPath | null>;
  locate(path: string): Promise<Located>;
  /** null: not known, or deleted here. */
  paths(resources: readonly string[]): Promise<readonly (string | null)[]>;
  states(paths: readonly string[]): ReturnType<typeof pathStates>;
  folder(path: string, after: string | null): Promise<ControlMethods['folder']['result']>;
  /** Owner, permissions and `user.*` attributes of `from` for `path`. */
  copyAttributes(path: string, from: string): Promise<void>;
  unsynced(after: number): Promise<{ readonly files: readonly UnsyncedFile[]; readonly next: number | null }>;
  /** The local bytes of a file that `unsynced` returned. */
  unsyncedParts(ino: number, extent: Extent): Promise<readonly UnsyncedPart[]>;
  metrics(): Promise<WorkerMetrics>;
  logLevel(level: LogLevel): Promise<void>;
}

/** The id of a `stop` for `left`. */
export const STOP_ID = 0;

/** The main thread's interface for the Worker, under the name `main`. */
export interface MainService {
  event(event: MountEvent): Promise<void>;
  /** The store has changed since the last `status`. Sent once. */
  stirred(): Promise<void>;
  /** The mount ended without `stop`: it was unmounted from outside, or the connection broke. */
  ended(outcome: StopOutcome): Promise<void>;
  /** Unmounted from outside: the process ends after the pending pushes. */
  draining(): Promise<void>;
  /** The store is about to be released: from now on its next owner may open the control socket, and continues the event history. */
  puttingDown(outcome: StopOutcome): Promise<void>;
  /** Sent every five seconds by a responsive Worker. */
  alive(): Promise<void>;
}

export type StopOutcome = UmountOutcome;

/** The part of `MountMetrics` that is counted on the Worker's side. */
export interface WorkerMetrics extends Pick<MountMetrics, 'operations' | 'operationsWaiting' | 'reads' | 'cache'> {
  readonly queue: Omit<MountMetrics['queue'], 'transfersRunning' | 'transfersWaiting'>;
}

export interface WorkerStatus {
  /** The paths of the requested URLs; null for an unknown URL. */
  readonly paths: readonly (string | null)[];
  readonly pending: { readonly count: number; readonly bytes: number; readonly changes: readonly PendingChange[] };
  readonly parked: readonly ParkedChange[];
  readonly held: readonly HeldRemoval[];
  readonly localFolders: readonly string[];
  readonly local: LocalFiles;
  readonly pinned: readonly PinnedPath[];
  readonly paused: Pause | null;
  readonly cache: { readonly usedBytes: number; readonly limitBytes: number; readonly unsyncedBytes: number };
}
