import { createHash, randomUUID } from 'node:crypto';
import { constants, createReadStream, type Stats } from 'node:fs';
import { link, mkdir, open, readdir, stat, truncate, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { StorageError, systemCodeOf } from '../base/errors.ts';
import { BlobReader } from './blob-reader.ts';
import { BlobWriter, syncDirectory } from './blob-writer.ts';
import type { Database } from './database.ts';
import { type ObjectBytes, type ObjectStore, StoreError } from './object-store.ts';
import { Refusal } from './refusal.ts';
import type { StoredBlobRow } from './rows.ts';

/**
 * The bytes of versions. Small blobs are stored in the database beside their row: most files are small, and three syncs
 * for each would dominate the work. Every other blob is a file under a random name that only the database knows.
 *
 * Order: first the bytes (written, synced, and the directory too), then the database row; small blobs with the row. So
 * a row never names missing bytes. A crash in between leaves a file without a row, which `sweepBlobs` collects.
 * Complete blobs never change, so a copy of a file is a hard link where the file system supports them.
 *
 * With an object store, complete files are moved there after the response (`object-mover.ts`). INVARIANT: the file is
 * removed after the row that says that the blob is in the store; so a missing file is looked for in that table again.
 */
export class Blobs {
  readonly #directory: string;
  readonly #database: Database;
  readonly #store: ObjectStore | null;
  readonly #reader = new BlobReader();
  /** Directories whose names are known to be synced. */
  readonly #known = new Set<string>();
  /** Whether the name of their parent directory is known to be synced. */
  #isNamed = false;
  #writers = 0;

  constructor(deps: { directory: string; database: Database; store?: ObjectStore | null }) {
    this.#directory = deps.directory;
    this.#database = deps.database;
    this.#store = deps.store ?? null;
  }

  /** An unused blob name. */
  newName(): string {
    return randomUUID().replaceAll('-', '');
  }

  /**
   * Writes a new blob, or continues an existing file at `offset`, which truncates the bytes after it.
   * @param syncedBytes how many of the existing bytes are known to be synced
   */
  write(name: string, offset: number, syncedBytes = 0): BlobWriter {
    this.#writers += 1;
    return new BlobWriter({
      offset,
      syncedBytes,
      openFile: async () => {
        const path = await this.#writablePath(name);
        const flags = offset === 0 ? constants.O_CREAT | constants.O_TRUNC : 0;
        const file = await open(path, constants.O_RDWR | flags, 0o600);
        try {
          if (offset > 0) await file.truncate(offset);
        } catch (error) {
          await file.close();
          throw error;
        }
        return { file, path };
      },
      closed: () => {
        this.#writers -= 1;
      },
    });
  }

  /** Whether a write is in progress. */
  get isWriting(): boolean {
    return this.#writers > 0;
  }

  /** The bytes of a small blob; null for one that is a file, or none. */
  small(name: string): Uint8Array | null {
    return this.#database.smallBlobs.get(name) ?? null;
  }

  /** Whether the blob is in the object store. */
  isStored(name: string): boolean {
    return this.#database.objects.stored(name) !== null;
  }

  /**
   * Bytes `[start, end)` of a blob. A chunk is valid until the next one is requested.
   * @throws Refusal 503 if the object store does not answer
   */
  read(name: string, start: number, end: number): BlobBytes | Promise<ObjectBytes> {
    const small = this.small(name);
    if (small !== null) return [small.subarray(start, end)];
    const stored = this.#database.objects.stored(name);
    if (stored !== null) return this.#readStored(stored, start, end);
    if (this.#store === null) return this.#reader.read(this.pathOf(name), start, end);
    return this.#readFileOrStored(name, start, end);
  }

  /** A file, or the object if the file was moved before it was opened. */
  async *#readFileOrStored(name: string, start: number, end: number): AsyncGenerator<Uint8Array, void, undefined> {
    let stored: StoredBlobRow | null = null;
    try {
      yield* this.#reader.read(this.pathOf(name), start, end);
    } catch (error) {
      stored = systemCodeOf(error) === 'ENOENT' ? this.#database.objects.stored(name) : null;
      if (stored === null) throw error;
    }
    if (stored !== null) yield* await this.#readStored(stored, start, end);
  }

  async #readStored(row: StoredBlobRow, start: number, end: number): Promise<ObjectBytes> {
    if (this.#store === null)
      throw new StorageError('the data are in an object store: start cfs serve with the same --objects as before');
    try {
      return await this.#store.read(row, start, end);
    } catch (error) {
      if (!(error instanceof StoreError && error.isPassing)) throw error;
      throw new Refusal(503, 'The object store does not answer', { 'Retry-After': '5' }, { cause: error });
    }
  }

  /** A second name for a blob that is a file. */
  async link(from: string, to: string): Promise<void> {
    const path = await this.#writablePath(to);
    await link(this.pathOf(from), path);
    await syncDirectory(dirname(path));
  }

  /**
   * Length in bytes; null if there is no such blob. @throws Error if the disk fails: an existing blob must not be
   * started anew
   */
  async sizeBytes(name: string): Promise<number | null> {
    const small = this.small(name);
    if (small !== null) return small.byteLength;
    const { objects } = this.#database;
    return (
      objects.stored(name)?.sizeBytes ?? (await this.#stats(name))?.size ?? objects.stored(name)?.sizeBytes ?? null
    );
  }

  /** Time of the last write to a file, or of a new name for it; null if there is no such file. */
  async changedMs(name: string): Promise<number | null> {
    return (await this.#stats(name))?.ctimeMs ?? null;
  }

  /** @param yields awaited between two chunks, for work that is not urgent */
  async sha256(name: string, yields: () => Promise<void> = async () => {}): Promise<string> {
    const hash = createHash('sha256');
    const small = this.small(name);
    if (small !== null) return hash.update(small).digest('hex');
    const stored = this.#database.objects.stored(name);
    const chunks =
      stored === null
        ? createReadStream(this.pathOf(name), { highWaterMark: READ_BYTES })
        : await this.#readStored(stored, 0, stored.sizeBytes);
    for await (const chunk of chunks) {
      hash.update(chunk);
      await yields();
    }
    return hash.digest('hex');
  }

  async truncate(name: string, sizeBytes: number): Promise<void> {
    await truncate(this.pathOf(name), sizeBytes);
  }

  /** Removes files; missing ones are ignored. Small blobs, and those in the object store, are deleted with their rows. */
  async remove(names: readonly string[]): Promise<void> {
    for (const name of names) await unlink(this.pathOf(name)).catch(() => {});
  }

  /** All blobs that are files, in no order. */
  async *names(): AsyncGenerator<string> {
    for (const folder of await readdir(this.#directory).catch(() => [])) {
      for (const name of await readdir(join(this.#directory, folder))) yield name;
    }
  }

  /**
   * The path of a file, or bytes, for callers with their own reader. Of an object at most the first `bytesMax` bytes.
   */
  async source(name: string, bytesMax: number): Promise<string | Uint8Array> {
    const stored = this.#database.objects.stored(name);
    if (stored === null) return this.small(name) ?? this.pathOf(name);
    const chunks: Uint8Array[] = [];
    for await (const chunk of await this.#readStored(stored, 0, Math.min(bytesMax, stored.sizeBytes)))
      chunks.push(Buffer.from(chunk));
    return Buffer.concat(chunks);
  }

  /** Where the file of a blob is, if it is one. */
  pathOf(name: string): string {
    return join(this.#directory, name.slice(0, 2), name);
  }

  async #stats(name: string): Promise<Stats | null> {
    try {
      return await stat(this.pathOf(name));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
      throw error;
    }
  }

  async #writablePath(name: string): Promise<string> {
    const path = this.pathOf(name);
    const folder = dirname(path);
    if (!this.#known.has(folder)) {
      await mkdir(folder, { recursive: true, mode: 0o700 });
      await syncDirectory(this.#directory);
      if (!this.#isNamed) await syncDirectory(dirname(this.#directory));
      this.#isNamed = true;
      this.#known.add(folder);
    }
    return path;
  }
}

/** A chunk is valid until the next one is requested. */
export type BlobBytes = AsyncGenerator<Uint8Array, void, undefined> | readonly Uint8Array[];

/** Size of one disk read while hashing. */
const READ_BYTES = 512 * 1024;
