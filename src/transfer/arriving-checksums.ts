import { crc32 } from '../base/checksum.ts';
import type { BlockMarks } from '../base/resources.ts';
import { BLOCK_BYTES } from '../base/vocabulary.ts';

/**
 * The marks of the blocks of bytes that come in order. Computed as they come: the processor still has them in its cache then, and whoever
 * keeps the block has not to read it again for its mark.
 */
export class ArrivingMarks {
  #at: number;
  #mark = 0;
  /** Whether the block that comes has come from its first byte on. */
  #isWhole: boolean;
  #first: number;
  #marks: number[] = [];

  /** @param start where the bytes begin */
  constructor(start: number) {
    this.#at = start;
    this.#isWhole = start % BLOCK_BYTES === 0;
    this.#first = Math.ceil(start / BLOCK_BYTES);
  }

  add(bytes: Uint8Array): void {
    for (let from = 0; from < bytes.byteLength; ) {
      const length = Math.min(bytes.byteLength - from, BLOCK_BYTES - (this.#at % BLOCK_BYTES));
      this.#mark = crc32(bytes.subarray(from, from + length), this.#mark);
      this.#at += length;
      from += length;
      if (this.#at % BLOCK_BYTES === 0) this.#next();
    }
  }

  /** Nothing more comes: what came of the last block is all of it. */
  end(): void {
    if (this.#at % BLOCK_BYTES !== 0) this.#next();
  }

  /** The marks of the blocks that became whole since this was called last. */
  take(): BlockMarks {
    const taken = { first: this.#first, marks: this.#marks };
    this.#first += taken.marks.length;
    this.#marks = [];
    return taken;
  }

  #next(): void {
    if (this.#isWhole) this.#marks.push(this.#mark);
    this.#isWhole = true;
    this.#mark = 0;
  }
}
