import { constants } from 'node:fs';
import { type FileHandle, mkdir, open } from 'node:fs/promises';
import { join } from 'node:path';
import { systemCodeOf } from '../../base/errors.ts';
import { withPath } from '../../mount/failure.ts';

const FOLDER = constants.O_RDONLY | constants.O_DIRECTORY;

interface OpenFolder {
  /** Path below the root. */
  readonly folder: string;
  readonly handle: FileHandle;
}

/**
 * The folders below a root by short paths, at any depth: each is opened in its parent (/proc/self/fd, proc(5)), so that no path is
 * longer than PATH_MAX. The last used folder stays open, and folders below it are opened from there.
 */
export class DeepFolders {
  readonly #root: string;
  readonly #missing: 'make' | 'refuse';
  #last: OpenFolder | null = null;

  /** @param missing what to do about missing folders below the root */
  constructor(root: string, missing: 'make' | 'refuse') {
    this.#root = root;
    this.#missing = missing;
  }

  /**
   * Calls `act` with a short path of `folder` ('' and '.' are the root). The path is valid until `act` ends. One call at a time.
   *
   * @throws system errors, with the full path
   */
  async in<T>(folder: string, act: (path: string) => Promise<T>): Promise<T> {
    try {
      return await act(await this.#opened(folder === '.' ? '' : folder));
    } catch (error) {
      throw shown(error, join(this.#root, folder));
    }
  }

  async close(): Promise<void> {
    const last = this.#last;
    this.#last = null;
    await last?.handle.close();
  }

  async #opened(folder: string): Promise<string> {
    let at: OpenFolder | null = this.#last;
    if (at === null || (at.folder !== '' && !`${folder}/`.startsWith(`${at.folder}/`))) {
      await this.close();
      at = { folder: '', handle: await open(this.#root, FOLDER) };
      this.#last = at;
    }
    for (const name of folder.slice(at.folder.length).split('/')) {
      if (name === '') continue;
      const parent: OpenFolder = at;
      const child = await this.#child(join(pathOf(parent.handle), name));
      at = { folder: parent.folder === '' ? name : `${parent.folder}/${name}`, handle: child };
      this.#last = at;
      await parent.handle.close();
    }
    return pathOf(at.handle);
  }

  async #child(path: string): Promise<FileHandle> {
    try {
      return await open(path, FOLDER | constants.O_NOFOLLOW);
    } catch (error) {
      if (this.#missing === 'refuse' || systemCodeOf(error) !== 'ENOENT') throw error;
      await mkdir(path);
      return open(path, FOLDER | constants.O_NOFOLLOW);
    }
  }
}

function pathOf({ fd }: FileHandle): string {
  return `/proc/self/fd/${fd}`;
}

/** Messages need the full path, not a descriptor number. */
function shown(error: unknown, path: string): unknown {
  if (error instanceof Error) error.message = error.message.replace(/\/proc\/self\/fd\/\d+\/?/, '');
  return withPath(error, path);
}
