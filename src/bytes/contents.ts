import type { DraftRecord, UnflushedDraft, WritingState } from '../base/draft-record.ts';
import type { ContentId, Extent, Inode, ResourceUrl, VersionUrl } from '../base/vocabulary.ts';
import type { ContentRecord, Transaction } from '../store/tables.ts';

/**
 * The interface of the block cache. A content is read as a list of pieces: layers (own extents over a base), holes
 * and missing bytes are resolved in one place, for readers and uploads alike.
 */

/** A stretch of a content, in order, without gaps. */
export type Piece =
  /** Valid until the next change of that content: copy to keep. `isPassing`: fetched past the disk, only briefly in memory. */
  | { readonly kind: 'bytes'; readonly length: number; readonly bytes: Uint8Array; readonly isPassing?: boolean }
  /** In a content file; `fd` stays open while a lease on the content is held, `path` names the same file. */
  | {
      readonly kind: 'slice';
      readonly length: number;
      /** Owner of the file: the requested content or a layer below it. */
      readonly content: ContentId;
      readonly fd: number;
      readonly path: string;
      readonly position: number;
    }
  | { readonly kind: 'zeros'; readonly length: number }
  /** Missing: block-aligned `extent` (clipped at the version's size) of the version content `content` must be fetched. */
  | { readonly kind: 'missing'; readonly length: number; readonly content: ContentId; readonly extent: Extent };

export type Presence = 'all' | 'part' | 'none';

/** Keeps a content (its record, file and cached blocks) from collection and eviction. Not persisted. */
export interface Lease {
  readonly content: ContentId;
  release(): void;
}

/** The content under a new draft. */
export interface DraftBase {
  readonly content: ContentId;
  /** Bytes of the base that are visible; the draft starts with this size. */
  readonly sizeBytes: number;
}

/** Blocks that were given up since a write to their file began: the file may have a hole in their place. */
export interface GivenUp {
  /** The parts of `extent` that are not among them. */
  without(extent: Extent): Iterable<Extent>;
  stop(): void;
}

/** Changes of open drafts that no record holds yet, in the memory of a keeper (`--continuity`). */
export interface UnflushedChanges {
  /** Records changes from now on, for a successor of this process. */
  recordIn(record: DraftRecord): void;
  /** Whether they are recorded: `keep` is called only then. */
  readonly isRecorded: boolean;
  /** Records the latest change of an open draft. @returns false if a successor would not find it */
  keep(draft: ContentId, ino: Inode, writing: WritingState): boolean;
  /** Continues with the changes of an earlier process. @returns false if they were stored or given up meanwhile */
  resume(draft: UnflushedDraft): boolean;
}

export interface Contents {
  record(id: ContentId): ContentRecord | undefined;

  /** The content of a version: the known one, or a new one (refs 0: give it to a node in the same transaction). */
  versionContent(tx: Transaction, version: VersionUrl, resource: ResourceUrl, sizeBytes: number): ContentId;
  /** A sealed content of small bytes at hand (a symlink's target, a restored text). refs 0 until given to a node. */
  inlineContent(tx: Transaction, bytes: Uint8Array): ContentId;

  /** A new open draft (refs 0 until given to a node). Its base is leased and referenced. */
  createDraft(tx: Transaction, base: DraftBase | null): ContentId;
  /** Current length of a content, also of an open draft with changes that were not flushed. */
  sizeOf(id: ContentId): number;
  /** Copies `data` into an open draft. @throws StorageError full */
  write(draft: ContentId, offset: number, data: Uint8Array): void;
  /**
   * As `write`, for callers that must not block. A promise only while the system throttles writers. Until it settles, `data` must stay
   * unchanged and the draft must not be changed; the new length counts from then on.
   */
  writeAtPace(draft: ContentId, offset: number, data: Uint8Array): void | Promise<void>;
  /** Whether such a promise is pending: then the draft cannot be sealed. */
  isBeingWritten(draft: ContentId): boolean;
  /** Sets the length of an open draft; added bytes read as zeros. */
  truncate(draft: ContentId, sizeBytes: number): void;
  /** Makes `extent` of an open draft read as zeros, within its size. */
  zero(draft: ContentId, extent: Extent): void;
  /** Changes of drafts that outlive this process. */
  readonly unflushed: UnflushedChanges;
  /** Whether an open draft has changes that no record holds yet. */
  isUnflushed(draft: ContentId): boolean;
  /** Writes the draft's record (size, extents, small bytes) into `tx`: after that it survives SIGKILL. */
  flush(tx: Transaction, draft: ContentId): void;
  /**
   * A writer of the draft is done. Unless another writer leases it (`'changing'`), changes that no record holds are dropped from memory;
   * unless anyone leases it, the draft leaves memory altogether.
   *
   * @returns whether unrecorded changes were lost
   */
  putDown(content: ContentId): boolean;
  /** No more changes: to be pushed. Flushes too. */
  seal(tx: Transaction, draft: ContentId): void;
  /**
   * Makes one content survive a power cut: its file and those of the layers below, with their directory entries. Unchanged files are not
   * synced again. fsync(2) syncs the journal after it.
   *
   * @throws StorageError (rejects) from the first failed sync on
   */
  syncFile(id: ContentId): Promise<void>;

  /** The stretches of `extent` (clipped at the size), in order. Touches the LRU. Synchronous; reads the bytes of a cached block once in a run, to verify it. */
  pieces(id: ContentId, extent: Extent): Piece[];
  /**
   * How much of the first `sizeBytes` is on this machine. No byte is read: a damaged block counts as present until a read finds it.
   */
  presence(id: ContentId, sizeBytes: number): Presence;
  /** The bytes of `extent`, copied out; null when something is missing. For small reads, digests, symlinks. */
  readAll(id: ContentId, extent: Extent): Uint8Array | null;
  /**
   * Data at or after `offset`, for SEEK_DATA and SEEK_HOLE; null for none. Missing blocks count as data, and no byte is
   * read. The extent is at most 64 MiB long: data may continue behind it.
   */
  nextData(id: ContentId, offset: number): Extent | null;

  /**
   * The file for a fetch of this version content, created if necessary. Null: the version is small, or nothing is cached now; fetch into memory.
   *
   * @throws StorageError if the disk refuses the file
   */
  fetchPath(version: ContentId): string | null;
  /**
   * Takes fetched bytes in: they are in the file already (`bytes` null), or in `bytes`. Order: bytes, then the map. Missing `checksums`, by block,
   * are computed from the file.
   */
  landed(version: ContentId, extent: Extent, bytes: Uint8Array | null, checksums?: ReadonlyMap<number, number>): void;
  /** Records the blocks of a leased version that are given up from now on: bytes written to its file meanwhile may be lost. */
  watchGivenUp(version: ContentId): GivenUp;

  /**
   * The service acknowledged the sealed draft as `version`: the content changes its kind, nothing is fetched back. When a
   * base lies under it the cached blocks of the base are taken over, step by step, by `mergeLayers`.
   */
  adopt(tx: Transaction, draft: ContentId, version: VersionUrl, resource: ResourceUrl): void;
  /** Merges the blocks under versions that `adopt` made of drafts into the versions' own files; runs in the background. */
  mergeLayers(signal: AbortSignal): Promise<void>;

  /**
   * `'open'`: idle blocks may still be evicted, and fetched again. `'copying'`: no block is evicted; for slices that another thread
   * reads later. `'changing'`: as `'open'`, for an open file whose close(2) reports lost writes.
   */
  lease(id: ContentId, use?: 'open' | 'changing' | 'copying'): Lease;
  /**
   * Removes unreferenced contents, some at a time, and evicts down to the budget. Cheap when there is nothing to do.
   * @returns whether there is more to remove
   */
  collect(): boolean;
  /** Space in use. */
  usage(): CacheFigures;
  /** Excess of all contents, drafts included, over the cache's budget; 0 within it. */
  overBudgetBytes(): number;
}

/** Space that contents use, bytes. */
export interface CacheFigures {
  /** Clean contents: disk space of content files, length of small contents. */
  readonly cacheBytes: number;
  /** Drafts: bytes that exist only on this machine. */
  readonly draftBytes: number;
  /** The figure that `--cache-size` limits: disk space of clean content files and of LMDB's file (small contents and names). */
  readonly diskBytes: number;
}
