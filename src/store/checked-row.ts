import { crc32 } from 'node:zlib';

/**
 * A row as journal and LMDB keep it: its value, then the crc32 of key and value, u32 little endian. A bit that flips on the disk
 * makes a row that is damaged, never one that says something else; nor can a row be taken for that of another key.
 */

const CHECKSUM_BYTES = 4;

export function sealRow(keyBytes: Uint8Array, value: Uint8Array): Buffer {
  const length = value.byteLength;
  const row = Buffer.allocUnsafe(length + CHECKSUM_BYTES);
  row.set(value);
  row.writeUInt32LE(crc32(value, crc32(keyBytes)), length);
  return row;
}

/** The value, a view of the row; null: the row is damaged. */
export function openRow(keyBytes: Uint8Array, row: Uint8Array): Uint8Array | null {
  const length = row.byteLength - CHECKSUM_BYTES;
  if (length < 0) return null;
  const value = row.subarray(0, length);
  const view = new DataView(row.buffer, row.byteOffset + length, CHECKSUM_BYTES);
  return crc32(value, crc32(keyBytes)) === view.getUint32(0, true) ? value : null;
}
