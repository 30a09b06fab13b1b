import type { PresentPiece } from '../content/block-reader.ts';
import type { FileSlice, ReadReply } from '../kernel/binding.ts';

const ZEROS = new Uint8Array(1024 * 1024);

/** Pieces of a content in the form the kernel binding sends: bytes as they are, file ranges without touching them. */
export function replyOf(pieces: readonly PresentPiece[]): ReadReply {
  const reply: (Uint8Array | FileSlice)[] = [];
  for (const piece of pieces) {
    switch (piece.kind) {
      case 'bytes':
        reply.push(piece.bytes);
        break;
      case 'slice':
        reply.push({ fd: piece.fd, position: piece.position, length: piece.length });
        break;
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
