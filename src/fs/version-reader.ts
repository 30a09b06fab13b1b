import { setMaxListeners } from 'node:events';
import { FsError } from '../base/errors.ts';
import type { ContentId, Extent, HandleId, ResourceUrl, VersionUrl } from '../base/vocabulary.ts';
import type { Contents, Lease } from '../bytes/contents.ts';
import type { BlockReader, Caller } from '../content/block-reader.ts';
import { ReadAhead } from '../content/read-ahead.ts';
import type { Answer, ReadReply } from '../kernel/binding.ts';
import type { StoreWriter } from '../store/tables.ts';
import { replyOf } from './read-reply.ts';

export interface VersionContent {
  readonly version: VersionUrl;
  readonly resource: ResourceUrl;
}

interface OpenVersion {
  readonly content: ContentId;
  readonly sizeBytes: number;
  readonly lease: Lease;
  readonly readAhead: ReadAhead;
  readonly closed: AbortController;
}

/**
 * Old versions that are open by themselves. They are read through the block cache and share blocks with the file of the same version. A
 * content without another reference is collected when it is closed.
 */
export class VersionReader {
  readonly #store: StoreWriter;
  readonly #contents: Contents;
  readonly #reader: BlockReader;
  readonly #open = new Map<HandleId, OpenVersion>();
  #next = 1;
  /** Handles before it are those of earlier processes. */
  #first = 1;

  constructor(deps: { store: StoreWriter; contents: Contents; reader: BlockReader }) {
    this.#store = deps.store;
    this.#contents = deps.contents;
    this.#reader = deps.reader;
  }

  beginHandlesAt(first: number): void {
    this.#next = first;
    this.#first = first;
  }

  open(version: VersionUrl, resource: ResourceUrl, sizeBytes: number): { handle: HandleId; content: ContentId } {
    const content = this.#store.transact((tx) => {
      const id = this.#contents.versionContent(tx, version, resource, sizeBytes);
      // Only the lease keeps it from collection.
      if (tx.get('content', id)?.refs === 0) tx.put('garbage', id, true);
      return id;
    });
    const handle = this.#next++ as HandleId;
    this.#hold(handle, content, sizeBytes);
    return { handle, content };
  }

  /** A handle that an earlier process opened. @returns the version; null if its content is gone */
  resume(handle: HandleId, content: ContentId): VersionContent | null {
    const record = this.#contents.record(content);
    if (record?.version == null || record.resource === null) return null;
    this.#hold(handle, content, record.sizeBytes);
    return { version: record.version, resource: record.resource };
  }

  has(handle: HandleId): boolean {
    return this.#open.has(handle);
  }

  #hold(handle: HandleId, content: ContentId, sizeBytes: number): void {
    const lease = this.#contents.lease(content);
    const closed = new AbortController();
    setMaxListeners(0, closed.signal); // one for each request under way
    this.#open.set(handle, {
      content,
      sizeBytes,
      lease,
      readAhead: new ReadAhead(this.#reader.windowBytesMax),
      closed,
    });
  }

  /** @throws FsError EBADF · what `BlockReader.read` throws: ESTALE, ETIMEDOUT, EIO */
  read(handle: HandleId, wanted: Extent, caller: Caller): Answer<ReadReply> {
    const { content, sizeBytes, readAhead, closed } = this.#version(handle);
    const extent = { start: wanted.start, end: Math.min(wanted.end, sizeBytes) };
    if (extent.start >= extent.end) return new Uint8Array(0);
    const reply = this.#reader.read(content, extent, caller, (pieces) => replyOf(pieces, this.#contents));
    for (const ahead of readAhead.afterRead(extent, sizeBytes, reply instanceof Promise) ?? [])
      this.#reader.prefetch(content, ahead, closed.signal);
    return reply;
  }

  sizeOf(handle: HandleId): number {
    return this.#version(handle).sizeBytes;
  }

  close(handle: HandleId): void {
    const version = this.#open.get(handle);
    if (version === undefined) return;
    this.#open.delete(handle);
    version.closed.abort(new DOMException('no longer needed', 'AbortError'));
    version.lease.release();
  }

  #version(handle: HandleId): OpenVersion {
    const version = this.#open.get(handle);
    if (version === undefined) throw new FsError(handle < this.#first ? 'EIO' : 'EBADF');
    return version;
  }
}
