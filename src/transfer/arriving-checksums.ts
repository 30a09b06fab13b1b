import { crc32 } from '../base/checksum.ts';
import type { BlockChecksums } from '../base/resources.ts';
import { BLOCK_BYTES } from '../base/vocabulary.ts';

/**
 * Computes the checksums of blocks whose bytes arrive in order. At that moment the bytes are still in the processor's cache, and the block need
 * not be read again for its checksum.
 */
export class ArrivingChecksums {
  #at: number;
  #checksum = 0;
  /** Whether the present block arrived from its first byte on. */
  #isWhole: boolean;
  #first: number;
  #checksums: number[] = [];

  /** @param start offset of the first byte */
  constructor(start: number) {
    this.#at = start;
    this.#isWhole = start % BLOCK_BYTES === 0;
    this.#first = Math.ceil(start / BLOCK_BYTES);
  }

  add(bytes: Uint8Array): void {
    for (let from = 0; from < bytes.byteLength; ) {
      const length = Math.min(bytes.byteLength - from, BLOCK_BYTES - (this.#at % BLOCK_BYTES));
      this.#checksum = crc32(bytes.subarray(from, from + length), this.#checksum);
      this.#at += length;
      from += length;
      if (this.#at % BLOCK_BYTES === 0) this.#next();
    }
  }

  /** No more bytes arrive: the last block may be shorter than the others. */
  end(): void {
    if (this.#at % BLOCK_BYTES !== 0) this.#next();
  }

  /** The checksums of the blocks that were completed since the last call. */
  take(): BlockChecksums {
    const taken = { first: this.#first, values: this.#checksums };
    this.#first += taken.values.length;
    this.#checksums = [];
    return taken;
  }

  #next(): void {
    if (this.#isWhole) this.#checksums.push(this.#checksum);
    this.#isWhole = true;
    this.#checksum = 0;
  }
}
