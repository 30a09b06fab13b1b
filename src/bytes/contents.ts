import type { ContentId, Extent, ResourceUrl, VersionUrl } from '../base/vocabulary.ts';
import type { ContentRecord, Transaction } from '../store/tables.ts';

/**
 * The block cache as its users see it. A content is read by asking for its pieces: layers (own extents over a base), holes
 * and what is not here yet are resolved in one place, for readers and uploads alike.
 */

/** A stretch of a content, in order, without gaps. */
export type Piece =
  /** Valid until the next change of that content: copy what is kept. `isPassing`: fetched past the disk, and in memory for a moment only. */
  | { readonly kind: 'bytes'; readonly length: number; readonly bytes: Uint8Array; readonly isPassing?: boolean }
  /** In a content file; `fd` stays open while a lease on the content is held, `path` names the same file. */
  | {
      readonly kind: 'slice';
      readonly length: number;
      /** Whose file it is: perhaps a layer below the content that was asked for. */
      readonly content: ContentId;
      readonly fd: number;
      readonly path: string;
      readonly position: number;
    }
  | { readonly kind: 'zeros'; readonly length: number }
  /** Not here: block-aligned `extent` (clipped at the version's size) of the version content `content` must be fetched. */
  | { readonly kind: 'missing'; readonly length: number; readonly content: ContentId; readonly extent: Extent };

/** Keeps a content (its record, file and cached blocks) from collection and eviction. Not persisted. */
export interface Lease {
  readonly content: ContentId;
  release(): void;
}

/** What opening a draft for writing over something needs to know. */
export interface DraftBase {
  readonly content: ContentId;
  /** Bytes of the base that are visible; the draft starts with this size. */
  readonly sizeBytes: number;
}

/** Blocks that were given up since somebody began to write to their file: it may have a hole where he wrote. */
export interface GivenUp {
  /** The parts of `extent` that are not among them. */
  without(extent: Extent): Iterable<Extent>;
  stop(): void;
}

export interface Contents {
  record(id: ContentId): ContentRecord | undefined;

  /** The content that holds a version: the one known already, or a new one (refs 0: give it to a node in the same transaction). */
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
   * As `write`, for who must not be held up. A promise only while the system makes writers wait for its disk: `data` is needed until it
   * settles, the length counts from then on, and the next change of the draft comes after it.
   */
  writeAtPace(draft: ContentId, offset: number, data: Uint8Array): void | Promise<void>;
  /** Whether such a promise has not settled: then the draft cannot be sealed. */
  isBeingWritten(draft: ContentId): boolean;
  /** Sets the length of an open draft; what is gained reads as zeros. */
  truncate(draft: ContentId, sizeBytes: number): void;
  /** Makes `extent` of an open draft read as zeros, within its size. */
  zero(draft: ContentId, extent: Extent): void;
  /** Whether an open draft has changes that no record holds yet. */
  isUnflushed(draft: ContentId): boolean;
  /** Writes the draft's record (size, extents, small bytes) into `tx`: after that it survives SIGKILL. */
  flush(tx: Transaction, draft: ContentId): void;
  /**
   * Whoever changed the draft let go: unless somebody else may change it (`lease`), memory keeps nothing that no record holds, and
   * unless somebody else leases it, nothing at all.
   *
   * @returns whether changes were lost that no record held
   */
  putDown(content: ContentId): boolean;
  /** No more changes: to be pushed. Flushes too. */
  seal(tx: Transaction, draft: ContentId): void;
  /**
   * Power-cut promise for one content: its file and those of the layers below, with their directory entries. Nothing is synced twice that
   * did not change. (Who promises it to a program syncs the journal after it.)
   *
   * @throws StorageError (rejects) from the first time on that the disk could not
   */
  syncFile(id: ContentId): Promise<void>;

  /** The stretches of `extent` (clipped at the size), in order. Touches the LRU. Synchronous; does no I/O on file bytes. */
  pieces(id: ContentId, extent: Extent): Piece[];
  /** The bytes of `extent`, copied out; null when something is missing. For small reads, digests, symlinks. */
  readAll(id: ContentId, extent: Extent): Uint8Array | null;
  /**
   * Where SEEK_DATA and SEEK_HOLE find data at or after `offset`; null for none. Missing blocks count as data, and no byte is
   * looked at. Of long data the first 64 MiB or less: it may go on where the extent ends.
   */
  nextData(id: ContentId, offset: number): Extent | null;

  /** The file that a fetch of this version content writes into (made if need be). Null: too small, or there is none; ask for bytes instead. */
  fetchPath(version: ContentId): string | null;
  /**
   * Fetched bytes are here: in the file already (`bytes` null), or handed over. Order: bytes, then the map. `marks`, by block, are computed
   * from the file where they are left out.
   */
  landed(version: ContentId, extent: Extent, bytes: Uint8Array | null, marks?: ReadonlyMap<number, number>): void;
  /** The blocks of a leased version that are given up from now on: what is written to its file meanwhile may be gone from there. */
  watchGivenUp(version: ContentId): GivenUp;

  /**
   * The service acknowledged the sealed draft as `version`: the content changes its kind, nothing is fetched back. When a
   * base lies under it the cached blocks of the base are taken over, step by step, by `settleLayers`.
   */
  adopt(tx: Transaction, draft: ContentId, version: VersionUrl, resource: ResourceUrl): void;
  /** Takes over what adopted versions still have in their bases; called by the sync when there is nothing more urgent. */
  settleLayers(signal: AbortSignal): Promise<void>;

  /**
   * `'open'`: blocks that were not used for a while may still be evicted, and fetched again. `'copying'`: none is, however long it
   * takes; for whoever reads slices later, on another thread. `'changing'`: as `'open'`, for an open file, whose writers hear at their close
   * what could not be kept.
   */
  lease(id: ContentId, use?: 'open' | 'changing' | 'copying'): Lease;
  /**
   * Removes what nothing refers to, some at a time, and evicts down to the budget. Cheap when there is nothing to do.
   * @returns whether there is more to remove
   */
  collect(): boolean;
  /** How much is kept here. */
  usage(): CacheFigures;
  /** By how much all that is here, drafts included, exceeds the cache's budget; 0 when it does not. */
  overBudgetBytes(): number;
}

/** What contents take, bytes. */
export interface CacheFigures {
  /** What can be fetched again: content files as the disk has them, small contents by their length. */
  readonly cacheBytes: number;
  /** What only this machine has. */
  readonly draftBytes: number;
  /** What `--cache-size` counts: disk space of what can be fetched again, and of LMDB's file, where small contents and names lie. */
  readonly diskBytes: number;
}
