import { laterOf, type Timespec } from '../base/vocabulary.ts';
import type { LocalFacet } from '../store/tables.ts';

/** What a flush has not written down yet, and stat(2) must show already. */
export interface UnflushedAttributes {
  readonly sizeBytes: number;
  readonly mtime: Timespec;
  readonly ctime: Timespec;
}

/** Where what is written belongs; `'end-or-offset'`: at the end if `offset` is where the writer may take that to be. */
export type ContentPlace = 'offset' | 'end' | 'end-or-offset';

/** When its handles changed it, by `elapsedMs`. */
export interface Writing {
  /** The first change; of what was emptied the first one after that, null while there is none. */
  readonly sinceMs: number | null;
  readonly lastMs: number;
  /** The latest fsync(2) after a change; null for none. */
  readonly syncedMs: number | null;
  /** Emptied since the last close(2): what is there now is the beginning of something else. */
  readonly wasEmptied: boolean;
}

/** With the times of the latest write, if there was one; attributes and name may have been changed since. */
export function writtenAt(local: LocalFacet, times: { readonly mtime: Timespec; readonly ctime: Timespec } | null) {
  return times === null ? local : { ...local, mtime: times.mtime, ctime: laterOf(local.ctime, times.ctime) };
}

/** One more change, at `lastMs` by `elapsedMs`. */
export function changedAt(writing: Writing | null, lastMs: number): Writing {
  const { sinceMs, syncedMs = null, wasEmptied = false } = writing ?? {};
  return { sinceMs: sinceMs ?? lastMs, lastMs, syncedMs, wasEmptied };
}
