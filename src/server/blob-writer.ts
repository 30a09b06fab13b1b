import { createHash, type Hash } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';

/** What became of a blob that was written to its end. */
export interface FinishedBlob {
  /** Hexadecimal; null for a long one, which is read again for it when the sender has his answer. */
  readonly sha256: string | null;
  /** Of a small one: it is nowhere yet, and has to be kept with its row. */
  readonly bytes: Uint8Array | null;
}

/** A blob being written, from the front to the end; in memory as long as it is small. */
export class BlobWriter {
  readonly #openFile: () => Promise<{ file: FileHandle; path: string }>;
  readonly #closedNow: () => void;
  /** Null when the front was written earlier, or once there is so much that it is hashed later. */
  #hash: Hash | null;
  /** Everything so far, while there is no file. */
  #held: Uint8Array[] | null;
  #opened: { readonly file: FileHandle; readonly path: string } | null = null;
  #end: number;
  /** Bytes that are certainly on the disk. */
  #syncedBytes: number;
  #syncing: Promise<void> | null = null;
  /**
   * What went wrong first on the disk. Linux tells of bytes that it could not write once per open file (fsync(2)): the next sync of the
   * same one succeeds, as if they were there.
   */
  #failure: { readonly error: unknown } | null = null;
  #isClosed = false;

  /**
   * @param options.syncedBytes how many of the first `offset` bytes are certainly on the disk
   * @param options.closed called once, when the writer is done
   */
  constructor(options: {
    offset: number;
    syncedBytes: number;
    openFile: () => Promise<{ file: FileHandle; path: string }>;
    closed: () => void;
  }) {
    this.#openFile = options.openFile;
    this.#closedNow = options.closed;
    this.#hash = options.offset === 0 ? createHash('sha256') : null;
    this.#held = options.offset === 0 ? [] : null;
    this.#end = options.offset;
    this.#syncedBytes = options.syncedBytes;
  }

  /** Bytes that the blob holds. */
  get sizeBytes(): number {
    return this.#end;
  }

  /** Those of them that are certainly on the disk: all that are left once a failed writer is closed. */
  get syncedBytes(): number {
    return this.#syncedBytes;
  }

  /** One call at a time. @throws Error also when bytes of an earlier call turn out to be lost */
  async write(chunks: readonly Uint8Array[]): Promise<void> {
    if (this.#failure !== null) throw this.#failure.error;
    const bytes = chunks.reduce((sum, chunk) => sum + chunk.byteLength, 0);
    if (this.#held !== null && this.#end + bytes <= SMALL_BYTES_MAX) this.#held.push(...chunks);
    else await this.#writeAt(await this.#file(), chunks, this.#end);
    this.#end += bytes;
    if (this.#end > HASHED_AT_ONCE_BYTES_MAX) this.#hash = null;
    for (const chunk of chunks) this.#hash?.update(chunk);
    if (this.#held === null && this.#end - this.#syncedBytes >= SYNC_BYTES) this.#syncBehind();
  }

  /** Puts a file on the disk and closes it; leaves a small blob to the caller. */
  async finish(): Promise<FinishedBlob> {
    const bytes = this.#held === null ? null : Buffer.concat(this.#held);
    if (bytes === null) await this.suspend();
    else await this.close();
    return { sha256: this.#hash?.digest('hex') ?? null, bytes };
  }

  /** As far as it came: on the disk, as a file, to be continued. */
  async suspend(): Promise<void> {
    const file = await this.#file();
    await this.#syncing;
    if (this.#failure !== null) throw this.#failure.error;
    await this.#noted(Promise.all([file.sync(), syncDirectory(dirname(this.#opened?.path as string))]));
    this.#syncedBytes = this.#end;
    await this.close();
  }

  /** Without any promise about the disk; but what it failed to take is cut off, so that nobody goes on behind it. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#closedNow();
    await this.#syncing;
    if (this.#opened === null) return;
    const { file, path } = this.#opened;
    // On a disk that takes not even that nobody can go on at all.
    if (this.#failure !== null) await file.truncate(this.#syncedBytes).catch(() => unlink(path).catch(() => {}));
    await file.close();
  }

  /** The file; what was held in memory goes there first. */
  async #file(): Promise<FileHandle> {
    this.#opened ??= await this.#openFile();
    const { file } = this.#opened;
    const held = this.#held;
    this.#held = null;
    if (held !== null && held.length > 0) await this.#writeAt(file, held, 0);
    return file;
  }

  async #writeAt(file: FileHandle, chunks: readonly Uint8Array[], start: number): Promise<void> {
    let at = start;
    for (let rest = chunks; rest.length > 0; ) {
      const { bytesWritten } = await this.#noted(file.writev(rest, at));
      at += bytesWritten;
      rest = skip(rest, bytesWritten);
    }
  }

  /** Brings the disk along while bytes arrive, so that the end has not everything to wait for. */
  #syncBehind(): void {
    if (this.#syncing !== null || this.#opened === null || this.#failure !== null) return;
    const end = this.#end;
    this.#syncing = this.#noted(this.#opened.file.datasync())
      .then(() => {
        this.#syncedBytes = end;
      })
      // Told by the next write, or by `suspend`.
      .catch(() => {})
      .finally(() => {
        this.#syncing = null;
      });
  }

  /** What the disk answers; that it failed is not forgotten. */
  async #noted<T>(answer: Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      this.#failure ??= { error };
      throw error;
    }
  }
}

/** Up to here a blob lies in the database. */
const SMALL_BYTES_MAX = 16 * 1024;
/** A second of hashing per gigabyte is not to be waited for. */
const HASHED_AT_ONCE_BYTES_MAX = 16 * 1024 * 1024;
const SYNC_BYTES = 32 * 1024 * 1024;

/** `chunks` without their first `bytes` bytes. */
function skip(chunks: readonly Uint8Array[], bytes: number): Uint8Array[] {
  let left = bytes;
  return chunks.flatMap((chunk) => {
    const cut = Math.min(left, chunk.byteLength);
    left -= cut;
    return cut === chunk.byteLength ? [] : [chunk.subarray(cut)];
  });
}

/** Makes new names in a directory last. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, constants.O_RDONLY);
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
