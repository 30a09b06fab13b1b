import { StorageError } from '../base/errors.ts';
import type { BodyPiece } from '../base/resources.ts';
import { PieceFiles } from './piece-files.ts';

/**
 * Size of a read from a file, and of a chunk for the connection. One chunk is read ahead. The silence limit counts from chunk to chunk, so
 * that larger chunks would let a slow connection look silent.
 */
const CHUNK_BYTES = 512 * 1024;
/**
 * Buffers that are reused in turn. With a new buffer for each chunk, garbage collection took a third of an upload's CPU time. One buffer is
 * being read into, one is being sent, and the connection may still hold part of the one before (64 KiB at most, see `chunks`).
 */
const BUFFERS = 3;

/** A body of known length that can be read again from its beginning (`RequestBody` of the transport). */
export interface UploadBody {
  readonly length: number;
  /** A chunk is valid until the second call after it. To keep it longer, copy it. */
  chunks(): AsyncIterable<Uint8Array>;
}

/**
 * The pieces of a body as one stream of exactly their total length, in chunks of full size even for short pieces: a draft of a database has a
 * piece for each page. Files are read as the connection takes the bytes, never whole.
 *
 * `sent` is called with the length of each chunk when it is taken, and with a negative number when the body restarts. If a file is too short
 * or unreadable, reading throws StorageError. The request then breaks off, so that it never looks complete.
 */
export function uploadBody(pieces: readonly BodyPiece[], sent: (bytes: number) => void): UploadBody {
  let counted = 0;
  return {
    length: bodyLength(pieces),
    chunks: async function* () {
      // The body restarts from its beginning, for instance after a renewed token: the chunks counted so far did not arrive.
      if (counted > 0) sent(-counted);
      counted = 0;
      const files = new PieceFiles();
      const filled = new ChunkFilling(pieces, files);
      let next = filled.next();
      try {
        for (let chunk = await next; chunk !== null; chunk = await next) {
          // The next chunk is read while this one is sent.
          next = filled.next();
          next.catch(() => {}); // heard when its turn comes
          counted += chunk.byteLength;
          sent(chunk.byteLength);
          yield chunk;
        }
      } finally {
        // Also after a broken connection: files must not be closed during a read.
        await next.catch(() => {});
        await files.close();
      }
    },
  };
}

export function bodyLength(pieces: readonly BodyPiece[]): number {
  return pieces.reduce((sum, piece) => sum + lengthOf(piece), 0);
}

function lengthOf(piece: BodyPiece): number {
  return piece.kind === 'bytes' ? piece.bytes.byteLength : piece.length;
}

/** Fills chunks from the pieces in sequence. */
class ChunkFilling {
  readonly #pieces: readonly BodyPiece[];
  readonly #files: PieceFiles;
  readonly #buffers: Buffer[] = [];
  #bytesLeft: number;
  /** The next piece, and its offset that follows the previous chunk. */
  #index = 0;
  #at = 0;

  constructor(pieces: readonly BodyPiece[], files: PieceFiles) {
    this.#pieces = pieces;
    this.#files = files;
    this.#bytesLeft = bodyLength(pieces);
  }

  /** The next chunk; all but the last are full. One call at a time. @returns null after the last chunk @throws StorageError */
  async next(): Promise<Uint8Array | null> {
    const bytes = Math.min(CHUNK_BYTES, this.#bytesLeft);
    if (bytes === 0) return null;
    const chunk = this.#buffer(bytes).subarray(0, bytes);
    for (let filled = 0; filled < bytes; ) {
      const piece = this.#pieces[this.#index] as BodyPiece;
      const length = Math.min(lengthOf(piece) - this.#at, bytes - filled);
      const target = chunk.subarray(filled, filled + length);
      // No await if the bytes are in the window: a promise for each of thousands of pieces would cost more than the copies.
      if (length > 0 && !this.#copy(piece, target)) await this.#read(piece, target);
      filled += length;
      this.#at += length;
      if (this.#at === lengthOf(piece)) {
        this.#index++;
        this.#at = 0;
      }
    }
    this.#bytesLeft -= bytes;
    return chunk;
  }

  #copy(piece: BodyPiece, target: Buffer): boolean {
    switch (piece.kind) {
      case 'bytes':
        target.set(piece.bytes.subarray(this.#at, this.#at + target.byteLength));
        return true;
      case 'zeros':
        target.fill(0);
        return true;
      case 'file':
        return this.#files.copy(piece.path, target, piece.offset + this.#at);
      default:
        return piece satisfies never;
    }
  }

  async #read(piece: BodyPiece, target: Buffer): Promise<void> {
    if (piece.kind !== 'file') return;
    const bytesRead = await this.#files.read(piece.path, target, piece.offset + this.#at);
    if (bytesRead === target.byteLength) return;
    const missing = piece.length - this.#at - bytesRead;
    throw new StorageError(`${piece.path}: is ${missing} bytes shorter than announced`);
  }

  #buffer(bytes: number): Buffer {
    const buffer = this.#buffers.length < BUFFERS ? Buffer.allocUnsafeSlow(bytes) : (this.#buffers.shift() as Buffer);
    this.#buffers.push(buffer);
    return buffer;
  }
}
