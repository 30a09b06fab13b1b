import { readSync } from 'node:fs';
import { FsError } from '../base/errors.ts';
import type { FileSlice, ReadReply } from './binding.ts';

/** The bytes of a reply in one piece, slices of files read: for bindings that cannot do better. @throws FsError EIO */
export function bytesOf(reply: ReadReply): Buffer {
  const pieces = Array.isArray(reply) ? reply : [reply as Exclude<ReadReply, readonly unknown[]>];
  try {
    return Buffer.concat(pieces.map((piece) => (piece instanceof Uint8Array ? piece : bytesOfSlice(piece))));
  } finally {
    for (const piece of pieces) if (!(piece instanceof Uint8Array)) piece.sent?.();
  }
}

function bytesOfSlice(slice: FileSlice): Buffer {
  const bytes = Buffer.alloc(slice.length);
  for (let have = 0; have < slice.length; ) {
    const count = readSync(slice.fd, bytes, have, slice.length - have, slice.position + have);
    if (count === 0) throw new FsError('EIO', 'a file slice reaches past the end of its file');
    have += count;
  }
  return bytes;
}
