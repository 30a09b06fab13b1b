import { open } from 'node:fs/promises';
import { StorageError } from '../base/errors.ts';
import type { BodyPiece } from '../base/resources.ts';

/**
 * What is read from a file, and given to the connection, at once; one such piece is read ahead. Larger ones would let a slow
 * line look silent: the deadline counts from piece to piece.
 */
const READ_BYTES = 512 * 1024;
/**
 * Read into in turns: with a new one for every piece, a third of an upload's CPU is the collection of garbage. One is being
 * read into, one goes out, and of the one before the connection may still hold what it queues (64 KiB at most, see `chunks`).
 */
const BUFFERS = 3;

/** A body of known length that can be read again from its beginning (`RequestBody` of the transport). */
export interface UploadBody {
  readonly length: number;
  /** A chunk holds its bytes until two more were asked for: whoever keeps it longer copies it. */
  chunks(): AsyncIterable<Uint8Array>;
}

/**
 * The pieces of a body as one stream of exactly their length. Files are read as the connection takes them, never whole.
 *
 * `sent` hears of every chunk as it is taken, and of a negative number when all begins again. Reading throws StorageError for a file that is shorter than promised or cannot
 * be read: the request then breaks off, and never ends early as if it were complete.
 */
export function uploadBody(pieces: readonly BodyPiece[], sent: (bytes: number) => void): UploadBody {
  let counted = 0;
  return {
    length: bodyLength(pieces),
    chunks: async function* () {
      // Sent from its beginning again, as after a renewed token: what was counted before did not arrive.
      if (counted > 0) sent(-counted);
      counted = 0;
      for (const piece of pieces) {
        for await (const chunk of chunksOf(piece)) {
          counted += chunk.byteLength;
          sent(chunk.byteLength);
          yield chunk;
        }
      }
    },
  };
}

export function bodyLength(pieces: readonly BodyPiece[]): number {
  return pieces.reduce((sum, piece) => sum + (piece.kind === 'bytes' ? piece.bytes.byteLength : piece.length), 0);
}

async function* chunksOf(piece: BodyPiece): AsyncGenerator<Uint8Array, void, undefined> {
  switch (piece.kind) {
    case 'bytes':
      if (piece.bytes.byteLength > 0) yield piece.bytes;
      return;
    case 'zeros': {
      const zeros = new Uint8Array(Math.min(READ_BYTES, piece.length));
      for (let left = piece.length; left > 0; left -= zeros.byteLength) yield zeros.subarray(0, left);
      return;
    }
    case 'file':
      yield* fileChunks(piece.path, piece.offset, piece.length);
      return;
    default:
      piece satisfies never;
  }
}

async function* fileChunks(path: string, offset: number, length: number): AsyncGenerator<Uint8Array, void, undefined> {
  if (length === 0) return;
  const file = await asStorageError(path, () => open(path, 'r'));
  let buffers: Buffer[] = [];
  const read = (at: number) => {
    const bytes = Math.min(READ_BYTES, length - at);
    const used = buffers.length === BUFFERS ? buffers.shift() : undefined;
    const buffer = used ?? Buffer.allocUnsafeSlow(bytes);
    buffers.push(buffer);
    const reading = asStorageError(path, () => file.read(buffer, 0, bytes, offset + at));
    reading.catch(() => {}); // heard when its turn comes
    return reading;
  };
  let reading = read(0);
  try {
    for (let at = 0; at < length; ) {
      const { bytesRead, buffer } = await reading;
      if (bytesRead === 0) throw new StorageError(`${path}: ends ${length - at} bytes before what was promised`);
      at += bytesRead;
      // Three short pieces fit into the connection's queue: these are not read into again.
      if (bytesRead < READ_BYTES) buffers = [];
      // While this piece goes out the next comes in.
      if (at < length) reading = read(at);
      yield bytesRead === buffer.byteLength ? buffer : buffer.subarray(0, bytesRead);
    }
  } finally {
    // Also where the connection broke: the file must not be closed under a read.
    await reading.catch(() => {});
    await file.close();
  }
}

async function asStorageError<T>(path: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    throw new StorageError(`${path}: cannot be read`, { cause: error });
  }
}
