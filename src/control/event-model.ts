import type { ConnectionStatus, Status, Transfer } from './status-model.ts';

/**
 * What happens in a mount, for people and programs: `cfs log`, the foreground output, desktop notices and the `watch` call
 * read these and nothing else. Plain data. Paths are relative to the mount's root; `''` is the root itself.
 */
export type MountEvent =
  | {
      readonly type: 'mounted';
      readonly directory: string;
      readonly account: string;
      readonly pending: number;
      readonly connection: ConnectionStatus;
      /** Nothing is pushed: a pause of an earlier run lasts. */
      readonly isPaused?: boolean;
    }
  | { readonly type: 'uploaded'; readonly path: string; readonly version: number | null; readonly sizeBytes: number }
  | { readonly type: 'folder-created'; readonly path: string }
  | { readonly type: 'renamed'; readonly from: string; readonly to: string }
  /** `url`: its address on the service, also in the trash. Events of earlier versions have none. */
  | { readonly type: 'deleted'; readonly path: string; readonly to: 'trash' | 'forever'; readonly url?: string }
  /** Made elsewhere and shown here now. `count` > 1: so many entries of the folder `path`. */
  | {
      readonly type: 'received';
      readonly change: 'created' | 'changed' | 'deleted';
      readonly path: string;
      readonly count: number;
      /** Of a deleted entry. */
      readonly url?: string;
    }
  | { readonly type: 'renamed-elsewhere'; readonly from: string; readonly to: string }
  | { readonly type: 'conflict'; readonly path: string; readonly copy: string }
  | { readonly type: 'parked'; readonly path: string; readonly reason: string }
  | { readonly type: 'taken-back'; readonly path: string; readonly copy: string | null }
  | { readonly type: 'held-back'; readonly path: string; readonly nodes: number }
  | { readonly type: 'pinned'; readonly path: string }
  | { readonly type: 'unpinned'; readonly path: string }
  /** Everything in the pin is on this machine. */
  | { readonly type: 'pin-complete'; readonly path: string; readonly files: number; readonly bytes: number }
  /** The fetch of a pin makes no progress; it is retried automatically. */
  | { readonly type: 'pin-stuck'; readonly path: string; readonly reason: string }
  /** Cached copies were deleted. `asked`: by `cfs evict`; the others name the option whose limit was reached. */
  | {
      readonly type: 'evicted';
      readonly reason: 'cache-size' | 'cache-reserve' | 'asked';
      readonly bytes: number;
      readonly files: number;
    }
  /** Pushing was paused by a person. `untilMs`: wall clock; null: until `cfs resume`. */
  | { readonly type: 'paused'; readonly untilMs: number | null }
  | { readonly type: 'resumed' }
  /** `cfs limit`. Bytes per second; null: no limit. */
  | { readonly type: 'limited'; readonly up: number | null; readonly down: number | null }
  /** The account's storage is nearly used up. */
  | { readonly type: 'quota-low'; readonly usedBytes: number; readonly limitBytes: number }
  | { readonly type: 'offline'; readonly reason: string }
  | { readonly type: 'online'; readonly offlineMs: number }
  | { readonly type: 'sign-in-needed' }
  | { readonly type: 'unmounted'; readonly directory: string; readonly pending: number; readonly busy: boolean };

/** One event of the history. */
export interface EventRecord {
  /** 1, 2, 3, …: continues over restarts of the mount. */
  readonly seq: number;
  /** Wall clock, ms since the epoch. */
  readonly atMs: number;
  readonly event: MountEvent;
}

/** One message of a `watch` call. */
export type WatchMessage =
  | ({ readonly type: 'event' } & EventRecord)
  /** The fields of `Status` that changed since the last message; the first message has all. */
  | { readonly type: 'status'; readonly changed: Partial<Status> }
  /** The running transfers with bytes and rate, whenever they changed. */
  | { readonly type: 'transfers'; readonly transfers: readonly Transfer[] };
