import { createHash } from 'node:crypto';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import type { Clock } from '../../base/clock.ts';
import type { HashedBytes, HashedFile } from '../object-store.ts';
import type { PartBuffer } from './part-buffers.ts';

/**
 * Bytes that become one object: in a buffer while they arrive quickly, else in a temporary file. All of them stay there until the object
 * is stored: a request to the store starts with their length and hash, and may be repeated.
 *
 * INVARIANT: the bytes are in `#memory`, or in the file once `#moved` is resolved. Every write waits for the move.
 */
export class ArrivingPart {
  readonly #path: string;
  readonly #clock: Clock;
  readonly #takeBuffer: () => PartBuffer | null;
  readonly #gathered: (bytes: number) => void;
  readonly #startMs: number;
  readonly #hash = createHash('sha256');
  #memory: Buffer = Buffer.allocUnsafeSlow(SMALL_BYTES_MAX);
  #buffer: PartBuffer | null = null;
  #moved: Promise<FileHandle> | null = null;
  #file: FileHandle | null = null;
  #stopWatch = (): void => {};
  #sizeBytes = 0;

  /**
   * @param deps.path unused so far
   * @param deps.takeBuffer null: there is none
   * @param deps.gathered called with the bytes that are added, or with a negative number when they are removed
   */
  constructor(deps: {
    path: string;
    clock: Clock;
    takeBuffer?: () => PartBuffer | null;
    gathered?: (bytes: number) => void;
  }) {
    this.#path = deps.path;
    this.#clock = deps.clock;
    this.#takeBuffer = deps.takeBuffer ?? (() => null);
    this.#gathered = deps.gathered ?? (() => {});
    this.#startMs = deps.clock.elapsedMs();
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  async write(chunk: Uint8Array): Promise<void> {
    if (!this.#fits(chunk)) this.#grow();
    if (this.#fits(chunk)) this.#memory.set(chunk, this.#sizeBytes);
    else await writeAll(await this.#moveToFile(), chunk);
    this.#hash.update(chunk);
    this.#sizeBytes += chunk.byteLength;
    this.#gathered(chunk.byteLength);
  }

  /** A copy of all bytes, if they are few. */
  get bytes(): Uint8Array | null {
    return this.#sizeBytes <= SMALL_BYTES_MAX ? Buffer.from(this.#memory.subarray(0, this.#sizeBytes)) : null;
  }

  /** All bytes, until `remove`. Those of a file need not survive a power cut: only the object does. */
  async finish(): Promise<HashedBytes | HashedFile> {
    this.#stopWatch();
    const file = await this.#moved;
    await file?.close();
    this.#file = null;
    const hashed = { sizeBytes: this.#sizeBytes, sha256: this.#hash.digest('hex') };
    return file === null
      ? { ...hashed, bytes: this.#memory.subarray(0, this.#sizeBytes) }
      : { ...hashed, path: this.#path };
  }

  /** Call once. */
  async remove(): Promise<void> {
    this.#stopWatch();
    await this.#moved?.catch(() => {});
    await this.#file?.close().catch(() => {});
    if (this.#moved !== null) await unlink(this.#path).catch(() => {});
    this.#buffer?.giveBack();
    this.#gathered(-this.#sizeBytes);
  }

  #fits(chunk: Uint8Array): boolean {
    return this.#moved === null && this.#sizeBytes + chunk.byteLength <= this.#memory.byteLength;
  }

  /** From its first memory into a buffer, if it arrives quickly and there is one. */
  #grow(): void {
    if (this.#moved !== null || this.#buffer !== null || this.#isSlow()) return;
    this.#buffer = this.#takeBuffer();
    if (this.#buffer === null) return;
    this.#buffer.bytes.set(this.#memory.subarray(0, this.#sizeBytes));
    this.#memory = this.#buffer.bytes;
    this.#watch();
  }

  /** Also of a sender that is silent: its buffer is for others. */
  #watch(): void {
    this.#stopWatch = this.#clock.after(LOOK_EVERY_MS, () => {
      if (!this.#isSlow()) this.#watch();
      // The next write fails if the move does.
      else this.#moveToFile().catch(() => {});
    });
  }

  #isSlow(): boolean {
    const elapsedMs = this.#clock.elapsedMs() - this.#startMs;
    return elapsedMs >= LOOK_EVERY_MS && this.#sizeBytes < (elapsedMs / 1000) * QUICK_BYTES_PER_SECOND;
  }

  #moveToFile(): Promise<FileHandle> {
    this.#moved ??= this.#move();
    return this.#moved;
  }

  async #move(): Promise<FileHandle> {
    this.#stopWatch();
    this.#file = await open(this.#path, 'wx', 0o600);
    await writeAll(this.#file, this.#memory.subarray(0, this.#sizeBytes));
    this.#buffer?.giveBack();
    this.#buffer = null;
    this.#memory = NO_BYTES;
    return this.#file;
  }
}

async function writeAll(file: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let rest = bytes; rest.byteLength > 0; ) {
    const { bytesWritten } = await file.write(rest);
    rest = rest.subarray(bytesWritten);
  }
}

/** A part at most; the S3 client sends it in one request. */
export const PART_BYTES = 8 * 1024 * 1024;
/** As few as lie in the database. */
export const SMALL_BYTES_MAX = 16 * 1024;
const NO_BYTES = Buffer.alloc(0);
/** Since the first byte of a part. A slower one holds no buffer. */
const QUICK_BYTES_PER_SECOND = 1024 * 1024;
const LOOK_EVERY_MS = 1000;
