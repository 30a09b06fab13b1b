import type { ContentId, Extent, Inode, Timespec } from './vocabulary.ts';

/** What the handles of a file have made of it since its last flush. */
export interface WritingState {
  readonly mtime: Timespec;
  readonly ctime: Timespec;
  /** `Writing.wasEmptied` (src/content/writing.ts). */
  readonly wasEmptied: boolean;
  /** Truncated to zero, and not written since. */
  readonly isJustEmptied: boolean;
}

export interface DraftState {
  readonly sizeBytes: number;
  readonly baseBytes: number;
  /** Own extents, flat and sorted: [start, end, start, end, …]. */
  readonly extents: readonly number[];
  /** Own bytes at their own offsets; null: they are in the file of the draft. */
  readonly memory: Uint8Array | null;
}

/** An open draft with changes that no journal record holds. */
export interface UnflushedDraft extends DraftState {
  readonly content: ContentId;
  readonly ino: Inode;
  readonly writing: WritingState;
}

/** The open drafts of a mount, recorded outside this process for its successor (`--continuity`). */
export interface DraftRecord {
  /** Own bytes of a larger draft must be in its file. */
  readonly memoryBytesMax: number;
  /** The drafts of earlier processes. */
  inherited(): readonly UnflushedDraft[];
  /**
   * The draft of a file as it is after a change. Called for every write: it makes no objects.
   *
   * @param changed the part of `memory` that differs from the last call; null: none
   * @returns false if there is no room for it: its changes end with this process
   */
  changed(content: ContentId, ino: Inode, draft: DraftState, writing: WritingState, changed: Extent | null): boolean;
  /** The journal record that is written next has the changes of the draft. */
  storing(content: ContentId): void;
  /** The changes of the draft are stored, or given up. */
  dropped(content: ContentId): void;
}
