import { type FileHandle, open } from 'node:fs/promises';
import { StorageError } from '../base/errors.ts';

/**
 * What is read at least for a short piece, for those that follow in the same file. Of the drafts of a database each page is a piece: a call for each of them, with
 * the file opened and closed around it, was ten times what it costs to send them.
 */
const WINDOW_BYTES = 64 * 1024;
/** Longer ones are read by themselves: two of them would not fit. */
const SHORT_BYTES_MAX = WINDOW_BYTES / 2;
/** As many as the pieces of one content come from at once: a draft, the one below it, the version below that. */
const OPEN_MAX = 8;

interface OpenFile {
  readonly handle: FileHandle;
  /** Where short pieces are read into, from the first one on. */
  memory: Buffer | null;
  /** What of it was read last, and where that begins. */
  window: Buffer;
  windowAt: number;
}

const NOTHING = Buffer.alloc(0);

/** The files that the pieces of a body lie in, open while it is sent. What is read of them does not change: frozen drafts, and versions. */
export class PieceFiles {
  /** The one that was read last comes last. */
  readonly #open = new Map<string, OpenFile>();

  /** Fills `target` with what is at hand. @returns whether it was */
  copy(path: string, target: Buffer, position: number): boolean {
    const file = this.#open.get(path);
    if (file === undefined) return false;
    const at = position - file.windowAt;
    if (at < 0 || at + target.byteLength > file.window.byteLength) return false;
    file.window.copy(target, 0, at, at + target.byteLength);
    return true;
  }

  /** Fills `target` from the file. @returns the bytes that are there: less than were asked for at its end @throws StorageError */
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

/** Whatever comes of it: nothing was written. */
async function closed({ handle }: OpenFile): Promise<void> {
  await handle.close().catch(() => {});
}

/** Fills `target`, a read may bring less, or of it at least so many `bytes`. @returns how many: fewer where the file ends */
async function read(handle: FileHandle, target: Buffer, position: number, bytes: number): Promise<number> {
  let filled = 0;
  while (filled < bytes) {
    const { bytesRead } = await handle.read(target, filled, target.byteLength - filled, position + filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return filled;
}
