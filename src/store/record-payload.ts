import { StorageError } from '../base/errors.ts';
import type { Row } from './overlay.ts';
import { decodeValue } from './record-codec.ts';
import { decodeKey } from './row-key.ts';

/**
 * The payload of a journal record: the sequence of its rows.
 *
 *     length of the key u16 · length of the value u32 (REMOVED: the row is removed) · key · value
 */

const ROW_HEADER_BYTES = 6;
const REMOVED = 0xffff_ffff;

export function encodedRowsBytes(rows: readonly Row[]): number {
  let bytes = 0;
  for (const row of rows) bytes += ROW_HEADER_BYTES + row.keyBytes.byteLength + (row.valueBytes?.byteLength ?? 0);
  return bytes;
}

export function encodeRows(rows: readonly Row[], target: Buffer): void {
  let at = 0;
  for (const { keyBytes, valueBytes } of rows) {
    target.writeUInt16LE(keyBytes.byteLength, at);
    target.writeUInt32LE(valueBytes?.byteLength ?? REMOVED, at + 2);
    at += ROW_HEADER_BYTES;
    target.set(keyBytes, at);
    at += keyBytes.byteLength;
    if (valueBytes === null) continue;
    target.set(valueBytes, at);
    at += valueBytes.byteLength;
  }
}

/** A recorded row, not decoded; `valueBytes` null: removed. */
export interface RawRow {
  readonly keyBytes: Buffer;
  readonly valueBytes: Buffer | null;
}

/** The rows of a payload, not decoded, as views of it. */
export function* rawRows(payload: Buffer): Generator<RawRow> {
  for (let at = 0; at < payload.byteLength; ) {
    if (at + ROW_HEADER_BYTES > payload.byteLength) throw new StorageError('a journal record ends within a row');
    const keyBytes = payload.subarray(at + ROW_HEADER_BYTES, at + ROW_HEADER_BYTES + payload.readUInt16LE(at));
    const valueLength = payload.readUInt32LE(at + 2);
    at += ROW_HEADER_BYTES + keyBytes.byteLength;
    if (valueLength === REMOVED) {
      yield { keyBytes, valueBytes: null };
      continue;
    }
    yield { keyBytes, valueBytes: payload.subarray(at, at + valueLength) };
    at += valueLength;
  }
}

/** The rows of a payload, decoded. They keep views of it. */
export function decodeRows(payload: Buffer, sequence: number): Row[] {
  const rows: Row[] = [];
  for (const { keyBytes, valueBytes } of rawRows(payload)) {
    const { table, key } = decodeKey(keyBytes);
    const value = valueBytes === null ? undefined : decodeValue(table, key, keyBytes, valueBytes);
    rows.push({ table, key, keyBytes, value, valueBytes, sequence });
  }
  return rows;
}
