import { createHash, randomUUID } from 'node:crypto';
import { constants, createReadStream, type Stats } from 'node:fs';
import { link, mkdir, open, readdir, stat, truncate, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { BlobReader } from './blob-reader.ts';
import { BlobWriter, syncDirectory } from './blob-writer.ts';
import type { Database } from './database.ts';

/**
 * The bytes of versions. Small blobs are stored in the database beside their row: most files are small, and three syncs
 * for each would dominate the work. Every other blob is a file under a random name that only the database knows.
 *
 * Order: first the bytes (written, synced, and the directory too), then the database row; small blobs with the row. So
 * a row never names missing bytes. A crash in between leaves a file without a row, which `sweepBlobs` collects.
 * Complete blobs never change, so a copy of a file is a hard link where the file system supports them.
 */
export class Blobs {
  readonly #directory: string;
  readonly #database: Database;
  readonly #reader = new BlobReader();
  /** Directories whose names are known to be synced. */
  readonly #known = new Set<string>();
  /** Whether the name of their parent directory is known to be synced. */
  #isNamed = false;
  #writers = 0;

  constructor(deps: { directory: string; database: Database }) {
    this.#directory = deps.directory;
    this.#database = deps.database;
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

  /** Bytes `[start, end)` of a blob. A chunk is valid until the next one is requested. */
  read(name: string, start: number, end: number): AsyncIterable<Uint8Array> | Iterable<Uint8Array> {
    const small = this.small(name);
    return small !== null ? [small.subarray(start, end)] : this.#reader.read(this.#pathOf(name), start, end);
  }

  /** A second name for a blob that is a file. */
  async link(from: string, to: string): Promise<void> {
    const path = await this.#writablePath(to);
    await link(this.#pathOf(from), path);
    await syncDirectory(dirname(path));
  }

  /**
   * Length in bytes; null if there is no such blob. @throws Error if the disk fails: an existing blob must not be
   * started anew
   */
  async sizeBytes(name: string): Promise<number | null> {
    const small = this.small(name);
    if (small !== null) return small.byteLength;
    return (await this.#stats(name))?.size ?? null;
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
    for await (const chunk of createReadStream(this.#pathOf(name), { highWaterMark: READ_BYTES })) {
      hash.update(chunk);
      await yields();
    }
    return hash.digest('hex');
  }

  async truncate(name: string, sizeBytes: number): Promise<void> {
    await truncate(this.#pathOf(name), sizeBytes);
  }

  /** Removes files; missing ones are ignored. Small blobs are deleted with their rows. */
  async remove(names: readonly string[]): Promise<void> {
    for (const name of names) await unlink(this.#pathOf(name)).catch(() => {});
  }

  /** All blobs that are files, in no order. */
  async *names(): AsyncGenerator<string> {
    for (const folder of await readdir(this.#directory).catch(() => [])) {
      for (const name of await readdir(join(this.#directory, folder))) yield name;
    }
  }

  /** The path of a file or the bytes of a small blob, for callers with their own reader. */
  async source(name: string): Promise<string | Uint8Array> {
    return this.small(name) ?? this.#pathOf(name);
  }

  #pathOf(name: string): string {
    return join(this.#directory, name.slice(0, 2), name);
  }

  async #stats(name: string): Promise<Stats | null> {
    try {
      return await stat(this.#pathOf(name));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
      throw error;
    }
  }

  async #writablePath(name: string): Promise<string> {
    const path = this.#pathOf(name);
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

/** Size of one disk read while hashing. */
const READ_BYTES = 512 * 1024;
