import { readSync } from 'node:fs';
import { FsError } from '../base/errors.ts';
import type { ReadReply } from './binding.ts';

/** The bytes of a reply in one piece, slices of files read: for bindings that cannot do better. @throws FsError EIO */
export function bytesOf(reply: ReadReply): Buffer {
  const pieces = Array.isArray(reply) ? reply : [reply as Exclude<ReadReply, readonly unknown[]>];
  return Buffer.concat(
    pieces.map((piece) => {
      if (piece instanceof Uint8Array) return piece;
      const bytes = Buffer.alloc(piece.length);
      for (let have = 0; have < piece.length; ) {
        const count = readSync(piece.fd, bytes, have, piece.length - have, piece.position + have);
        if (count === 0) throw new FsError('EIO', 'a file slice reaches past the end of its file');
        have += count;
      }
      piece.sent?.();
      return bytes;
    }),
  );
}
