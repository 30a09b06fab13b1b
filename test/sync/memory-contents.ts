import type { ContentId, Extent, ResourceUrl, VersionUrl } from '../../src/base/vocabulary.ts';
import type {
  CacheFigures,
  Contents,
  DraftBase,
  GivenUp,
  Lease,
  Piece,
  Presence,
  UnflushedChanges,
} from '../../src/bytes/contents.ts';
import { countReference } from '../../src/store/node-table.ts';
import type { ContentRecord, StoreWriter, Transaction } from '../../src/store/tables.ts';

/**
 * Contents as rows of numbers, `null` where a byte comes from below or is not here. Kept outside the store's tables, but a
 * restart of the sync keeps them: what this is for is who refers to what, not how bytes are stored.
 */
export class MemoryContents implements Contents {
  readonly #store: StoreWriter;
  readonly #own = new Map<ContentId, (number | null)[]>();
  /** Contents with no references left. */
  readonly collected = new Set<ContentId>();

  constructor(store: StoreWriter) {
    this.#store = store;
  }

  record(id: ContentId): ContentRecord | undefined {
    return this.#store.get('content', id);
  }

  versionContent(tx: Transaction, version: VersionUrl, resource: ResourceUrl, sizeBytes: number): ContentId {
    const known = tx.get('version', version);
    if (known !== undefined && tx.get('content', known) !== undefined) return known;
    const id = this.#make(tx, { kind: 'version', sealed: true, version, resource, sizeBytes });
    tx.put('version', version, id);
    return id;
  }

  inlineContent(tx: Transaction, bytes: Uint8Array): ContentId {
    const id = this.#make(tx, { kind: 'draft', sealed: true, sizeBytes: bytes.byteLength });
    this.#own.set(id, [...bytes]);
    return id;
  }

  createDraft(tx: Transaction, base: DraftBase | null): ContentId {
    const under = base === null || base.sizeBytes === 0 ? null : base.content;
    const sizeBytes = base?.sizeBytes ?? 0;
    const id = this.#make(tx, { kind: 'draft', sealed: false, sizeBytes, base: under, baseBytes: sizeBytes });
    if (under !== null) countReference(tx, under, 1);
    return id;
  }

  get unflushed(): UnflushedChanges {
    return { recordIn: () => {}, isRecorded: false, keep: () => true, resume: () => false };
  }

  sizeOf(id: ContentId): number {
    return this.record(id)?.sizeBytes ?? 0;
  }

  write(draft: ContentId, offset: number, data: Uint8Array): void {
    const record = this.record(draft);
    if (record === undefined || record.sealed) throw new Error(`content ${draft} is not an open draft`);
    const own = this.#own.get(draft) ?? [];
    while (own.length < offset + data.byteLength) own.push(null);
    data.forEach((byte, at) => {
      own[offset + at] = byte;
    });
    this.#own.set(draft, own);
    const sizeBytes = Math.max(record.sizeBytes, offset + data.byteLength);
    const extents = [...record.extents, offset, offset + data.byteLength];
    this.#store.transact((tx) => tx.put('content', draft, { ...record, sizeBytes, extents }));
  }

  presence(): Presence {
    throw new Error('not needed');
  }
  truncate(): void {
    throw new Error('not needed');
  }
  zero(): void {
    throw new Error('not needed');
  }
  writeAtPace(): void {
    throw new Error('not needed');
  }
  isBeingWritten(): boolean {
    return false;
  }
  isUnflushed(): boolean {
    return false;
  }
  flush(): void {}
  putDown(): boolean {
    return false;
  }

  seal(tx: Transaction, draft: ContentId): void {
    const record = tx.get('content', draft);
    if (record !== undefined) tx.put('content', draft, { ...record, sealed: true });
  }

  async syncFile(): Promise<void> {}

  pieces(id: ContentId, extent: Extent): Piece[] {
    const pieces: Piece[] = [];
    const end = Math.min(extent.end, this.sizeOf(id));
    for (let at = extent.start; at < end; at++) {
      const found = this.#byteAt(id, at);
      if (typeof found === 'number') pieces.push({ kind: 'bytes', length: 1, bytes: Uint8Array.of(found) });
      else {
        const { missing } = found;
        pieces.push({ kind: 'missing', length: 1, content: missing, extent: { start: 0, end: this.sizeOf(missing) } });
      }
    }
    return pieces;
  }

  readAll(id: ContentId, extent: Extent): Uint8Array | null {
    const bytes: number[] = [];
    for (let at = extent.start; at < Math.min(extent.end, this.sizeOf(id)); at++) {
      const found = this.#byteAt(id, at);
      if (typeof found !== 'number') return null;
      bytes.push(found);
    }
    return Uint8Array.from(bytes);
  }

  nextData(): Extent | null {
    return null;
  }
  fetchPath(): string | null {
    return null;
  }

  landed(version: ContentId, extent: Extent, bytes: Uint8Array | null): void {
    const own = this.#own.get(version) ?? [];
    bytes?.forEach((byte, at) => {
      own[extent.start + at] = byte;
    });
    this.#own.set(version, own);
  }

  watchGivenUp(): GivenUp {
    return { without: (extent) => [extent], stop: () => {} };
  }

  adopt(tx: Transaction, draft: ContentId, version: VersionUrl, resource: ResourceUrl): void {
    const record = tx.get('content', draft);
    if (record === undefined) throw new Error(`content ${draft} is not there`);
    if (record.kind !== 'draft' || !record.sealed) throw new Error(`content ${draft} is not a sealed draft`);
    tx.put('content', draft, { ...record, kind: 'version', version, resource });
    tx.put('version', version, draft);
  }

  async mergeLayers(): Promise<void> {}

  overBudgetBytes(): number {
    return 0;
  }

  lease(content: ContentId): Lease {
    return { content, release: () => {} };
  }

  /** Drops what nothing refers to: a reference that was forgotten shows as bytes that are gone. */
  collect(): boolean {
    for (const [id] of [...this.#store.all('garbage')]) {
      const record = this.record(id);
      if (record?.refs !== 0) continue;
      this.collected.add(id);
      this.#own.delete(id);
      this.#store.transact((tx) => {
        tx.remove('content', id);
        tx.remove('garbage', id);
        if (record.version !== null && tx.get('version', record.version) === id) tx.remove('version', record.version);
        if (record.base !== null) countReference(tx, record.base, -1);
      });
    }
    return false;
  }

  /** Throws away what could be fetched again. */
  evict(): void {
    for (const id of this.#own.keys()) {
      const record = this.record(id);
      if (record?.kind === 'version' && record.base === null) this.#own.delete(id);
    }
  }

  usage(): CacheFigures {
    return { cacheBytes: 0, draftBytes: 0, diskBytes: 0 };
  }

  /** A byte, or the version content that it has to be fetched from. */
  #byteAt(id: ContentId, at: number): number | { readonly missing: ContentId } {
    const record = this.record(id);
    if (record === undefined) throw new Error(`content ${id} is not there`);
    const own = this.#own.get(id)?.[at] ?? null;
    if (own !== null) return own;
    if (record.base !== null && at < record.baseBytes) {
      const below = this.#byteAt(record.base, at);
      // What is missing of a version is missing from it, never from its base: that one may be gone.
      if (typeof below === 'number' || record.kind === 'draft') return below;
    }
    return record.kind === 'version' ? { missing: id } : 0;
  }

  #make(tx: Transaction, fields: Partial<ContentRecord>): ContentId {
    const id = tx.nextId('content') as ContentId;
    const empty = {
      version: null,
      resource: null,
      where: 'none',
      base: null,
      baseBytes: 0,
      extents: [],
      refs: 0,
    } as const;
    tx.put('content', id, { kind: 'draft', sealed: false, sizeBytes: 0, ...empty, ...fields });
    return id;
  }
}
