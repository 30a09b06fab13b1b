import { crc32 } from 'node:zlib';

/**
 * The bytes of one journal file.
 *
 *     header  magic u32 · format u32 · salt u32 · crc32 of the header u32 · sequence number of the first record u64 · 0 u64
 *     record  length of the payload u32 · crc32 u32 · sequence number u64 · payload
 *
 * All little endian. The checksum of a record is seeded with the salt of its file and covers length, number and payload. Old data in
 * reused disk blocks is therefore never taken for a record. A length of 0 ends the records of the file.
 */

export const HEADER_BYTES = 32;
export const RECORD_HEADER_BYTES = 16;
const MAGIC = 0x4a534643; // "CFSJ"
const FORMAT = 1;

export interface SegmentHeader {
  readonly salt: number;
  readonly firstSequence: number;
}

export interface JournalRecord {
  readonly sequence: number;
  /** A view into the buffer of the file. */
  readonly payload: Uint8Array;
}

export function encodeHeader(header: SegmentHeader): Uint8Array {
  const bytes = Buffer.alloc(HEADER_BYTES);
  bytes.writeUInt32LE(MAGIC, 0);
  bytes.writeUInt32LE(FORMAT, 4);
  bytes.writeUInt32LE(header.salt, 8);
  writeUint64(bytes, header.firstSequence, 16);
  bytes.writeUInt32LE(crc32(bytes), 12);
  return bytes;
}

/** Null for a file without a header: it was only allocated, or the header did not reach the disk. */
export function decodeHeader(bytes: Uint8Array): SegmentHeader | null {
  if (bytes.byteLength < HEADER_BYTES) return null;
  const header = Buffer.from(bytes.subarray(0, HEADER_BYTES));
  if (header.readUInt32LE(0) !== MAGIC || header.readUInt32LE(4) !== FORMAT) return null;
  const crc = header.readUInt32LE(12);
  header.writeUInt32LE(0, 12);
  if (crc32(header) !== crc) return null;
  return { salt: header.readUInt32LE(8), firstSequence: readUint64(header, 16) };
}

/** Writes the header of a record; `record` has its payload from RECORD_HEADER_BYTES on. */
export function sealRecord(record: Buffer, salt: number, sequence: number): void {
  record.writeUInt32LE(record.byteLength - RECORD_HEADER_BYTES, 0);
  writeUint64(record, sequence, 8);
  record.writeUInt32LE(checksum(record, salt), 4);
}

/** The records of a file in order, up to the first that is incomplete or out of sequence. */
export function* recordsOf(file: Buffer, header: SegmentHeader): Generator<JournalRecord> {
  let sequence = header.firstSequence;
  let at = HEADER_BYTES;
  while (at + RECORD_HEADER_BYTES <= file.byteLength) {
    const length = file.readUInt32LE(at);
    const end = at + RECORD_HEADER_BYTES + length;
    if (length === 0 || end > file.byteLength) return;
    const record = file.subarray(at, end);
    if (readUint64(record, 8) !== sequence || record.readUInt32LE(4) !== checksum(record, header.salt)) return;
    yield { sequence, payload: record.subarray(RECORD_HEADER_BYTES) };
    sequence++;
    at = end;
  }
}

/** Whether there are other bytes at `at` than the zeros of the allocation. */
export function isWrittenAt(file: Buffer, at: number): boolean {
  return file.subarray(at, at + RECORD_HEADER_BYTES).some((byte) => byte !== 0);
}

function checksum(record: Buffer, salt: number): number {
  return crc32(record.subarray(8), crc32(record.subarray(0, 4), salt));
}

function writeUint64(target: Buffer, value: number, at: number): void {
  target.writeUInt32LE(value >>> 0, at);
  target.writeUInt32LE(Math.floor(value / 0x1_0000_0000), at + 4);
}

function readUint64(source: Buffer, at: number): number {
  return source.readUInt32LE(at) + source.readUInt32LE(at + 4) * 0x1_0000_0000;
}
