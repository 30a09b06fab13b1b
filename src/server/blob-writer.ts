import { createHash, type Hash, hash } from 'node:crypto';
import { constants } from 'node:fs';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';

/** Result of a completely written blob. */
export interface FinishedBlob {
  /** Hexadecimal; null for a long blob, which is hashed after the response. */
  readonly sha256: string | null;
  /** The content of a small blob: not yet stored; the caller stores it with the row. */
  readonly bytes: Uint8Array | null;
}

/** Writes a blob sequentially; a small one stays in memory. */
export class BlobWriter {
  readonly #openFile: () => Promise<{ file: FileHandle; path: string }>;
  readonly #closedNow: () => void;
  /** Of a file; null if an earlier request wrote the beginning, or if the blob is so long that it is hashed later. */
  #hash: Hash | null = null;
  /** All bytes so far, while there is no file. */
  #held: Uint8Array[] | null;
  #opened: { readonly file: FileHandle; readonly path: string } | null = null;
  #end: number;
  /** Number of bytes known to be synced. */
  #syncedBytes: number;
  #syncing: Promise<void> | null = null;
  /**
   * The first disk error. Linux reports a failed write-back once per open file (fsync(2)): the next sync of that file
   * succeeds even though the bytes are lost.
   */
  #failure: { readonly error: unknown } | null = null;
  #isClosed = false;

  /**
   * @param options.syncedBytes how many of the first `offset` bytes are known to be synced
   * @param options.closed called once, when the writer is finished
   */
  constructor(options: {
    offset: number;
    syncedBytes: number;
    openFile: () => Promise<{ file: FileHandle; path: string }>;
    closed: () => void;
  }) {
    this.#openFile = options.openFile;
    this.#closedNow = options.closed;
    this.#held = options.offset === 0 ? [] : null;
    this.#end = options.offset;
    this.#syncedBytes = options.syncedBytes;
  }

  /** Length of the blob in bytes. */
  get sizeBytes(): number {
    return this.#end;
  }

  /** Number of bytes known to be synced: after a failure, `close` truncates the file to this length. */
  get syncedBytes(): number {
    return this.#syncedBytes;
  }

  /** Must not be called concurrently. @throws Error also if bytes of an earlier call turn out to be lost */
  async write(chunks: readonly Uint8Array[]): Promise<void> {
    if (this.#failure !== null) throw this.#failure.error;
    const bytes = chunks.reduce((sum, chunk) => sum + chunk.byteLength, 0);
    if (this.#held !== null && this.#end + bytes <= SMALL_BYTES_MAX) this.#held.push(...chunks);
    else await this.#writeAt(await this.#file(), chunks, this.#end);
    this.#end += bytes;
    if (this.#end > HASHED_AT_ONCE_BYTES_MAX) this.#hash = null;
    if (this.#held === null) for (const chunk of chunks) this.#hash?.update(chunk);
    if (this.#held === null && this.#end - this.#syncedBytes >= SYNC_BYTES) this.#syncBehind();
  }

  /** Syncs and closes the file; returns a small blob to the caller. */
  async finish(): Promise<FinishedBlob> {
    const bytes = this.#held === null ? null : Buffer.concat(this.#held);
    if (bytes === null) await this.suspend();
    else await this.close();
    const sha256 = bytes === null ? this.#hash?.digest('hex') : hash('sha256', bytes, 'hex');
    return { sha256: sha256 ?? null, bytes };
  }

  /** Syncs the bytes so far to a file, to be continued later. */
  async suspend(): Promise<void> {
    const file = await this.#file();
    await this.#syncing;
    if (this.#failure !== null) throw this.#failure.error;
    await this.#noted(Promise.all([file.sync(), syncDirectory(dirname(this.#opened?.path as string))]));
    this.#syncedBytes = this.#end;
    await this.close();
  }

  /**
   * Closes without sync. After a failure the file is truncated to its synced length, so that no upload continues after
   * lost bytes.
   */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#closedNow();
    await this.#syncing;
    if (this.#opened === null) return;
    const { file, path } = this.#opened;
    // If even the truncation fails, delete the file: no upload can continue it.
    if (this.#failure !== null) await file.truncate(this.#syncedBytes).catch(() => unlink(path).catch(() => {}));
    await file.close();
  }

  /** The file; bytes held in memory are written to it first. */
  async #file(): Promise<FileHandle> {
    this.#opened ??= await this.#openFile();
    const { file } = this.#opened;
    const held = this.#held;
    this.#held = null;
    if (held === null) return file;
    this.#hash = createHash('sha256');
    for (const chunk of held) this.#hash.update(chunk);
    if (held.length > 0) await this.#writeAt(file, held, 0);
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

  /** Syncs while bytes arrive, so that the final sync is short. */
  #syncBehind(): void {
    if (this.#syncing !== null || this.#opened === null || this.#failure !== null) return;
    const end = this.#end;
    this.#syncing = this.#noted(this.#opened.file.datasync())
      .then(() => {
        this.#syncedBytes = end;
      })
      // The next write, or `suspend`, reports the failure.
      .catch(() => {})
      .finally(() => {
        this.#syncing = null;
      });
  }

  /** Awaits a disk operation and remembers its first failure. */
  async #noted<T>(answer: Promise<T>): Promise<T> {
    try {
      return await answer;
    } catch (error) {
      this.#failure ??= { error };
      throw error;
    }
  }
}

/** Blobs up to this size are stored in the database. */
const SMALL_BYTES_MAX = 16 * 1024;
/** Longer blobs are hashed later: hashing takes a second per gigabyte. */
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

/** Syncs a directory, so that new names in it are durable. */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, constants.O_RDONLY);
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
