import type { Contents } from '../bytes/contents.ts';
import type { PresentPiece } from '../content/block-reader.ts';
import type { FileSlice, ReadReply } from '../kernel/binding.ts';

/** A longer hole is several pieces: V8 would count 1 MiB for each thread from its start on (ADR 28). */
const ZEROS = new Uint8Array(128 * 1024);

/**
 * Converts pieces of a content to the binding's form: bytes as they are, file ranges by reference. A file range is leased until the binding
 * has copied it: an eviction in between would make it read as zeros.
 */
export function replyOf(pieces: readonly PresentPiece[], contents: Pick<Contents, 'lease'>): ReadReply {
  const reply: (Uint8Array | FileSlice)[] = [];
  for (const piece of pieces) {
    switch (piece.kind) {
      case 'bytes':
        reply.push(piece.bytes);
        break;
      case 'slice': {
        const { fd, position, length } = piece;
        const lease = contents.lease(piece.content, 'copying');
        reply.push({ fd, position, length, sent: () => lease.release() });
        break;
      }
      case 'zeros':
        for (let left = piece.length; left > 0; left -= ZEROS.byteLength)
          reply.push(ZEROS.subarray(0, Math.min(left, ZEROS.byteLength)));
        break;
      default:
        piece satisfies never;
    }
  }
  return reply;
}
