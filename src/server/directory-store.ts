import { randomUUID } from 'node:crypto';
import { constants, createReadStream } from 'node:fs';
import { copyFile, mkdir, open, readFile, rename, stat, unlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { systemCodeOf } from '../base/errors.ts';
import { syncDirectory } from './blob-writer.ts';
import {
  type HashedBytes,
  type HashedFile,
  type ObjectBytes,
  type ObjectStore,
  type StoredObject,
  StoreError,
} from './object-store.ts';

/** Objects as files of a directory, which several servers may share. */
export class DirectoryStore implements ObjectStore {
  readonly name: string;
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
    this.name = directory;
  }

  async put(key: string, content: HashedBytes | HashedFile): Promise<string> {
    const path = await this.#newPath(key);
    const partial = `${path}.partial`;
    await this.#stored(async () => {
      if ('path' in content) await copyFile(content.path, partial, constants.COPYFILE_EXCL);
      else await writeFile(partial, content.bytes, { flag: 'wx', mode: 0o600 });
      await this.#place(partial, path);
    });
    return content.sha256;
  }

  async read({ key, sizeBytes }: StoredObject, start: number, end: number): Promise<ObjectBytes> {
    const path = join(this.#directory, key);
    // An object that was replaced or cut is an error, never other bytes.
    const found = await stat(path).catch((error: unknown) => {
      throw new StoreError(`${path} cannot be read`, { isPassing: false, cause: error });
    });
    if (found.size !== sizeBytes) throw new StoreError(`${path} has ${found.size} bytes`, { isPassing: false });
    const stream = createReadStream(path, { start, end: end - 1, highWaterMark: READ_BYTES });
    return stream[Symbol.asyncIterator]() as ObjectBytes;
  }

  async remove(key: string): Promise<void> {
    for (const path of [join(this.#directory, key), join(this.#directory, `${key}.partial`)]) {
      try {
        await unlink(path);
      } catch (error) {
        if (systemCodeOf(error) !== 'ENOENT')
          throw new StoreError(`${path} cannot be removed`, { isPassing: true, cause: error });
      }
    }
  }

  async readText(key: string): Promise<string | null> {
    try {
      return await readFile(join(this.#directory, key), 'utf8');
    } catch (error) {
      if (systemCodeOf(error) === 'ENOENT') return null;
      throw new StoreError(`${this.name} cannot be read`, { isPassing: false, cause: error });
    }
  }

  async writeText(key: string, text: string): Promise<void> {
    const path = await this.#newPath(key);
    // Servers that start together write the same text.
    const partial = `${path}.${randomUUID()}.partial`;
    await this.#stored(async () => {
      await writeFile(partial, text, { mode: 0o600 });
      await this.#place(partial, path);
    });
  }

  async close(): Promise<void> {}

  /** Synced, then under its name. */
  async #place(partial: string, path: string): Promise<void> {
    const file = await open(partial, 'r+');
    try {
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(partial, path);
    await syncDirectory(dirname(path));
  }

  async #newPath(key: string): Promise<string> {
    const path = join(this.#directory, key);
    const made = await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    if (made !== undefined) await syncDirectory(this.#directory);
    return path;
  }

  async #stored(action: () => Promise<void>): Promise<void> {
    try {
      await action();
    } catch (error) {
      // A full disk is the caller's to report.
      if (['ENOSPC', 'EDQUOT'].includes(systemCodeOf(error) ?? '')) throw error;
      throw new StoreError(`${this.name} cannot be written`, { isPassing: true, cause: error });
    }
  }
}

const READ_BYTES = 256 * 1024;
