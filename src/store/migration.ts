import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { RootDatabase } from 'lmdb';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { Disk } from './disk.ts';
import { Journal } from './journal.ts';
import { decodeValue, encodeValue, withChecksum } from './record-codec.ts';
import { type RawRow, rawRows } from './record-payload.ts';
import { behindKey, behindPrefix, encodeKey, encodePrefix } from './row-key.ts';
import type { TableName } from './tables.ts';

/** One step from a layout to the next: how each row of a table is written from then on. */
interface Step {
  readonly from: number;
  readonly table: TableName;
  readonly row: (value: Uint8Array) => Uint8Array;
}

/** The chain: one step for each layout that was ever released, oldest first. */
const STEPS: readonly Step[] = [
  // 2: small contents carry a checksum, as blocks of content files do.
  { from: 1, table: 'inline', row: withChecksum },
];

/** Layout of what is stored (`record-codec`, `row-key`, block maps). A change of it needs a step above. */
export const SCHEMA_VERSION = 2;

const ROWS_AT_ONCE = 500;
const SCHEMA_KEY = encodeKey('meta', 'schema');
/** While a step is under way: the layout that it leaves, and the key up to which it came. */
const MIGRATING_KEY = encodeKey('meta', 'migrating');

/** The layout that LMDB names; undefined for an empty one. */
export function storedSchema(database: RootDatabase<Buffer, Buffer>): number | undefined {
  const schema = read(database, SCHEMA_KEY, 'schema');
  return typeof schema === 'number' ? schema : undefined;
}

/**
 * Brings an older store to the present layout, before anything of it is understood. The journal is taken over first, row by row
 * as it is: what comes after it is written in one layout only. Each batch of a step is one LMDB transaction that also says how
 * far it came, so a start that was killed is gone on with by the next; from the first batch on older programs refuse the store.
 */
export async function migrate(deps: {
  readonly database: RootDatabase<Buffer, Buffer>;
  readonly directory: string;
  readonly appliedKey: Buffer;
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
  if (underWay === '') schema = await takeOverJournal(deps, stored);
  const [left = '', after = ''] = underWay.split(':');
  let next = underWay === '' ? schema : Number(left);
  if (next === 0 || next >= SCHEMA_VERSION) return;
  log.info({ from: next, to: SCHEMA_VERSION }, 'the store is brought to the present layout');
  let from = underWay === '' ? null : Buffer.from(after, 'hex');
  for (; next < SCHEMA_VERSION; next++) {
    for (const step of STEPS) if (step.from === next) rewrite(database, step, from);
    from = null;
  }
  await database.flushed;
}

/** Without this the rows of the journal would be read as rows of the new layout. @returns the layout; 0 for a new store */
async function takeOverJournal(deps: Parameters<typeof migrate>[0], stored: number | undefined): Promise<number> {
  const { database, directory, appliedKey, segmentBytes, disk, clock, log } = deps;
  const applied = Number(database.getBinary(appliedKey)?.readBigUInt64BE() ?? 0n);
  const rows: RawRow[] = [];
  let last = applied;
  const options = { directory: join(directory, 'journal'), segmentBytes, disk, log, clock };
  const journal = await Journal.open(options, applied, ({ sequence, payload }) => {
    for (const row of rawRows(Buffer.from(payload))) rows.push(row);
    last = sequence;
  });
  try {
    const recorded = rows.findLast(({ keyBytes }) => keyBytes.equals(SCHEMA_KEY))?.valueBytes;
    const schema = recorded == null ? stored : Number(decodeValue('meta', 'schema', recorded));
    if (schema === undefined || schema >= SCHEMA_VERSION || rows.length === 0) return schema ?? 0;
    // At a start nobody waits for LMDB's lock, and nothing else runs.
    database.transactionSync(() => {
      for (const { keyBytes, valueBytes } of rows) {
        if (valueBytes === null) database.removeSync(keyBytes);
        else database.putSync(keyBytes, valueBytes);
      }
      const count = Buffer.alloc(8);
      count.writeBigUInt64BE(BigInt(last));
      database.putSync(appliedKey, count);
    });
    await database.flushed;
    journal.release(last);
    return schema;
  } finally {
    await journal.close();
  }
}

/** @param after the key up to which an earlier start came; null for none */
function rewrite(database: RootDatabase<Buffer, Buffer>, { from: left, table, row }: Step, after: Buffer | null): void {
  const prefix = encodePrefix(table);
  const end = behindPrefix(prefix);
  let start = after === null ? prefix : behindKey(after);
  for (let isOver = false; !isOver; ) {
    const rows = [...database.getRange({ start, end, limit: ROWS_AT_ONCE })];
    isOver = rows.length < ROWS_AT_ONCE;
    database.transactionSync(() => {
      for (const { key, value } of rows) database.putSync(key, Buffer.from(row(value)));
      database.putSync(SCHEMA_KEY, Buffer.from(encodeValue('meta', left + 1)));
      const last = rows.at(-1)?.key;
      if (isOver) database.removeSync(MIGRATING_KEY);
      else if (last !== undefined)
        database.putSync(MIGRATING_KEY, Buffer.from(encodeValue('meta', `${left}:${last.toString('hex')}`)));
    });
    const last = rows.at(-1)?.key;
    if (last !== undefined) start = behindKey(last);
  }
}

function read(database: RootDatabase<Buffer, Buffer>, key: Buffer, name: string): string | number | undefined {
  const value = database.getBinary(key);
  return value === undefined ? undefined : decodeValue('meta', name, value);
}
