import { readSync } from 'node:fs';
import { FsError } from '../base/errors.ts';
import type { FileSlice, ReadReply } from './binding.ts';

/** The bytes of a reply in one buffer, with file slices read: for bindings that cannot gather. @throws FsError EIO */
export function bytesOf(reply: ReadReply): Buffer {
  const pieces = Array.isArray(reply) ? reply : [reply as Exclude<ReadReply, readonly unknown[]>];
  try {
    // Every byte is written below, or nothing is returned.
    const bytes = Buffer.allocUnsafe(pieces.reduce((total, piece) => total + piece.length, 0));
    const stretches = new Map<number, Stretch>();
    let at = 0;
    for (const piece of pieces) {
      const target = bytes.subarray(at, at + piece.length);
      if (piece instanceof Uint8Array) target.set(piece);
      else if (pieces.length === 1) readAt(piece, target);
      else copySlice(piece, target, stretches, bytes.byteLength - at);
      at += piece.length;
    }
    return bytes;
  } finally {
    for (const piece of pieces) if (!(piece instanceof Uint8Array)) piece.sent?.();
  }
}

/** A range that was read from a file. */
interface Stretch {
  readonly position: number;
  readonly bytes: Buffer;
}

/**
 * A reply may take thousands of slices from one file, interleaved with another one. The whole stretch is read in one call: one call per slice
 * would take many times as long.
 */
function copySlice(slice: FileSlice, target: Buffer, stretches: Map<number, Stretch>, reachBytes: number): void {
  const { fd, position, length } = slice;
  let stretch = stretches.get(fd);
  if (stretch === undefined || position < stretch.position || position + length > endOf(stretch)) {
    const bytes = Buffer.allocUnsafe(reachBytes);
    stretch = { position, bytes: bytes.subarray(0, readAt(slice, bytes)) };
    stretches.set(fd, stretch);
  }
  stretch.bytes.copy(target, 0, position - stretch.position, position - stretch.position + length);
}

function endOf({ position, bytes }: Stretch): number {
  return position + bytes.byteLength;
}

/** Reads a slice, and what follows it in the file if `target` is longer. @returns the number of bytes. @throws FsError EIO */
function readAt({ fd, position, length }: FileSlice, target: Uint8Array): number {
  let have = 0;
  while (have < length) {
    const count = readSync(fd, target, have, target.byteLength - have, position + have);
    if (count === 0) throw new FsError('EIO', 'a file slice reaches past the end of its file');
    have += count;
  }
  return have;
}
