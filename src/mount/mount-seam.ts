import type { LogLevel } from '../base/log-level.ts';
import type { Extent, Inode, ResourceUrl } from '../base/vocabulary.ts';
import type { MountMetrics } from '../control/mount-metrics.ts';
import type {
  DiscardedChange,
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
import type { SyncLeft } from '../sync/sync-request.ts';
import type { MountEvent } from './mount-event.ts';
import type { MountRequest } from './mount-request.ts';
import type { UnsyncedPart } from './pending-changes.ts';

/**
 * What the two threads of a mount say to each other beside `ServiceSide`: typed here once, so that both
 * composition roots are checked against it.
 */

/** Given to the Worker at its start. */
export interface WorkerStart {
  readonly request: MountRequest;
  readonly accountName: string;
  /** Who gets what the service brings, unless the options say otherwise. */
  readonly owner: { readonly uid: number; readonly gid: number };
}

/** A mount as another thread of the process can give it up: where, which, and the number of the connection's descriptor (-1: another process has it). */
export interface MountedAt {
  readonly directory: string;
  readonly device: string;
  readonly descriptor: number;
}

/** What the Worker offers to the main thread, under the name `mount`. */
export interface MountService {
  /** Opens the store. @returns whether a root folder is known, so that a start without network can go on. */
  open(): Promise<{ readonly hasRoot: boolean }>;
  /** Makes the root of an empty store. */
  createRoot(root: ResourceUrl): Promise<void>;
  /** Mounts, and starts the sync. Resolves when the kernel has been answered. */
  mount(): Promise<MountedAt>;
  /**
   * Unmounts and puts everything down safely; pushes for up to `timeoutMs` (null: until nothing is left, or until it is asked
   * again with a limit). Idempotent.
   */
  stop(timeoutMs: number | null): Promise<StopOutcome>;
  /** `urls`: of files or versions whose paths are wanted too. */
  status(urls: readonly string[]): Promise<WorkerStatus>;
  /** `id`: what `left` is asked with while it lasts. */
  sync(path: string | null, id: number, signal: AbortSignal): Promise<SyncOutcome>;
  /** How much is left of a `sync`, or of a `stop` (STOP_ID); null when it is not under way. */
  left(id: number): Promise<SyncLeft | null>;
  /** `accept`: removals that were held back because they were so many are believed. @returns what is held back afterwards */
  refresh(path: string | null, accept: boolean): Promise<readonly HeldRemoval[]>;
  retry(path: string | null): Promise<number>;
  /** Drops pending and parked changes there. Without `isSure` it only reports them. @throws UsageError while it is written */
  discard(path: string | null, isSure: boolean): Promise<readonly DiscardedChange[]>;
  /** Keeps it complete from now on. @returns what `pinned` is asked with */
  pin(path: string): Promise<Inode>;
  /** @returns whether it was pinned, itself */
  unpin(path: string): Promise<boolean>;
  /** How far a pin is; null when there is none (any more). */
  pinned(ino: Inode): Promise<PinnedPath | null>;
  locate(path: string): Promise<Located>;
  /** Owner, permissions and `user.*` attributes of `from` for `path`. */
  copyAttributes(path: string, from: string): Promise<void>;
  unsynced(after: number): Promise<{ readonly files: readonly UnsyncedFile[]; readonly next: number | null }>;
  /** What is here of the bytes of a file that `unsynced` named. */
  unsyncedParts(ino: number, extent: Extent): Promise<readonly UnsyncedPart[]>;
  metrics(): Promise<WorkerMetrics>;
  logLevel(level: LogLevel): Promise<void>;
  /** The quota that the service reported, for statfs(2). */
  quota(limitBytes: number, usedBytes: number): Promise<void>;
  /** The service is reachable again: waiting work resumes immediately. */
  reachable(): Promise<void>;
  /** The service is unreachable, even if no request of the Worker has failed yet. */
  unreachable(): Promise<void>;
}

/** Stands for a `stop` where a `sync` has its number. */
export const STOP_ID = 0;

/** What the main thread offers to the Worker, under the name `main`. */
export interface MainService {
  event(event: MountEvent): Promise<void>;
  /** The mount is gone without `stop` having been asked for: unmounted from outside, or the connection broke. */
  ended(outcome: StopOutcome): Promise<void>;
  /** Unmounted from outside: what is pending is pushed, and then the process ends. */
  draining(): Promise<void>;
  /** The store is about to be given up: from here on its next owner may be asked at the control socket, and not this one. */
  puttingDown(): Promise<void>;
  /** Said every second by a Worker that still turns. */
  alive(): Promise<void>;
}

export type StopOutcome = UmountOutcome;

/** The part of `MountMetrics` that is counted on the Worker's side. */
export interface WorkerMetrics extends Pick<MountMetrics, 'operations' | 'operationsWaiting' | 'reads' | 'cache'> {
  readonly queue: Omit<MountMetrics['queue'], 'transfersRunning' | 'transfersWaiting'>;
}

export interface WorkerStatus {
  /** Of the URLs that were asked about; null for one that belongs to nothing here. */
  readonly paths: readonly (string | null)[];
  readonly pending: { readonly count: number; readonly bytes: number; readonly changes: readonly PendingChange[] };
  readonly parked: readonly ParkedChange[];
  readonly held: readonly HeldRemoval[];
  readonly localFolders: readonly string[];
  readonly local: LocalFiles;
  readonly pinned: readonly PinnedPath[];
  readonly cache: { readonly usedBytes: number; readonly limitBytes: number; readonly unsyncedBytes: number };
}
