import { StorageError } from '../base/errors.ts';
import type { BodyPiece } from '../base/resources.ts';
import { PieceFiles } from './piece-files.ts';

/**
 * What is read from files, and given to the connection, at once; one such chunk is read ahead. Larger ones would let a slow
 * line look silent: the deadline counts from chunk to chunk.
 */
const CHUNK_BYTES = 512 * 1024;
/**
 * Read into in turns: with a new one for every chunk, a third of an upload's CPU is the collection of garbage. One is being
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
 * The pieces of a body as one stream of exactly their length, in chunks that are as long as can be, however short the pieces are: of a file
 * that is written here and there, a database, there are as many as it has pages. Files are read as the connection takes them, never whole.
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
      const files = new PieceFiles();
      const filled = new ChunkFilling(pieces, files);
      let next = filled.next();
      try {
        for (let chunk = await next; chunk !== null; chunk = await next) {
          // While this chunk goes out the next comes in.
          next = filled.next();
          next.catch(() => {}); // heard when its turn comes
          counted += chunk.byteLength;
          sent(chunk.byteLength);
          yield chunk;
        }
      } finally {
        // Also where the connection broke: files must not be closed under a read.
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

/** Chunks that are filled from the pieces, one after the other. */
class ChunkFilling {
  readonly #pieces: readonly BodyPiece[];
  readonly #files: PieceFiles;
  readonly #buffers: Buffer[] = [];
  #bytesLeft: number;
  /** The piece that comes next, and how much of it went into the chunk before. */
  #index = 0;
  #at = 0;

  constructor(pieces: readonly BodyPiece[], files: PieceFiles) {
    this.#pieces = pieces;
    this.#files = files;
    this.#bytesLeft = bodyLength(pieces);
  }

  /** All but the last are full. One at a time. @returns null after the last one @throws StorageError */
  async next(): Promise<Uint8Array | null> {
    const bytes = Math.min(CHUNK_BYTES, this.#bytesLeft);
    if (bytes === 0) return null;
    const chunk = this.#buffer(bytes).subarray(0, bytes);
    for (let filled = 0; filled < bytes; ) {
      const piece = this.#pieces[this.#index] as BodyPiece;
      const length = Math.min(lengthOf(piece) - this.#at, bytes - filled);
      const target = chunk.subarray(filled, filled + length);
      // Nothing is waited for where the bytes are at hand: a promise for each of thousands would cost more than they do.
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
