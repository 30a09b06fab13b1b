import { type FileHandle, open } from 'node:fs/promises';

/** What a download asks of the disk at once. */
const READ_BYTES = 512 * 1024;
/** Buffers that wait to be filled again: for eight downloads at once, one being sent and one being filled for each. */
const SPARE_MAX = 16;
/** So many at once read in large pieces: a reader who is slow holds two of them for as long as he likes, and there may be a thousand. */
const LARGE_READERS_MAX = 16;
const CROWDED_READ_BYTES = 64 * 1024;

/**
 * Reads files into buffers that go round. A new one for each read would be garbage a moment later, outside of V8's heap, and each 64 MiB
 * of that make V8 mark the whole heap: a third of what a download cost.
 */
export class BlobReader {
  readonly #spare: Buffer[] = [];
  #readers = 0;

  /**
   * Bytes `[start, end)` of a file, at least one, the next piece read while one is used. A piece is good until the next is asked for, or the end:
   * by then it has to have been sent.
   *
   * @throws Error also for a file that ends early
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
        // Its failure is for the one who asks for the next piece.
        reading.catch(() => {});
        yield piece;
        if (at >= end) return;
      }
    } finally {
      // Left early: neither file nor buffer may go under a read.
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
