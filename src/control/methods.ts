import type { ErrorRecord } from '../base/errors.ts';
import type { LogLevel } from '../base/log-level.ts';
import type { WatchMessage } from './event-model.ts';
import type { MountMetrics } from './mount-metrics.ts';
import type {
  Conflict,
  DiscardedChange,
  Evicted,
  FolderEntry,
  HeldRemoval,
  Located,
  PathState,
  PinnedPath,
  RateLimits,
  Status,
  SyncOutcome,
  SyncProgress,
  UmountOutcome,
  UnsyncedFile,
} from './status-model.ts';

/**
 * The calls of a running mount over its control socket. The protocol is one JSON object per line,
 * any number of calls per connection, answers in any order.
 */
export interface ControlMethods {
  readonly status: { readonly params: Record<string, never>; readonly progress: never; readonly result: Status };
  /**
   * Pushes everything that is closed now, without waiting for intervals, and answers once each of
   * those changes is pushed or parked. It does not wait for later changes. `path` limits it to one file or folder.
   * Without `wait` it answers once the pushes have started (`pushed` is 0), and they continue without the caller.
   */
  readonly sync: {
    readonly params: { readonly path: string | null; readonly wait: boolean };
    readonly progress: SyncProgress;
    readonly result: SyncOutcome;
  };
  /**
   * Ends the mount in order, and answers when it has ended. Pushes pending changes for up to `timeoutMs`
   * (0: not at all; null: without limit); the rest is kept.
   */
  readonly umount: {
    readonly params: { readonly timeoutMs: number | null };
    readonly progress: SyncProgress;
    readonly result: UmountOutcome;
  };
  /** Asks the service for the listing of a folder (of all known folders if `path` is null), and answers when it is applied. */
  readonly refresh: {
    /** `accept`: apply removals that were held back because there were too many at once. */
    readonly params: { readonly path: string | null; readonly accept?: boolean };
    readonly progress: never;
    readonly result: { readonly held: readonly HeldRemoval[] };
  };
  /** Retries parked changes. */
  readonly retry: {
    readonly params: { readonly path: string | null };
    readonly progress: never;
    readonly result: { readonly retried: number };
  };
  /** The conflicted copies in `path`, also those that other machines made; at most LISTED_MAX of `count`. */
  readonly conflicts: {
    readonly params: { readonly path: string | null };
    readonly progress: never;
    readonly result: { readonly conflicts: readonly Conflict[]; readonly count: number };
  };
  /** Pushes nothing and fetches no pin until `resume`, or until `untilMs` (wall clock; null: no end); it lasts over a restart. */
  readonly pause: {
    readonly params: { readonly untilMs: number | null };
    readonly progress: never;
    readonly result: { readonly waiting: number };
  };
  readonly resume: {
    readonly params: Record<string, never>;
    readonly progress: never;
    readonly result: { readonly wasPaused: boolean; readonly waiting: number };
  };
  /** Drops pending and parked changes in `path` (null: everywhere). Without `isSure` it only reports them. */
  readonly discard: {
    readonly params: { readonly path: string | null; readonly isSure: boolean };
    readonly progress: never;
    readonly result: { readonly given: readonly DiscardedChange[] };
  };
  /**
   * Keeps a file, or the present and future contents of a folder, fully on this machine. Answers when everything is here, or
   * when the fetch is stuck (`trouble`). It then resumes automatically.
   */
  readonly pin: {
    /** `once`: fetches everything, and ends the pin then. */
    readonly params: { readonly path: string | null; readonly once?: boolean };
    readonly progress: PinnedPath;
    readonly result: PinnedPath;
  };
  readonly unpin: {
    readonly params: { readonly path: string | null };
    readonly progress: never;
    readonly result: { readonly wasPinned: boolean };
  };
  /** Deletes the local copies of a file, or of all in a folder, where the service has the bytes. */
  readonly evict: {
    readonly params: { readonly path: string | null };
    readonly progress: never;
    readonly result: Evicted;
  };
  /** The resource of the service for a path in the mount. @throws UsageError for an unknown path */
  readonly locate: {
    readonly params: { readonly path: string | null };
    readonly progress: never;
    readonly result: Located;
  };
  /** The paths in the mount of files and folders of the service; null: the mount does not know it, or it is deleted here. */
  readonly paths: {
    readonly params: { readonly resources: readonly string[] };
    readonly progress: never;
    readonly result: { readonly paths: readonly (string | null)[] };
  };
  /**
   * The mount point, and the states of at most PATHS_MAX paths in it, in their order; null: the mount does not know the path. It asks the
   * service for nothing.
   */
  readonly states: {
    readonly params: { readonly paths: readonly string[] };
    readonly progress: never;
    readonly result: { readonly directory: string; readonly states: readonly (PathState | null)[] };
  };
  /**
   * The known entries of a folder by name: one page, from the name `after` (exclusive) on; `next` is the `after` of the next page, null at
   * the end. It asks the service for nothing: list the folder in the mount first.
   */
  readonly folder: {
    readonly params: { readonly path: string; readonly after: string | null };
    readonly progress: never;
    readonly result: { readonly entries: readonly FolderEntry[]; readonly next: string | null };
  };
  /** Copies owner, permissions and `user.*` attributes of `from` to `path`. */
  readonly copyAttributes: {
    readonly params: { readonly path: string; readonly from: string };
    readonly progress: never;
    readonly result: null;
  };
  /** The data that exist on this machine only, pending and parked: one page, from `after` (an inode, exclusive) on. */
  readonly unsynced: {
    readonly params: { readonly after: number };
    readonly progress: never;
    /** `next` is the `after` of the next page; null at the end. */
    readonly result: { readonly files: readonly UnsyncedFile[]; readonly next: number | null };
  };
  /** The local bytes of one of them, in parts; `base64` is null for missing bytes. At most PART_BYTES_MAX per call. */
  readonly unsyncedParts: {
    readonly params: { readonly ino: number; readonly start: number; readonly end: number };
    readonly progress: never;
    readonly result: { readonly parts: readonly { readonly length: number; readonly base64: string | null }[] };
  };
  /**
   * The event stream: the events after `since` (null: all that are kept), then, with `follow`, what happens until the client
   * disconnects or the mount ends. `status` adds the messages `status` and `transfers`. `seq` is the number of the newest event.
   */
  readonly watch: {
    readonly params: { readonly since: number | null; readonly follow: boolean; readonly status: boolean };
    readonly progress: WatchMessage;
    readonly result: { readonly seq: number };
  };
  /** Changes the rate limits until the mount ends, and running transfers with them; absent: as it is. Bytes per second; null: no limit. */
  readonly limit: {
    readonly params: Partial<RateLimits>;
    readonly progress: never;
    readonly result: RateLimits;
  };
  /**
   * Lets a process of another version continue this mount. Answers when that process waits; then this one ends. `program` is its command.
   *
   * @throws UsageError if the two versions have different layouts, or an option differs that a mount cannot change
   */
  readonly upgrade: {
    readonly params: { readonly version: string; readonly program: readonly string[]; readonly request: object };
    readonly progress: never;
    readonly result: null;
  };
  readonly metrics: { readonly params: Record<string, never>; readonly progress: never; readonly result: MountMetrics };
  /** Sets the log level until the mount ends; null: only returns it. @returns the current level */
  readonly logLevel: {
    readonly params: { readonly level: LogLevel | null };
    readonly progress: never;
    readonly result: { readonly level: LogLevel };
  };
}

export type MethodName = keyof ControlMethods;

/** The compiler reports a missing name. */
const METHODS: Readonly<Record<MethodName, true>> = {
  status: true,
  sync: true,
  umount: true,
  refresh: true,
  retry: true,
  discard: true,
  pin: true,
  unpin: true,
  evict: true,
  locate: true,
  paths: true,
  states: true,
  folder: true,
  copyAttributes: true,
  unsynced: true,
  unsyncedParts: true,
  watch: true,
  conflicts: true,
  pause: true,
  resume: true,
  limit: true,
  upgrade: true,
  metrics: true,
  logLevel: true,
};
export const METHOD_NAMES = Object.keys(METHODS) as readonly MethodName[];

/** Addresses in one call of `paths`, and paths in one call of `states`. */
export const PATHS_MAX = 1_000;

export const PART_BYTES_MAX = 128 * 1024;

/** The context of a call. */
export interface CallContext<Progress> {
  /** Aborted when the client disconnects or the server closes. */
  readonly signal: AbortSignal;
  /** Sends a progress line to the client; never blocks. */
  readonly progress: (progress: Progress) => void;
}

/** One function per method: the composition root provides them. Their errors reach the caller as the same class. */
export type ControlHandlers = {
  readonly [Method in MethodName]: (
    params: ControlMethods[Method]['params'],
    context: CallContext<ControlMethods[Method]['progress']>,
  ) => ControlMethods[Method]['result'] | Promise<ControlMethods[Method]['result']>;
};

/** Client to server. */
export interface RequestLine {
  readonly id: number;
  readonly method: string;
  readonly params: unknown;
}

/** Server to client. Any number of progress lines, then one of the others. */
export type AnswerLine =
  | { readonly id: number; readonly progress: unknown }
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number | null; readonly error: ErrorRecord };
