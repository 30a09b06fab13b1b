import { type FileHandle, open } from 'node:fs/promises';

/** Size of one disk read of a download. */
const READ_BYTES = 512 * 1024;
/** Spare buffers for eight concurrent downloads: one being sent and one being filled for each. */
const SPARE_MAX = 16;
/**
 * Limit of readers with large buffers: each slow reader holds two for any length of time, and there may be a thousand
 * readers.
 */
const LARGE_READERS_MAX = 16;
const CROWDED_READ_BYTES = 64 * 1024;

/**
 * Reads files into recycled buffers. A new buffer for each read is garbage outside V8's heap, and each 64 MiB of it
 * trigger a full mark of the heap: a third of the cost of a download.
 */
export class BlobReader {
  readonly #spare: Buffer[] = [];
  #readers = 0;

  /**
   * Bytes `[start, end)` of a file, at least one, with read-ahead of one chunk. A chunk is valid until the next one is
   * requested or the iteration ends: send it before.
   *
   * @throws Error also if the file ends early
   */
  async *read(path: string, start: number, end: number): AsyncGenerator<Uint8Array, void, undefined> {
    const file = await open(path, 'r');
    const isLarge = this.#readers < LARGE_READERS_MAX;
    this.#readers++;
    const first = this.#take(isLarge);
    const buffers = [first];
    let reading = readInto(first, file, start, end);
    try {
      for (let at = start, turn = 1; ; turn++) {
        const piece = await reading;
        at += piece.byteLength;
        if (at < end) {
          buffers[turn % 2] ??= this.#take(isLarge);
          reading = readInto(buffers[turn % 2] as Buffer, file, at, end);
        }
        // The caller of the next chunk gets the failure.
        reading.catch(() => {});
        yield piece;
        if (at >= end) return;
      }
    } finally {
      // The reader left early: wait for the pending read before the file is closed and the buffer reused.
      await reading.catch(() => {});
      this.#readers--;
      for (const buffer of buffers) if (isLarge && this.#spare.length < SPARE_MAX) this.#spare.push(buffer);
      await file.close();
    }
  }

  #take(isLarge: boolean): Buffer {
    if (!isLarge) return Buffer.allocUnsafeSlow(CROWDED_READ_BYTES);
    return this.#spare.pop() ?? Buffer.allocUnsafeSlow(READ_BYTES);
  }
}

async function readInto(buffer: Buffer, file: FileHandle, at: number, end: number): Promise<Uint8Array> {
  const { bytesRead } = await file.read(buffer, 0, Math.min(buffer.byteLength, end - at), at);
  if (bytesRead === 0) throw new Error(`a file ends at ${at}, before ${end}`);
  return buffer.subarray(0, bytesRead);
}
