import { createHash, randomBytes } from 'node:crypto';
import { constants, createReadStream, type Stats } from 'node:fs';
import { link, mkdir, open, readdir, stat, truncate, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { BlobReader } from './blob-reader.ts';
import { BlobWriter, syncDirectory } from './blob-writer.ts';
import type { Database } from './database.ts';

/**
 * The bytes of versions. Small ones lie in the database, beside their row: most files are small, and three syncs for each
 * of them would be most of the work. Each other one is a file under a random name that only the database knows.
 *
 * Order: first the bytes (written, synced, their directory too), then the database's row; small ones with the row. So a row
 * never names bytes that are not there; a crash in between leaves a file that no row names, which `sweepBlobs` collects.
 * Complete blobs never change, which is why a copy of a file is a hard link, where the disk has those.
 */
export class Blobs {
  readonly #directory: string;
  readonly #database: Database;
  readonly #reader = new BlobReader();
  /** Folders whose names are certainly on the disk. */
  readonly #known = new Set<string>();
  /** Whether that of the folder of those is. */
  #isNamed = false;
  #writers = 0;

  constructor(deps: { directory: string; database: Database }) {
    this.#directory = deps.directory;
    this.#database = deps.database;
  }

  /** A name that no blob has. */
  newName(): string {
    return randomBytes(16).toString('hex');
  }

  /**
   * A new blob, or with `offset` more of one that is a file already; what lies behind `offset` is cut off.
   * @param syncedBytes how much of that was certainly on the disk when it was last written to
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

  /** Whether anything is being written right now. */
  get isWriting(): boolean {
    return this.#writers > 0;
  }

  /** The bytes of a small blob; null for one that is a file, or none. */
  small(name: string): Uint8Array | null {
    return this.#database.smallBlobs.get(name) ?? null;
  }

  /** Bytes `[start, end)` of a blob. A piece is good until the next is asked for. */
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

  /** Length in bytes; null where there is no such blob. @throws Error where the disk does not tell: what is there must not be begun anew */
  async sizeBytes(name: string): Promise<number | null> {
    const small = this.small(name);
    if (small !== null) return small.byteLength;
    return (await this.#stats(name))?.size ?? null;
  }

  /** When a blob that is a file was last written to, or got a name; null where there is no such file. */
  async changedMs(name: string): Promise<number | null> {
    return (await this.#stats(name))?.ctimeMs ?? null;
  }

  /** @param yields waited for between two pieces, for work that is not urgent */
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

  /** Removes files; gone already is fine. Small blobs go with their rows. */
  async remove(names: readonly string[]): Promise<void> {
    for (const name of names) await unlink(this.#pathOf(name)).catch(() => {});
  }

  /** All blobs that are files, in no order. */
  async *names(): AsyncGenerator<string> {
    for (const folder of await readdir(this.#directory).catch(() => [])) {
      for (const name of await readdir(join(this.#directory, folder))) yield name;
    }
  }

  /** The path of a file, or the bytes, for those who read a blob in their own way. */
  source(name: string): string | Uint8Array {
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

/** What hashing asks of the disk at once. */
const READ_BYTES = 512 * 1024;
