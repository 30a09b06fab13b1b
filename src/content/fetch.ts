import { BLOCK_BYTES, type ContentId, type Extent } from '../base/vocabulary.ts';

interface Reader {
  /** The reader needs the bytes before this position. */
  readonly end: number;
  readonly resolve: () => void;
  readonly reject: (reason: unknown) => void;
}

/**
 * One ranged GET, running or queued. No reader owns it: readers join and leave, and each one resumes as soon as its own bytes have
 * landed.
 */
export class Fetch {
  readonly content: ContentId;
  /** Begins at a block. */
  readonly extent: Extent;
  wasGivenUp = false;
  readonly #isAhead: boolean;
  readonly #readers = new Set<Reader>();
  #landedTo: number;
  /** The bytes of the whole extent, from their arrival on. */
  #bytes: Uint8Array | null = null;
  #isOver = false;
  #failure: unknown;

  /** @param isAhead read-ahead: no reader has asked for these bytes yet */
  constructor(content: ContentId, extent: Extent, isAhead: boolean) {
    this.content = content;
    this.extent = extent;
    this.#isAhead = isAhead;
    this.#landedTo = extent.start;
  }

  /** Whether a reader started it or waits for it; such a fetch is not cancelled. */
  get isWanted(): boolean {
    return !this.#isAhead || this.#readers.size > 0;
  }

  /** Every complete block of the fetch before this position is stored. */
  get landedTo(): number {
    return this.#landedTo;
  }

  /** Whether this fetch has yet to bring some of `extent`. */
  isBringing(extent: Extent): boolean {
    return Math.max(this.#landedTo, extent.start) < Math.min(this.extent.end, extent.end);
  }

  /** Resolves when the bytes up to `position`, or to the end of the range, have landed; rejects with the fetch. */
  reached(position: number): Promise<void> {
    if (this.#isOver) return this.#failure === undefined ? Promise.resolve() : Promise.reject(this.#failure);
    const end = Math.min(position, this.extent.end);
    if (end <= this.#landedTo) return Promise.resolve();
    return new Promise((resolve, reject) => this.#readers.add({ end, resolve, reject }));
  }

  /** The end of the last complete block when the bytes before `position` are present. */
  wholeTo(position: number): number {
    return position >= this.extent.end ? this.extent.end : position - (position % BLOCK_BYTES);
  }

  /** The bytes are in memory, and not stored yet: a reader takes them from here (`arrivedBytes`), or waits again. */
  arrived(bytes: Uint8Array): void {
    this.#bytes = bytes;
    for (const { resolve } of this.#readers) resolve();
    this.#readers.clear();
  }

  /** The bytes of `extent`; null if they are not in memory. */
  arrivedBytes({ start, end }: Extent): Uint8Array | null {
    if (this.#bytes === null || start < this.extent.start || end > this.extent.end) return null;
    return this.#bytes.subarray(start - this.extent.start, end - this.extent.start);
  }

  /** The blocks before `end` are present now. */
  landed(end: number): void {
    this.#landedTo = end;
    for (const reader of this.#readers) {
      if (reader.end > end) continue;
      this.#readers.delete(reader);
      reader.resolve();
    }
  }

  end(): void {
    this.#isOver = true;
    for (const { resolve } of this.#readers) resolve();
    this.#readers.clear();
  }

  fail(reason: unknown): void {
    this.#isOver = true;
    this.#failure = reason ?? new Error('the fetch failed');
    for (const { reject } of this.#readers) reject(this.#failure);
    this.#readers.clear();
  }
}
