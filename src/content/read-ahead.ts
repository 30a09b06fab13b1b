import type { ContentId, Extent } from '../base/vocabulary.ts';

const WINDOW_FIRST_BYTES = 512 * 1024;
const WINDOW_LONGEST_BYTES = 16 * 1024 * 1024;
/** The kernel's own read-ahead makes requests arrive a little out of order: within this distance it is still one stream. */
const SLACK_BYTES = 1024 * 1024;

/**
 * Decides, for one handle, what to fetch before it is asked for. Sequential access grows a window; a jump closes it, so that
 * random access fetches no more than it needs. Pure bookkeeping: it fetches nothing itself.
 */
export class ReadAhead {
  /** Where the stream is expected to go on. */
  #nextOffset = 0;
  #windowBytes = 0;
  /** End of what was asked for ahead already. */
  #askedEnd = 0;

  /** @returns the extent to prefetch after this read, or null */
  afterRead(extent: Extent, sizeBytes: number): Extent | null {
    const inStream = extent.start >= this.#nextOffset - SLACK_BYTES && extent.start <= this.#nextOffset + SLACK_BYTES;
    if (!inStream) {
      this.#nextOffset = extent.end;
      this.#windowBytes = 0;
      this.#askedEnd = extent.end;
      return null;
    }
    this.#nextOffset = Math.max(this.#nextOffset, extent.end);
    this.#windowBytes = Math.min(WINDOW_LONGEST_BYTES, Math.max(WINDOW_FIRST_BYTES, this.#windowBytes * 2));
    const start = Math.max(this.#askedEnd, extent.end);
    const end = Math.min(this.#nextOffset + this.#windowBytes, sizeBytes);
    // Asking in large steps keeps the requests long: wait until half of the window is used up.
    if (end - start < this.#windowBytes / 2 && end < sizeBytes) return null;
    if (start >= end) return null;
    this.#askedEnd = end;
    return { start, end };
  }
}

/** What a prefetch needs: only this much of the block reader. */
export interface Prefetcher {
  prefetch(id: ContentId, extent: Extent): void;
}
