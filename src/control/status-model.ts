import type { NodeKind } from '../base/vocabulary.ts';

/**
 * The status of a running mount, as plain data; `cfs status --json` prints a `Status` unchanged. Times are milliseconds
 * since the epoch (`…Ms`), sizes are bytes. Paths are relative to the mount's root, without a leading slash.
 */
export interface Status {
  /** Raised when a field changes its meaning or is removed; new fields do not raise it. */
  readonly schema: 1;
  readonly directory: string;
  readonly account: { readonly origin: string; readonly username: string };
  readonly pid: number;
  /** The version of the program that runs; a mount of a version before this field existed leaves it out. */
  readonly version?: string;
  /** Layout of the store. Another layout is migrated only after the mount has ended; left out as above, and then 3. */
  readonly storeLayout?: number;
  /** With `--continuity`. */
  readonly continuity?: {
    /** How often the mount process was restarted after its death. */
    readonly deaths: number;
    /** How often another version has continued the mount. */
    readonly upgrades: number;
    /** How long programs waited the last time; null: never. */
    readonly lastPauseMs: number | null;
    /** With `--standby=on`: a second process is ready. */
    readonly hasStandby: boolean;
    /** The layout of what one process leaves to the next. Only a version with the same one can continue the mount. */
    readonly layout: number;
    /**
     * How a successor gets the calls that were not answered: the kernel sends them again (`resent`, Linux 6.9), or they stay in the keeper's
     * memory until then (`kept`). Absent from earlier versions.
     */
    readonly requests?: 'resent' | 'kept';
  };
  readonly startedMs: number;
  /** `draining`: an unmount has begun. */
  readonly phase: 'running' | 'draining';
  readonly connection: ConnectionStatus;
  readonly pending: {
    /** Changes that the service does not have yet; with 0, nothing is lost with this machine. */
    readonly count: number;
    readonly bytes: number;
    /** The first of them, at most LISTED_MAX. */
    readonly changes: readonly PendingChange[];
  };
  /** A person's pause (`cfs pause`): nothing is pushed and no pin fetched. `untilMs`: null until `cfs resume`. Absent: an older mount. */
  readonly paused?: { readonly sinceMs: number; readonly untilMs: number | null } | null;
  readonly parked: readonly ParkedChange[];
  /** Removals that are applied only after a person confirms them (`cfs refresh --accept`). */
  readonly held: readonly HeldRemoval[];
  /** Folders that were removed on the service, and are kept because files in them exist on this machine only. */
  readonly localFolders: readonly string[];
  /** Local-only files: they exist on this machine only, because of their names. */
  readonly local?: LocalFiles;
  readonly transfers: readonly Transfer[];
  /** The rate limits in effect (`--up-limit`, `--down-limit`, `cfs limit`). Absent: an older mount. */
  readonly limits?: RateLimits;
  /** Files and folders that a user pinned (`cfs pin`). */
  readonly pinned: readonly PinnedPath[];
  readonly cache: {
    readonly usedBytes: number;
    readonly limitBytes: number;
    /**
     * Bytes that are not evicted: changes that are not pushed, and pushed files that were made here, until the service names their version.
     */
    readonly unsyncedBytes: number;
  };
  /** The last reported storage of the account; null before the first report. */
  readonly quota: { readonly limitBytes: number; readonly usedBytes: number; readonly atMs: number } | null;
}

/** How many pending or parked changes a status lists at most; the counts are always complete. */
export const LISTED_MAX = 1000;

export interface LocalFiles {
  readonly count: number;
  readonly bytes: number;
  /** The first of them, at most LISTED_MAX. */
  readonly paths: readonly string[];
}

export interface ConnectionStatus {
  /**
   * `connecting`: no request of this mount has ended yet. `sign-in-needed`: the service is reachable, but refuses the refresh token or the keys.
   */
  readonly state: 'connecting' | 'online' | 'offline' | 'sign-in-needed';
  readonly sinceMs: number;
  /** The cause, in a few words; null while online or connecting. */
  readonly reason: string | null;
}

export type ChangeKind = 'upload' | 'create-folder' | 'rename' | 'delete' | 'other';

export interface PendingChange {
  readonly path: string;
  readonly kind: ChangeKind;
  readonly sizeBytes: number | null;
  /** The time of the next attempt; null while it only waits for its turn. */
  readonly dueMs: number | null;
  readonly attempts: number;
}

export interface ParkedChange {
  readonly path: string;
  readonly kind: ChangeKind;
  /** `quota: the account has no storage left for it (413 …)`: a `ParkReason`, its meaning, and the response. */
  readonly reason: string;
  readonly sinceMs: number;
}

/** Entries that the service no longer lists, kept here until a person confirms their removal. */
export interface HeldRemoval {
  /** The entry, or the folder of several. */
  readonly path: string;
  /** The number of files and folders that the held-back removal would remove; `HELD_NODES_MAX` means at least so many. */
  readonly nodes: number;
}

export const HELD_NODES_MAX = 101;

/** A discarded change, or one that would be discarded. */
export interface DiscardedChange {
  readonly path: string;
  readonly change: 'made' | 'changed' | 'moved' | 'deleted';
  /** Bytes that exist only here. */
  readonly lostBytes: number;
}

/** A pinned file or folder and its progress. */
export interface PinnedPath {
  readonly path: string;
  readonly files: number;
  readonly bytes: number;
  readonly filesHere: number;
  readonly bytesHere: number;
  readonly isComplete: boolean;
  /** Why the last attempt failed; null while the fetch proceeds. */
  readonly trouble: string | null;
}

export interface Transfer {
  readonly path: string;
  readonly direction: 'up' | 'down';
  readonly doneBytes: number;
  readonly totalBytes: number;
  readonly bytesPerSecond: number;
  /** Estimate for the rest at that rate; null before any progress. */
  readonly leftMs: number | null;
}

/** A path in the mount, as the service knows it. */
export interface Located {
  readonly path: string;
  readonly kind: NodeKind;
  readonly sizeBytes: number;
  /** Its URL; null if the service does not have it yet. */
  readonly resource: string | null;
  /** Whether it has changes that the service does not have yet. */
  readonly isPending: boolean;
}

/** A file with bytes, or a folder, that exists on this machine only. */
export interface UnsyncedFile {
  readonly ino: number;
  readonly path: string;
  readonly kind: NodeKind;
  readonly sizeBytes: number;
  /** Why it is parked; null if it is pending. */
  readonly parked: string | null;
  /** Set if its record, or that of a folder above it, is damaged: name and bytes are unknown. */
  readonly damage?: string;
}

/** An entry of a folder, for a page. */
export interface FolderEntry {
  readonly name: string;
  readonly kind: NodeKind;
  readonly sizeBytes: number;
  readonly modifiedMs: number;
  /** As `user.cfs.state`, `user.cfs.pinned` and `user.cfs.here`; `here` is null for a folder. */
  readonly state: string;
  readonly pinned: 'itself' | 'folder' | 'none';
  readonly here: 'all' | 'part' | 'none' | null;
}

/** The state of a path, for emblems. Fields as in `FolderEntry`. */
export interface PathState extends Pick<FolderEntry, 'kind' | 'state' | 'pinned' | 'here'> {
  /** As `user.cfs.conflict`; null for a file without a conflict. */
  readonly conflict: string | null;
}

/** The progress of a `sync`, sent while it waits. */
export interface SyncProgress {
  readonly doneChanges: number;
  readonly totalChanges: number;
  readonly doneBytes: number;
  readonly totalBytes: number;
  /** The reason of a stall, as a phrase; null while the service answers. */
  readonly waitsFor: string | null;
}

/** The result of a `sync`, for exactly the changes that existed at the call. */
export interface SyncOutcome {
  readonly pushed: number;
  /** The changes of the request that are parked now. */
  readonly parked: readonly ParkedChange[];
  /** The number of changes that wait for a program to close its file. */
  readonly open: number;
}

/** The result of an `umount`. The mount has ended; pending changes are kept and pushed after the next start. */
export interface UmountOutcome {
  readonly pending: number;
  readonly parked: number;
  /** The first remaining changes, pending or parked. */
  readonly left: readonly { readonly path: string; readonly kind: ChangeKind }[];
  /** Programs still used the mount when it was detached. */
  readonly busy: boolean;
}

/** A conflicted copy and the file that it is a copy of. */
export interface Conflict {
  readonly copy: ConflictSide;
  /** null: no file has that name (any more). */
  readonly original: ConflictSide | null;
  /** Which of the two holds bytes that were saved on this machine; null: the copy was made by another machine. */
  readonly mine: 'copy' | 'original' | null;
  /** The machine that made the copy. */
  readonly host: string;
  /** `2026-11-20`, UTC: when it was made. */
  readonly day: string;
}

export interface ConflictSide {
  readonly path: string;
  readonly sizeBytes: number;
  readonly modifiedMs: number;
}

/** How an `evict` ended. Numbers of files; what was not here to begin with is in none of them. */
export interface Evicted {
  readonly files: number;
  readonly bytes: number;
  readonly kept: {
    /** Their bytes, or a change of them, exist on this machine only. */
    readonly onlyHere: number;
    /** Pushed, but the service has not said which of its versions these bytes are, so that they could not be fetched again. */
    readonly unnamed: number;
    readonly pinned: number;
    /** Open in a program, sent, or being merged. */
    readonly inUse: number;
  };
}

/** Bytes of contents per second; null: no limit. */
export interface RateLimits {
  readonly up: number | null;
  readonly down: number | null;
}
