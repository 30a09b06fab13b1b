import type { WritingState } from '../base/draft-record.ts';
import { laterOf, type Timespec } from '../base/vocabulary.ts';
import type { LocalFacet } from '../store/tables.ts';

/** Attributes that no flush has stored yet, but that stat(2) must already show. */
export interface UnflushedAttributes {
  readonly sizeBytes: number;
  readonly mtime: Timespec;
  readonly ctime: Timespec;
}

/** The position of a write. `'end-or-offset'`: the end, if the writer may take `offset` for the end. */
export type ContentPlace = 'offset' | 'end' | 'end-or-offset';

/** When the file's handles changed it, by `elapsedMs`. */
export interface Writing {
  /** The first change; after a truncation to zero the first one after it, null before that. */
  readonly sinceMs: number | null;
  readonly lastMs: number;
  /** The latest fsync(2) after a change; null if there was none since the last truncation to zero. */
  readonly syncedMs: number | null;
  /** Truncated to zero since the last close(2): the bytes present are the start of new content. */
  readonly wasEmptied: boolean;
}

/** `local` with the times of the latest write, if any. Attributes and name may be newer than that write. */
export function writtenAt(local: LocalFacet, times: { readonly mtime: Timespec; readonly ctime: Timespec } | null) {
  return times === null ? local : { ...local, mtime: times.mtime, ctime: laterOf(local.ctime, times.ctime) };
}

/** One more change, at `lastMs` by `elapsedMs`. */
export function changedAt(writing: Writing | null, lastMs: number, isEmptied = false): Writing {
  const { sinceMs, syncedMs = null, wasEmptied = false } = writing ?? {};
  if (isEmptied) return { sinceMs: null, lastMs, syncedMs: null, wasEmptied: true };
  return { sinceMs: sinceMs ?? lastMs, lastMs, syncedMs, wasEmptied };
}

/** Truncated to zero and not written since: the start of a save, or all of it. */
export function isJustEmptied(writing: Writing | null): boolean {
  return writing?.wasEmptied === true && writing.sinceMs === null;
}

/** The changes of an earlier process: as if they were made at `nowMs` by `elapsedMs`. */
export function resumedAt({ wasEmptied, isJustEmptied }: WritingState, nowMs: number): Writing {
  return { sinceMs: isJustEmptied ? null : nowMs, lastMs: nowMs, syncedMs: null, wasEmptied };
}
