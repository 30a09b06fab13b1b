import type { RootDatabase } from 'lmdb';
import { StorageError } from '../base/errors.ts';
import { openRow, sealRow } from './checked-row.ts';
import { encodeKey } from './row-key.ts';

/**
 * Sequence number of the last journal record that LMDB holds: u64 big endian, in a checked row. Before layout 3 it had no checksum.
 * Written in the same transaction as the record's rows.
 */
export const APPLIED_KEY = encodeKey('meta', 'applied');

const COUNT_BYTES = 8;

export function encodeApplied(count: number): Buffer {
  const bytes = Buffer.alloc(COUNT_BYTES);
  bytes.writeBigUInt64BE(BigInt(count));
  return sealRow(APPLIED_KEY, bytes);
}

/** 0 for a new database. @throws StorageError for a damaged row: it is unknown then which journal records are still to be applied */
export function readApplied(database: Pick<RootDatabase<Buffer, Buffer>, 'getBinary'>): number {
  const stored = database.getBinary(APPLIED_KEY);
  if (stored === undefined) return 0;
  const bytes = stored.byteLength === COUNT_BYTES ? stored : openRow(APPLIED_KEY, stored);
  if (bytes?.byteLength !== COUNT_BYTES) throw new StorageError('the index of the store is damaged');
  return Number(Buffer.from(bytes).readBigUInt64BE());
}
