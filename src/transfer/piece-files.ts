import { type FileHandle, open } from 'node:fs/promises';
import { StorageError } from '../base/errors.ts';

/**
 * Minimum read for a short piece; the following pieces of the file are taken from the same read. In a database's draft each page is a piece.
 * To open, read and close the file for each of them took ten times as long as sending them.
 */
const WINDOW_BYTES = 64 * 1024;
/** Longer pieces get a read of their own: two of them would not fit into the window. */
const SHORT_BYTES_MAX = WINDOW_BYTES / 2;
/** Files that one content may need in parallel: a draft, the draft below it, the version below that. */
const OPEN_MAX = 8;

interface OpenFile {
  readonly handle: FileHandle;
  /** The buffer for short pieces, allocated for the first one. */
  memory: Buffer | null;
  /** The part of the buffer that the last read filled, and its offset in the file. */
  window: Buffer;
  windowAt: number;
}

const NOTHING = Buffer.alloc(0);

/** The open files from which the pieces of a body are read. Their bytes do not change: they belong to frozen drafts and to versions. */
export class PieceFiles {
  /** Least recently read first. */
  readonly #open = new Map<string, OpenFile>();

  /** Fills `target` from the window. @returns whether the window had the bytes */
  copy(path: string, target: Buffer, position: number): boolean {
    const file = this.#open.get(path);
    if (file === undefined) return false;
    const at = position - file.windowAt;
    if (at < 0 || at + target.byteLength > file.window.byteLength) return false;
    file.window.copy(target, 0, at, at + target.byteLength);
    return true;
  }

  /** Fills `target` from the file. @returns the number of bytes read: fewer at the end of the file @throws StorageError */
  async read(path: string, target: Buffer, position: number): Promise<number> {
    try {
      const file = this.#open.get(path) ?? (await this.#opened(path));
      this.#open.delete(path);
      this.#open.set(path, file);
      const bytes = target.byteLength;
      if (bytes > SHORT_BYTES_MAX) return await read(file.handle, target, position, bytes);
      file.memory ??= Buffer.allocUnsafeSlow(WINDOW_BYTES);
      file.window = NOTHING;
      file.window = file.memory.subarray(0, await read(file.handle, file.memory, position, bytes));
      file.windowAt = position;
      return file.window.copy(target);
    } catch (error) {
      throw new StorageError(`${path}: cannot be read`, { cause: error });
    }
  }

  async close(): Promise<void> {
    await Promise.all([...this.#open.values()].map(closed));
    this.#open.clear();
  }

  async #opened(path: string): Promise<OpenFile> {
    const [first] = this.#open;
    if (first !== undefined && this.#open.size >= OPEN_MAX) {
      this.#open.delete(first[0]);
      await closed(first[1]);
    }
    return { handle: await open(path, 'r'), memory: null, window: NOTHING, windowAt: 0 };
  }
}

/** Errors are ignored: the file was only read. */
async function closed({ handle }: OpenFile): Promise<void> {
  await handle.close().catch(() => {});
}

/** Fills `target`, or at least `bytes` of it, with several reads if necessary. @returns the number of bytes: fewer at the end of the file */
async function read(handle: FileHandle, target: Buffer, position: number, bytes: number): Promise<number> {
  let filled = 0;
  while (filled < bytes) {
    const { bytesRead } = await handle.read(target, filled, target.byteLength - filled, position + filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return filled;
}
