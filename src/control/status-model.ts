import type { NodeKind } from '../base/vocabulary.ts';

/**
 * What a running mount says of itself: `cfs status --json` prints a `Status` as it is. Plain data. Moments are milliseconds
 * since the epoch (`…Ms`), sizes are bytes. Paths are relative to the mount's root, without a leading slash.
 */
export interface Status {
  /** Raised when a field changes its meaning or goes; new fields do not raise it. */
  readonly schema: 1;
  readonly directory: string;
  readonly account: { readonly origin: string; readonly username: string };
  readonly pid: number;
  /** The version of the program that runs; a mount of a version before this field existed leaves it out. */
  readonly version?: string;
  /** Layout of the store. Another layout is migrated only after the mount has ended; left out as above, and then 3. */
  readonly storeLayout?: number;
  readonly startedMs: number;
  /** `draining`: an unmount has begun. */
  readonly phase: 'running' | 'draining';
  readonly connection: ConnectionStatus;
  readonly pending: {
    /** Changes that the service does not have yet; 0 means that this machine may be lost. */
    readonly count: number;
    readonly bytes: number;
    /** The first of them, at most LISTED_MAX. */
    readonly changes: readonly PendingChange[];
  };
  readonly parked: readonly ParkedChange[];
  /** Removals that are applied only after a person confirms them (`cfs refresh --accept`). */
  readonly held: readonly HeldRemoval[];
  /** Folders that were removed on the service, and are kept because files in them exist on this machine only. */
  readonly localFolders: readonly string[];
  /** What stays on this machine by its name, and nowhere else. */
  readonly local?: LocalFiles;
  readonly transfers: readonly Transfer[];
  /** Files and folders that a user pinned (`cfs pin`). */
  readonly pinned: readonly PinnedPath[];
  readonly cache: {
    readonly usedBytes: number;
    readonly limitBytes: number;
    /** Bytes that exist on this machine only; never evicted. */
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
  /** `sign-in-needed`: the service is there but refuses the refresh token or the keys. */
  readonly state: 'online' | 'offline' | 'sign-in-needed';
  readonly sinceMs: number;
  /** What went wrong, in a few words; null while online. */
  readonly reason: string | null;
}

export type ChangeKind = 'upload' | 'create-folder' | 'rename' | 'delete' | 'other';

export interface PendingChange {
  readonly path: string;
  readonly kind: ChangeKind;
  readonly sizeBytes: number | null;
  /** When it will be tried; null where it only waits for its turn. */
  readonly dueMs: number | null;
  readonly attempts: number;
}

export interface ParkedChange {
  readonly path: string;
  readonly kind: ChangeKind;
  /** `quota: the account has no storage left for it (413 …)`: a `ParkReason`, what that means, and what was answered. */
  readonly reason: string;
  readonly sinceMs: number;
}

/** Entries that the service no longer lists, kept here until a person confirms their removal. */
export interface HeldRemoval {
  /** The entry, or the folder of several. */
  readonly path: string;
  /** How many files and folders would go; `HELD_NODES_MAX` stands for more. */
  readonly nodes: number;
}

export const HELD_NODES_MAX = 101;

/** A discarded change, or one that would be discarded. */
export interface DiscardedChange {
  readonly path: string;
  readonly change: 'made' | 'changed' | 'moved' | 'deleted';
  /** Bytes that are nowhere else. */
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
  /** How long the rest takes at that rate; null while nothing has moved. */
  readonly leftMs: number | null;
}

/** A path in the mount, as the service knows it. */
export interface Located {
  readonly path: string;
  readonly kind: NodeKind;
  readonly sizeBytes: number;
  /** Its URL; null for what the service does not have yet. */
  readonly resource: string | null;
  /** Whether something of it is not with the service yet. */
  readonly isPending: boolean;
}

/** A file whose bytes, or a folder that, exist on this machine only. */
export interface UnsyncedFile {
  readonly ino: number;
  readonly path: string;
  readonly kind: NodeKind;
  readonly sizeBytes: number;
  /** Why it is parked; null for what only waits. */
  readonly parked: string | null;
  /** Set where what is stored about it, or about a folder above it, is damaged: neither name nor bytes are known. */
  readonly damage?: string;
}

/** The progress of a `sync`, sent while it waits. */
export interface SyncProgress {
  readonly doneChanges: number;
  readonly totalChanges: number;
  readonly doneBytes: number;
  readonly totalBytes: number;
  /** Why nothing moves, a sentence part; null while the service answers. */
  readonly waitsFor: string | null;
}

/** How a `sync` ended, for exactly the changes that were there when it was asked for. */
export interface SyncOutcome {
  readonly pushed: number;
  /** Those of the set that are parked now. */
  readonly parked: readonly ParkedChange[];
  /** How many wait until a program closes what it has open. */
  readonly open: number;
}

/** How an `umount` ended. The mount is gone by then; what is pending is kept and pushed at the next start. */
export interface UmountOutcome {
  readonly pending: number;
  readonly parked: number;
  /** The first of what is left, pending or parked. */
  readonly left: readonly { readonly path: string; readonly kind: ChangeKind }[];
  /** Programs still used the mount: it was detached under them. */
  readonly busy: boolean;
}
