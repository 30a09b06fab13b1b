import { createHash, type Hash, randomBytes } from 'node:crypto';
import { constants, createReadStream } from 'node:fs';
import { type FileHandle, link, mkdir, open, readdir, stat, truncate, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';

/**
 * The bytes of versions: one file per version, under a random name that only the database knows.
 *
 * Order: first the bytes (written, synced, their directory too), then the database's row. So a row never names bytes that are
 * not there; a crash in between leaves a file that no row names, which `sweep` collects. Complete blobs never change, which is
 * why a copy of a file is a hard link.
 */
export class Blobs {
  readonly #directory: string;
  readonly #known = new Set<string>();
  #writers = 0;

  constructor(deps: { directory: string }) {
    this.#directory = deps.directory;
  }

  /** A name that no blob has. */
  newName(): string {
    return randomBytes(16).toString('hex');
  }

  /** A new blob, or with `offset` more of one that is already there; what lies behind `offset` is cut off. */
  async write(name: string, offset: number): Promise<BlobWriter> {
    const path = await this.#writablePath(name);
    const flags = offset === 0 ? constants.O_RDWR | constants.O_CREAT | constants.O_TRUNC : constants.O_RDWR;
    const file = await open(path, flags, 0o600);
    if (offset > 0) await file.truncate(offset);
    this.#writers += 1;
    return new BlobWriter(file, path, offset, () => {
      this.#writers -= 1;
    });
  }

  /** Whether anything is being written right now. */
  get isWriting(): boolean {
    return this.#writers > 0;
  }

  /** Bytes `[start, end)` of a blob, as a stream. */
  read(name: string, start: number, end: number): Readable {
    return createReadStream(this.pathOf(name), { start, end: end - 1, highWaterMark: READ_BYTES });
  }

  async copy(from: string, to: string): Promise<void> {
    const path = await this.#writablePath(to);
    await link(this.pathOf(from), path);
    await syncDirectory(dirname(path));
  }

  /** Length in bytes; null where there is no such blob. */
  async sizeBytes(name: string): Promise<number | null> {
    try {
      return (await stat(this.pathOf(name))).size;
    } catch {
      return null;
    }
  }

  /** @param yields waited for between two pieces, for work that is not urgent */
  async sha256(name: string, yields: () => Promise<void> = async () => {}): Promise<string> {
    const hash = createHash('sha256');
    for await (const chunk of createReadStream(this.pathOf(name), { highWaterMark: READ_BYTES })) {
      hash.update(chunk);
      await yields();
    }
    return hash.digest('hex');
  }

  async truncate(name: string, sizeBytes: number): Promise<void> {
    await truncate(this.pathOf(name), sizeBytes);
  }

  /** Gone already is fine. */
  async remove(names: readonly string[]): Promise<void> {
    for (const name of names) await unlink(this.pathOf(name)).catch(() => {});
  }

  /** All blobs, in no order. */
  async *names(): AsyncGenerator<string> {
    for (const folder of await readdir(this.#directory).catch(() => [])) {
      for (const name of await readdir(join(this.#directory, folder))) yield name;
    }
  }

  /** Where a blob lies, for those who read files only. */
  pathOf(name: string): string {
    return join(this.#directory, name.slice(0, 2), name);
  }

  async #writablePath(name: string): Promise<string> {
    const path = this.pathOf(name);
    const folder = dirname(path);
    if (!this.#known.has(folder)) {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      await syncDirectory(this.#directory);
      this.#known.add(folder);
    }
    return path;
  }
}

/** What a download asks of the disk at once. */
const READ_BYTES = 512 * 1024;

/** A blob being written, from the front to the end. */
export class BlobWriter {
  readonly #file: FileHandle;
  readonly #path: string;
  readonly #closedNow: () => void;
  /** Null when the front was written earlier, or once there is so much that it is hashed later. */
  #hash: Hash | null;
  #end: number;
  #syncedEnd: number;
  #syncing: Promise<void> | null = null;
  #closed = false;

  /** @param closed called once, when the writer is done */
  constructor(file: FileHandle, path: string, offset: number, closed: () => void) {
    this.#file = file;
    this.#path = path;
    this.#closedNow = closed;
    this.#hash = offset === 0 ? createHash('sha256') : null;
    this.#end = offset;
    this.#syncedEnd = offset;
  }

  /** Bytes that the blob holds. */
  get sizeBytes(): number {
    return this.#end;
  }

  /** One call at a time. */
  async write(chunks: readonly Uint8Array[]): Promise<void> {
    let start = this.#end;
    let rest: readonly Uint8Array[] = chunks;
    while (rest.length > 0) {
      const { bytesWritten } = await this.#file.writev(rest, start);
      start += bytesWritten;
      rest = skip(rest, bytesWritten);
    }
    this.#end = start;
    if (start > HASHED_AT_ONCE_BYTES_MAX) this.#hash = null;
    for (const chunk of chunks) this.#hash?.update(chunk);
    if (start - this.#syncedEnd >= SYNC_BYTES) this.#syncBehind();
  }

  /**
   * Puts what was written on the disk and closes.
   * @returns SHA-256 of the whole blob; null for a long one, which is read again for it when the sender has his answer
   */
  async finish(): Promise<string | null> {
    await this.suspend();
    return this.#hash?.digest('hex') ?? null;
  }

  /** As far as it came: on the disk, to be continued. */
  async suspend(): Promise<void> {
    await this.#syncing;
    await this.#file.sync();
    await this.close();
    await syncDirectory(dirname(this.#path));
  }

  /** Without any promise about the disk. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#closedNow();
    await this.#syncing;
    await this.#file.close();
  }

  /** Brings the disk along while bytes arrive, so that the end has not everything to wait for. */
  #syncBehind(): void {
    if (this.#syncing !== null) return;
    this.#syncedEnd = this.#end;
    // A failure comes back from the sync at the end.
    const done = (): void => {
      this.#syncing = null;
    };
    this.#syncing = this.#file.datasync().then(done, done);
  }
}

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

async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, constants.O_RDONLY);
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
