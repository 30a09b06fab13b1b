import type { ContentId, Extent } from '../base/vocabulary.ts';
import type { ContentRecord } from '../store/tables.ts';
import type { ContentFiles } from './content-files.ts';
import { addExtent, bytesOf, coversExtent, type FlatExtents, removeExtent } from './extents.ts';

const NO_BYTES = new Uint8Array(0);

/**
 * An open draft: own extents over a base, changed in memory ahead of its record. Bytes up to `inlineBytesMax` are kept in a
 * buffer; a draft that grows beyond is spilled to its file, and stays there.
 *
 * Bytes of the file outside the own extents are meaningless. After a crash the draft is as in its last record; bytes within
 * those extents may be newer.
 */
export class Draft {
  readonly id: ContentId;
  readonly #files: ContentFiles;
  readonly #inlineBytesMax: number;
  readonly #extents: FlatExtents;
  #base: ContentId | null;
  #sizeBytes: number;
  #baseBytes: number;
  /** Own bytes at their own offsets; null once they are in the file. */
  #memory: Uint8Array | null;
  #changes = 0;
  #flushedChanges = 0;
  #isBeingWritten = false;
  /** The part of `#memory` that changed since `takeChanged`. */
  #changed: { start: number; end: number } | null = null;

  constructor(
    deps: { files: ContentFiles; inlineBytesMax: number },
    id: ContentId,
    record: ContentRecord,
    inline: Uint8Array | undefined,
  ) {
    this.#files = deps.files;
    this.#inlineBytesMax = deps.inlineBytesMax;
    this.id = id;
    this.#base = record.base;
    this.#extents = [...record.extents];
    this.#sizeBytes = record.sizeBytes;
    this.#baseBytes = record.baseBytes;
    this.#memory = record.where === 'file' ? null : inline === undefined ? NO_BYTES : inline.slice();
  }

  get base(): ContentId | null {
    return this.#base;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  get baseBytes(): number {
    return this.#baseBytes;
  }

  get extents(): readonly number[] {
    return this.#extents;
  }

  get ownBytes(): number {
    return bytesOf(this.#extents);
  }

  get isUnflushed(): boolean {
    return this.#changes !== this.#flushedChanges;
  }

  /** Own bytes by offset while they are in memory; null: they are in the file. A view, valid until the next change. */
  get memory(): Uint8Array | null {
    return this.#memory;
  }

  /** The part of `memory` that changed since the last call; null: none. */
  takeChanged(): Extent | null {
    const changed = this.#changed;
    this.#changed = null;
    return changed;
  }

  /** Moves own bytes beyond `max` from memory to the file. @returns whether there were any @throws StorageError full: they stay in memory */
  spillsBeyond(max: number): boolean {
    if (this.#memory === null || (this.#extents.at(-1) ?? 0) <= max) return false;
    this.#wholeOrNot(() => this.#spill());
    return true;
  }

  /** Its state is not that of its record: an earlier process changed it. */
  isAhead(): void {
    this.#changes++;
  }

  /** The thread pool is writing to it: the outcome is not known yet. */
  get isBeingWritten(): boolean {
    return this.#isBeingWritten;
  }

  write(offset: number, data: Uint8Array): void {
    if (data.byteLength === 0) return;
    this.#wholeOrNot(() => {
      if (!this.#keptInMemory(offset, data)) this.#files.write(this.id, 'drafts', data, offset);
    });
    this.#noteWritten(offset, offset + data.byteLength);
  }

  /** See `Contents.writeAtPace`. */
  writeAtPace(offset: number, data: Uint8Array): void | Promise<void> {
    if (data.byteLength === 0) return;
    const end = offset + data.byteLength;
    const written = this.#wholeOrNot(() => {
      if (!this.#keptInMemory(offset, data)) return this.#files.writeAtPace(this.id, 'drafts', data, offset);
    });
    if (written !== undefined) return this.#writtenLater(written, offset, end);
    this.#noteWritten(offset, end);
  }

  /**
   * If a change moves the draft into its file and then fails, the draft stays in memory unchanged. No record names the file: it would be
   * taken for the version's, and the change's bytes in it would be lost at the next close.
   */
  #wholeOrNot<T>(change: () => T): T {
    const memory = this.#memory;
    try {
      return change();
    } catch (error) {
      if (memory !== null) {
        if (this.#files.wasMade(this.id)) this.#files.unmake(this.id, 'drafts');
        this.#memory = memory;
      }
      throw error;
    }
  }

  /** Whether the draft is still short enough for memory with `data`; otherwise it is in its file from now on. */
  #keptInMemory(offset: number, data: Uint8Array): boolean {
    const end = offset + data.byteLength;
    if (this.#memory !== null && end > this.#inlineBytesMax) this.#spill();
    if (this.#memory === null) return false;
    this.#room(end).set(data, offset);
    this.#noteChanged(offset, end);
    return true;
  }

  async #writtenLater(written: Promise<void>, offset: number, end: number): Promise<void> {
    this.#isBeingWritten = true;
    try {
      await written;
      this.#noteWritten(offset, end);
    } finally {
      this.#isBeingWritten = false;
    }
  }

  #noteWritten(offset: number, end: number): void {
    addExtent(this.#extents, offset, end);
    this.#sizeBytes = Math.max(this.#sizeBytes, end);
    this.#changes++;
  }

  truncate(sizeBytes: number): void {
    if (sizeBytes === this.#sizeBytes) return;
    if (sizeBytes < this.#sizeBytes) {
      removeExtent(this.#extents, sizeBytes, Number.MAX_SAFE_INTEGER);
      this.#baseBytes = Math.min(this.#baseBytes, sizeBytes);
    }
    this.#sizeBytes = sizeBytes;
    this.#changes++;
  }

  zero({ start, end }: Extent): void {
    if (start >= end) return;
    if (end >= this.#baseBytes) {
      removeExtent(this.#extents, start, end);
      this.#baseBytes = Math.min(this.#baseBytes, start);
    } else {
      // Own zeros must cover the visible base. Until they do, the draft keeps its own bytes there: writing them may throw.
      this.#wholeOrNot(() => {
        if (this.#memory !== null && end > this.#inlineBytesMax) this.#spill();
        if (this.#memory === null) this.#files.zero(this.id, 'drafts', start, end);
        else {
          this.#room(end).fill(0, start, end);
          this.#noteChanged(start, end);
        }
      });
      addExtent(this.#extents, start, end);
    }
    this.#changes++;
  }

  /** The draft as a record, with everything that is not its own (references, …) from `stored`; small bytes apart. */
  toRecord(stored: ContentRecord): { readonly record: ContentRecord; readonly inline: Uint8Array | null } {
    const needsBase = this.#base !== null && !coversExtent(this.#extents, 0, this.#baseBytes);
    const ownEnd = this.#extents.at(-1) ?? 0;
    const where = this.#memory === null ? 'file' : ownEnd === 0 ? 'none' : 'inline';
    return {
      record: {
        ...stored,
        sizeBytes: this.#sizeBytes,
        base: needsBase ? stored.base : null,
        baseBytes: needsBase ? this.#baseBytes : 0,
        extents: [...this.#extents],
        where,
      },
      inline: where === 'inline' ? (this.#memory as Uint8Array).slice(0, ownEnd) : null,
    };
  }

  /** Notes the draft's current state; call the result when its record is committed. */
  flushing(): () => void {
    const changes = this.#changes;
    return () => {
      this.#flushedChanges = changes;
    };
  }

  /** The record without the base, of which nothing was visible any more, is committed. */
  dropBase(): void {
    this.#base = null;
    this.#baseBytes = 0;
  }

  #noteChanged(start: number, end: number): void {
    const changed = this.#changed;
    if (changed === null) this.#changed = { start, end };
    else {
      changed.start = Math.min(changed.start, start);
      changed.end = Math.max(changed.end, end);
    }
  }

  #room(end: number): Uint8Array {
    const memory = this.#memory as Uint8Array;
    if (memory.byteLength >= end) return memory;
    const grown = new Uint8Array(Math.min(Math.max(end, memory.byteLength * 2, 512), this.#inlineBytesMax));
    grown.set(memory);
    this.#memory = grown;
    return grown;
  }

  #spill(): void {
    const memory = this.#memory as Uint8Array;
    this.#files.create(this.id, 'drafts');
    for (let at = 0; at < this.#extents.length; at += 2) {
      const start = this.#extents[at] as number;
      this.#files.write(this.id, 'drafts', memory.subarray(start, this.#extents[at + 1]), start);
    }
    this.#memory = null;
  }
}
