const CHUNK_BYTES = 64 * 1024;
/** Chunks are cut from pieces of this size: so large that they come as untouched pages, which nobody has to fill with zeros. */
const SLAB_BYTES = 4 * 1024 * 1024;
const SMALL_BYTES = 4096;
/** Free chunks that are kept for the next file, of each size. */
const KEPT_MAX = 16_384;

/** Chunks that files gave back: so that a bench measures the binding, not the allocator. */
export class ChunkPool {
  readonly #large: Buffer[] = [];
  readonly #small: Buffer[] = [];
  #slab = new ArrayBuffer(0);
  #slabUsed = 0;

  /** At least `bytes` long and all zeros, unless the taker overwrites all of it anyway. */
  take(bytes: number, content: 'zeros' | 'anything'): Buffer {
    const [kept, length] = bytes <= SMALL_BYTES ? [this.#small, SMALL_BYTES] : [this.#large, CHUNK_BYTES];
    const chunk = kept.pop();
    if (chunk === undefined) return this.#cut(length);
    return content === 'zeros' ? chunk.fill(0) : chunk;
  }

  #cut(length: number): Buffer {
    if (this.#slabUsed + length > this.#slab.byteLength) {
      this.#slab = new ArrayBuffer(SLAB_BYTES);
      this.#slabUsed = 0;
    }
    const chunk = Buffer.from(this.#slab, this.#slabUsed, length);
    this.#slabUsed += length;
    return chunk;
  }

  giveBack(chunk: Buffer | undefined): void {
    if (chunk === undefined) return;
    const kept = chunk.length === SMALL_BYTES ? this.#small : this.#large;
    if (kept.length < KEPT_MAX) kept.push(chunk);
  }
}

/** Bytes of one file in memory: chunks that exist where something was written; that of a small file is a small one. */
export class MemoryBytes {
  readonly #pool: ChunkPool;
  #chunks: (Buffer | undefined)[] = [];
  #allocatedBytes = 0;
  sizeBytes = 0;

  constructor(pool: ChunkPool) {
    this.#pool = pool;
  }

  /** Not a sum over the chunks: each getattr asks for it. */
  get allocatedBytes(): number {
    return this.#allocatedBytes;
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
      const part = length === bytes.length ? bytes : bytes.subarray(done, done + length);
      this.#chunk(Math.floor(at / CHUNK_BYTES), within, length).set(part, within);
      done += length;
    }
    this.sizeBytes = Math.max(this.sizeBytes, offset + bytes.length);
  }

  zero(start: number, end: number): void {
    for (let at = start; at < Math.min(end, this.#chunks.length * CHUNK_BYTES); ) {
      const within = at % CHUNK_BYTES;
      const length = Math.min(end - at, CHUNK_BYTES - within);
      const chunk = this.#chunks[Math.floor(at / CHUNK_BYTES)];
      chunk?.fill(0, Math.min(within, chunk.length), Math.min(within + length, chunk.length));
      at += length;
    }
  }

  resize(sizeBytes: number): void {
    if (sizeBytes < this.sizeBytes) {
      const chunksLeft = Math.ceil(sizeBytes / CHUNK_BYTES);
      this.zero(sizeBytes, Math.min(this.sizeBytes, chunksLeft * CHUNK_BYTES));
      for (const chunk of this.#chunks.splice(chunksLeft)) {
        this.#allocatedBytes -= chunk?.length ?? 0;
        this.#pool.giveBack(chunk);
      }
    }
    this.sizeBytes = sizeBytes;
  }

  /** Where data begins at or after `offset`, in steps of a chunk; null when only a hole follows. */
  nextData(offset: number): number | null {
    const first = Math.floor(offset / CHUNK_BYTES);
    for (let i = first; i < this.#chunks.length && i * CHUNK_BYTES < this.sizeBytes; i++) {
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

  #chunk(index: number, within: number, length: number): Buffer {
    const there = this.#chunks[index];
    if (there !== undefined && there.length >= within + length) return there;
    const overwritten = within === 0 && (length === CHUNK_BYTES || length === SMALL_BYTES);
    const grown = this.#pool.take(within + length, overwritten ? 'anything' : 'zeros');
    if (there !== undefined) there.copy(grown);
    this.#pool.giveBack(there);
    this.#allocatedBytes += grown.length - (there?.length ?? 0);
    this.#chunks[index] = grown;
    return grown;
  }
}
