import { createHash } from 'node:crypto';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import type { HashedFile } from '../object-store.ts';

/** Bytes that become one object: in memory while they are few, else in a temporary file. */
export class PartFile {
  readonly #path: string;
  readonly #gathered: (bytes: number) => void;
  readonly #hash = createHash('sha256');
  #held: Uint8Array[] = [];
  #file: FileHandle | null = null;
  #sizeBytes = 0;

  /**
   * @param path unused so far
   * @param gathered called with the bytes that are added, or with a negative number when they are removed
   */
  constructor(path: string, gathered: (bytes: number) => void = () => {}) {
    this.#path = path;
    this.#gathered = gathered;
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  async write(chunk: Uint8Array): Promise<void> {
    this.#hash.update(chunk);
    this.#sizeBytes += chunk.byteLength;
    this.#gathered(chunk.byteLength);
    this.#held.push(chunk);
    if (this.#sizeBytes > SMALL_BYTES_MAX) await this.#spill();
  }

  /** All bytes, if they are few. */
  get bytes(): Uint8Array | null {
    return this.#sizeBytes <= SMALL_BYTES_MAX ? Buffer.concat(this.#held) : null;
  }

  /** The complete file. Its bytes need not survive a power cut: only the object does. */
  async finish(): Promise<HashedFile> {
    await this.#spill();
    await this.#file?.close();
    this.#file = null;
    return { path: this.#path, sizeBytes: this.#sizeBytes, sha256: this.#hash.digest('hex') };
  }

  /** Call once. */
  async remove(): Promise<void> {
    await this.#file?.close().catch(() => {});
    await unlink(this.#path).catch(() => {});
    this.#gathered(-this.#sizeBytes);
  }

  async #spill(): Promise<void> {
    const held = this.#held;
    this.#held = [];
    this.#file ??= await open(this.#path, 'wx', 0o600);
    for (let rest: Buffer = Buffer.concat(held); rest.byteLength > 0; ) {
      const { bytesWritten } = await this.#file.write(rest);
      rest = rest.subarray(bytesWritten);
    }
  }
}

/** As few as lie in the database. */
export const SMALL_BYTES_MAX = 16 * 1024;
