import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { crc32 } from 'node:zlib';
import type { RootDatabase } from 'lmdb';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import { sealRow } from './checked-row.ts';
import { APPLIED_KEY, encodeApplied, readApplied } from './checkpoint.ts';
import type { Disk } from './disk.ts';
import { endOfLayout3, intentOfLayout3 } from './intents-of-layout-3.ts';
import { Journal } from './journal.ts';
import { endOfLayout4 } from './local-of-layout-4.ts';
import { decodeValue, encodeValue } from './record-codec.ts';
import { type RawRow, rawRows } from './record-payload.ts';
import { behindKey, behindPrefix, encodeKey, encodePrefix } from './row-key.ts';
import { SCHEMA_VERSION } from './schema-version.ts';
import type { TableName } from './tables.ts';

/** One step from a layout to the next: `row` converts each row of `table` (null: of all tables). */
interface Step {
  readonly from: number;
  readonly table: TableName | null;
  readonly row: (key: Buffer, value: Buffer) => Uint8Array;
  /** Further changes of the step, in the transaction that completes it. */
  readonly end?: (database: RootDatabase<Buffer, Buffer>) => void;
}

/** One step for each layout that was ever released, oldest first. */
const STEPS: readonly Step[] = [
  // 2: small contents have a checksum, as blocks of content files do.
  { from: 1, table: 'inline', row: (_key, bytes) => inlineOfLayout2(bytes) },
  // 3: every row has a checksum.
  { from: 2, table: null, row: checkedRow },
  // 4: intents have an identity, an owner and a phase (`intents-of-layout-3`).
  { from: 3, table: 'intent', row: intentOfLayout3, end: endOfLayout3 },
  // 5: table `local` lists what stays on this machine. It was not there before.
  { from: 4, table: 'local', row: (_key, value) => value, end: endOfLayout4 },
];

const ROWS_AT_ONCE = 500;
const INLINE_CHECKSUM_BYTES = 4;
const APPLIED_BYTES_OF_LAYOUT_2 = 8;
const INLINE_BYTE = encodePrefix('inline')[0];
const SCHEMA_KEY = encodeKey('meta', 'schema');
/** During a step: the layout that it starts from, and the last key that it converted. */
const MIGRATING_KEY = encodeKey('meta', 'migrating');

/** The layout according to LMDB; undefined for an empty database. */
export function storedSchema(database: RootDatabase<Buffer, Buffer>): number | undefined {
  const schema = read(database, SCHEMA_KEY, 'schema');
  return typeof schema === 'number' ? schema : undefined;
}

/**
 * Migrates an older store to the current layout, before any row is decoded. First, the rows of the journal are transferred to LMDB
 * unchanged, so that the steps find all rows in LMDB. Each batch of a step is one LMDB transaction that also records its progress, so
 * the next start continues after a kill. From the first batch on, older programs refuse the store.
 */
export async function migrate(deps: {
  readonly database: RootDatabase<Buffer, Buffer>;
  readonly directory: string;
  readonly segmentBytes: number;
  readonly disk: Disk;
  readonly clock: Clock;
  readonly log: Logger;
}): Promise<void> {
  const { database, log } = deps;
  const underWay = String(read(database, MIGRATING_KEY, 'migrating') ?? '');
  const stored = storedSchema(database);
  if (stored === SCHEMA_VERSION && underWay === '') return;
  if (stored === undefined && !existsSync(join(deps.directory, 'journal'))) return; // a new store
  let schema = stored ?? 0;
  if (underWay === '') schema = await transferJournal(deps, stored);
  const [left = '', after = ''] = underWay.split(':');
  let next = underWay === '' ? schema : Number(left);
  if (next === 0 || next >= SCHEMA_VERSION) return;
  log.info({ from: next, to: SCHEMA_VERSION }, 'the store is migrated to the current layout');
  let from = underWay === '' ? null : Buffer.from(after, 'hex');
  for (; next < SCHEMA_VERSION; next++) {
    for (const step of STEPS) if (step.from === next) rewrite(database, step, from);
    from = null;
  }
  await database.flushed;
}

/** Transfers the journal to LMDB: its rows have the old layout. @returns the layout; 0 for a new store */
async function transferJournal(deps: Parameters<typeof migrate>[0], stored: number | undefined): Promise<number> {
  const { database, directory, segmentBytes, disk, clock, log } = deps;
  const applied = readApplied(database);
  const rows: RawRow[] = [];
  let last = applied;
  const options = { directory: join(directory, 'journal'), segmentBytes, disk, log, clock };
  const journal = await Journal.open(options, applied, ({ sequence, payload }) => {
    for (const row of rawRows(Buffer.from(payload))) rows.push(row);
    last = sequence;
  });
  try {
    const recorded = rows.findLast(({ keyBytes }) => keyBytes.equals(SCHEMA_KEY))?.valueBytes;
    const schema = recorded == null ? stored : Number(decodeValue('meta', 'schema', SCHEMA_KEY, recorded));
    if (schema === undefined || schema >= SCHEMA_VERSION || rows.length === 0) return schema ?? 0;
    // Synchronous: during the start nothing else runs, and no other thread holds LMDB's lock.
    database.transactionSync(() => {
      for (const { keyBytes, valueBytes } of rows) {
        if (valueBytes === null) database.removeSync(keyBytes);
        else database.putSync(keyBytes, valueBytes);
      }
      database.putSync(APPLIED_KEY, encodeApplied(last));
    });
    await database.flushed;
    journal.release(last);
    return schema;
  } finally {
    await journal.close();
  }
}

/** @param after the last key that an earlier start converted; null for none */
function rewrite(database: RootDatabase<Buffer, Buffer>, step: Step, after: Buffer | null): void {
  const { from: left, table, row } = step;
  const prefix = table === null ? Buffer.of(0) : encodePrefix(table);
  const end = table === null ? Buffer.of(0xff) : behindPrefix(prefix);
  let start = after === null ? prefix : behindKey(after);
  for (let isOver = false; !isOver; ) {
    const rows = [...database.getRange({ start, end, limit: ROWS_AT_ONCE })];
    isOver = rows.length < ROWS_AT_ONCE;
    database.transactionSync(() => {
      for (const { key, value } of rows) database.putSync(key, Buffer.from(row(key, value)));
      database.putSync(SCHEMA_KEY, Buffer.from(encodeValue('meta', 'schema', SCHEMA_KEY, left + 1)));
      const last = rows.at(-1)?.key;
      if (isOver) step.end?.(database);
      if (isOver) database.removeSync(MIGRATING_KEY);
      else if (last !== undefined) database.putSync(MIGRATING_KEY, markOf(`${left}:${last.toString('hex')}`));
    });
    const last = rows.at(-1)?.key;
    if (last !== undefined) start = behindKey(last);
  }
}

function markOf(progress: string): Buffer {
  return Buffer.from(encodeValue('meta', 'migrating', MIGRATING_KEY, progress));
}

/** crc32 of the bytes u32 little endian, then the bytes. */
function inlineOfLayout2(bytes: Uint8Array): Buffer {
  const row = Buffer.allocUnsafe(INLINE_CHECKSUM_BYTES + bytes.byteLength);
  row.writeUInt32LE(crc32(bytes), 0);
  row.set(bytes, INLINE_CHECKSUM_BYTES);
  return row;
}

/** Converts a row of layout 2 to layout 3. A damaged row stays damaged. */
function checkedRow(key: Buffer, value: Buffer): Buffer {
  if (key.equals(SCHEMA_KEY) || key.equals(MIGRATING_KEY)) return value;
  if (key.equals(APPLIED_KEY)) return value.byteLength === APPLIED_BYTES_OF_LAYOUT_2 ? sealRow(key, value) : value;
  if (key[0] !== INLINE_BYTE) return sealRow(key, value);
  const bytes = value.subarray(INLINE_CHECKSUM_BYTES);
  const row = sealRow(key, bytes);
  const isSound = value.byteLength >= INLINE_CHECKSUM_BYTES && crc32(bytes) === value.readUInt32LE(0);
  if (!isSound) row.writeUInt8(row.readUInt8(row.byteLength - 1) ^ 0xff, row.byteLength - 1);
  return row;
}

function read(database: RootDatabase<Buffer, Buffer>, key: Buffer, name: string): string | number | undefined {
  const value = database.getBinary(key);
  return value === undefined ? undefined : decodeValue('meta', name, key, value);
}
