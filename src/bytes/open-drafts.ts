import type { DraftRecord, UnflushedDraft, WritingState } from '../base/draft-record.ts';
import { FsError, StorageError } from '../base/errors.ts';
import type { ContentId, Inode } from '../base/vocabulary.ts';
import { countReference, ifSound } from '../store/node-table.ts';
import type { ContentRecord, StoreReader, Transaction } from '../store/tables.ts';
import type { CacheEviction } from './cache-eviction.ts';
import type { CacheUsage } from './cache-usage.ts';
import type { ContentFiles } from './content-files.ts';
import type { Lease } from './contents.ts';
import { Draft } from './draft.ts';

interface OpenDraft {
  readonly draft: Draft;
  readonly baseLease: Lease | null;
}

/** Drafts that may be ahead of their records, each with a lease on its base. */
export class OpenDrafts {
  readonly #store: StoreReader;
  readonly #files: ContentFiles;
  readonly #usage: CacheUsage;
  readonly #eviction: CacheEviction;
  readonly #inlineBytesMax: number;
  readonly #lease: (id: ContentId) => Lease;
  readonly #open = new Map<ContentId, OpenDraft>();
  /** The number of open files that may change a content; their close(2) reports lost writes. */
  readonly #changers = new Map<ContentId, number>();

  /** Where a successor of this process finds unflushed changes; null without one. */
  #record: DraftRecord | null = null;

  constructor(deps: {
    store: StoreReader;
    files: ContentFiles;
    usage: CacheUsage;
    eviction: CacheEviction;
    inlineBytesMax: number;
    lease: (id: ContentId) => Lease;
  }) {
    this.#store = deps.store;
    this.#files = deps.files;
    this.#usage = deps.usage;
    this.#eviction = deps.eviction;
    this.#inlineBytesMax = deps.inlineBytesMax;
    this.#lease = deps.lease;
  }

  /** Records unflushed changes from now on, for a successor of this process. */
  recordIn(record: DraftRecord): void {
    this.#record = record;
  }

  get isRecorded(): boolean {
    return this.#record !== null;
  }

  /** Records the latest change of a draft. @returns false if a successor would not find it */
  keep(id: ContentId, ino: Inode, writing: WritingState): boolean {
    const record = this.#record;
    const draft = record === null ? undefined : this.get(id);
    if (record === null || draft === undefined) return true;
    if (record.changed(id, ino, draft, writing, draft.takeChanged())) return true;
    try {
      if (!draft.spillsBeyond(record.memoryBytesMax)) return false;
    } catch {
      return false;
    }
    return record.changed(id, ino, draft, writing, null);
  }

  /** Continues with the changes of an earlier process. @returns false if they were stored or given up meanwhile */
  resume({ content: id, sizeBytes, baseBytes, extents, memory }: UnflushedDraft): boolean {
    const stored = ifSound(() => this.#store.get('content', id));
    if (stored === undefined || stored.kind !== 'draft' || stored.sealed) {
      this.#record?.dropped(id);
      return false;
    }
    const where = memory === null ? 'file' : 'inline';
    const visible = stored.base === null ? 0 : baseBytes;
    this.begin(id, { ...stored, sizeBytes, baseBytes: visible, extents, where }, memory ?? undefined).isAhead();
    if (memory === null) this.#files.isMade(id);
    return true;
  }

  get(id: ContentId): Draft | undefined {
    return this.#open.get(id)?.draft;
  }

  /** Registers a draft whose record is being created or was read. */
  begin(id: ContentId, record: ContentRecord, inline: Uint8Array | undefined): Draft {
    const draft = new Draft({ files: this.#files, inlineBytesMax: this.#inlineBytesMax }, id, record, inline);
    this.#open.set(id, { draft, baseLease: record.base === null ? null : this.#lease(record.base) });
    return draft;
  }

  /** The draft for changing it. */
  open(id: ContentId): Draft {
    const open = this.#open.get(id);
    if (open !== undefined) return open.draft;
    const record = this.#store.get('content', id);
    if (record === undefined) throw new StorageError(`content ${id} is not there`);
    if (record.kind !== 'draft' || record.sealed) throw new Error(`content ${id} is sealed`);
    const inline = record.where === 'inline' ? this.#store.get('inline', id) : undefined;
    if (inline === 'damaged')
      throw new FsError('EIO', `the bytes of content ${id} are damaged, and nothing else holds them`);
    return this.begin(id, record, inline);
  }

  /** Writes the record of a draft that is ahead of it. A base that is no longer visible is dropped. */
  flush(tx: Transaction, id: ContentId): void {
    const draft = this.get(id);
    this.#record?.storing(id);
    if (draft === undefined || !draft.isUnflushed) {
      if (this.#record !== null) tx.afterCommit(() => this.#record?.dropped(id));
      return;
    }
    const stored = tx.get('content', id);
    if (stored === undefined) throw new StorageError(`content ${id} is not there`);
    const { record, inline } = draft.toRecord(stored);
    tx.put('content', id, record);
    if (inline !== null) tx.put('inline', id, inline);
    else if (stored.where === 'inline') tx.remove('inline', id);
    const base = record.base === null ? stored.base : null;
    if (base !== null) countReference(tx, base, -1);
    const flushed = draft.flushing();
    tx.afterCommit(() => {
      flushed();
      this.#record?.dropped(id);
      this.#usage.setDraft(id, draft.ownBytes);
      if (base !== null) this.#dropBase(id);
    });
  }

  beginChanging(id: ContentId): void {
    this.#changers.set(id, (this.#changers.get(id) ?? 0) + 1);
  }

  endChanging(id: ContentId): void {
    const count = (this.#changers.get(id) ?? 0) - 1;
    if (count > 0) this.#changers.set(id, count);
    else this.#changers.delete(id);
  }

  hasChangers(id: ContentId): boolean {
    return this.#changers.has(id);
  }

  /** Drops a draft from memory; it is read from its record again. */
  putDown(id: ContentId): void {
    const open = this.#open.get(id);
    if (open === undefined) return;
    this.#open.delete(id);
    this.#record?.dropped(id);
    open.baseLease?.release();
    // A file that holds only lost writes: no record names it, so its space would never be freed.
    if (!this.#files.wasMade(id) || open.draft.isBeingWritten) return;
    const record = ifSound(() => this.#store.get('content', id));
    if (record !== undefined && record.where !== 'file') this.#files.unmake(id, 'drafts');
  }

  /** Puts down unused drafts: flushed ones, and those whose creation failed. */
  putDownIdle(): void {
    for (const [id, { draft }] of this.#open) {
      const isStored = ifSound(() => this.#store.get('content', id) !== undefined);
      // Its record is damaged: memory holds the only copy.
      if (isStored === undefined) continue;
      if (!this.#files.isHeld(id) && (!isStored || !draft.isUnflushed)) this.putDown(id);
    }
  }

  #dropBase(id: ContentId): void {
    this.#eviction.releaseBase(id);
    const open = this.#open.get(id);
    if (open === undefined) return;
    open.draft.dropBase();
    open.baseLease?.release();
    this.#open.set(id, { draft: open.draft, baseLease: null });
  }
}
