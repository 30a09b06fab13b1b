const CHUNK_BYTES = 1 << 20;

/** Bytes of one file in memory: chunks that exist where something was written, and grow with what they hold. */
export class MemoryBytes {
  #chunks: (Buffer | undefined)[] = [];
  sizeBytes = 0;

  get allocatedBytes(): number {
    return this.#chunks.reduce((sum, chunk) => sum + (chunk?.length ?? 0), 0);
  }

  /** Pieces of [start, end), which lies within the size; holes as zeros. */
  read(start: number, end: number): Uint8Array[] {
    const pieces: Uint8Array[] = [];
    for (let at = start; at < end; ) {
      const within = at % CHUNK_BYTES;
      const length = Math.min(end - at, CHUNK_BYTES - within);
      const have = this.#chunks[Math.floor(at / CHUNK_BYTES)]?.subarray(within, within + length);
      if (have !== undefined && have.length > 0) pieces.push(have);
      if ((have?.length ?? 0) < length) pieces.push(Buffer.alloc(length - (have?.length ?? 0)));
      at += length;
    }
    return pieces;
  }

  write(offset: number, bytes: Uint8Array): void {
    for (let done = 0; done < bytes.length; ) {
      const at = offset + done;
      const within = at % CHUNK_BYTES;
      const length = Math.min(bytes.length - done, CHUNK_BYTES - within);
      this.#chunk(Math.floor(at / CHUNK_BYTES), within + length).set(bytes.subarray(done, done + length), within);
      done += length;
    }
    this.sizeBytes = Math.max(this.sizeBytes, offset + bytes.length);
  }

  zero(start: number, end: number): void {
    for (let at = start; at < Math.min(end, this.#chunks.length * CHUNK_BYTES); ) {
      const within = at % CHUNK_BYTES;
      const length = Math.min(end - at, CHUNK_BYTES - within);
      this.#chunks[Math.floor(at / CHUNK_BYTES)]?.fill(0, within, within + length);
      at += length;
    }
  }

  resize(sizeBytes: number): void {
    if (sizeBytes < this.sizeBytes) {
      this.zero(sizeBytes, Math.min(this.sizeBytes, Math.ceil(sizeBytes / CHUNK_BYTES) * CHUNK_BYTES));
      this.#chunks = this.#chunks.slice(0, Math.ceil(sizeBytes / CHUNK_BYTES));
    }
    this.sizeBytes = sizeBytes;
  }

  /** Where data begins at or after `offset`, in steps of a chunk; null when only a hole follows. */
  nextData(offset: number): number | null {
    const first = Math.floor(offset / CHUNK_BYTES);
    for (let i = first; i * CHUNK_BYTES < this.sizeBytes; i++) {
      if (this.#chunks[i] !== undefined) return i === first ? offset : i * CHUNK_BYTES;
    }
    return null;
  }

  /** Where a hole begins at or after `offset`; the end of the file is one. */
  nextHole(offset: number): number {
    const first = Math.floor(offset / CHUNK_BYTES);
    for (let i = first; i * CHUNK_BYTES < this.sizeBytes; i++) {
      if (this.#chunks[i] === undefined) return i === first ? offset : i * CHUNK_BYTES;
    }
    return this.sizeBytes;
  }

  #chunk(index: number, lengthNeeded: number): Buffer {
    const there = this.#chunks[index];
    if (there !== undefined && there.length >= lengthNeeded) return there;
    let length = 4096;
    while (length < lengthNeeded) length *= 2;
    const grown = Buffer.alloc(Math.min(length, CHUNK_BYTES));
    if (there !== undefined) there.copy(grown);
    this.#chunks[index] = grown;
    return grown;
  }
}
