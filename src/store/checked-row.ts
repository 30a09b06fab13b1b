import { crc32 } from 'node:zlib';

/**
 * A row in the journal and in LMDB: its value, then the crc32 of key and value, u32 little endian. The checksum detects a bit that
 * flipped on the disk, and a row that is stored under another key.
 */

const CHECKSUM_BYTES = 4;

export function sealRow(keyBytes: Uint8Array, value: Uint8Array): Buffer {
  const length = value.byteLength;
  const row = Buffer.allocUnsafe(length + CHECKSUM_BYTES);
  row.set(value);
  row.writeUInt32LE(crc32(value, crc32(keyBytes)), length);
  return row;
}

/** @returns the value, as a view of the row; null if the row is damaged */
export function openRow(keyBytes: Uint8Array, row: Uint8Array): Uint8Array | null {
  const length = row.byteLength - CHECKSUM_BYTES;
  if (length < 0) return null;
  const value = row.subarray(0, length);
  const view = new DataView(row.buffer, row.byteOffset + length, CHECKSUM_BYTES);
  return crc32(value, crc32(keyBytes)) === view.getUint32(0, true) ? value : null;
}
