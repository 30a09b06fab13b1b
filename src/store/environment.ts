import { mkdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { RootDatabase } from 'lmdb';
import type { Clock } from '../base/clock.ts';
import { StorageError, UsageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { Change } from './change.ts';
import { Checkpoint, readApplied } from './checkpoint.ts';
import { type DamagedRowName, DamagedRows, findDamagedRows } from './damaged-rows.ts';
import { DecodedRows } from './decoded-rows.ts';
import { type Disk, systemDisk } from './disk.ts';
import { hasCommits, indexFile, lastPageOf, openIndex, rewriteIndex, syncIndex, usableIndex } from './index-file.ts';
import { IndexRoom, type IndexRoomDisk } from './index-room.ts';
import { Journal } from './journal.ts';
import { migrate } from './migration.ts';
import { merged, Overlay, type Row, rangeOf } from './overlay.ts';
import { OwnerLock } from './owner-lock.ts';
import { RecentReads } from './recent-reads.ts';
import { encodeValue } from './record-codec.ts';
import { decodeRows, encodedRowsBytes, encodeRows } from './record-payload.ts';
import { isTombstone, namesIn, newestNode } from './record-rows.ts';
import { behindKey, decodeKey, encodeKey } from './row-key.ts';
import { SCHEMA_VERSION } from './schema-version.ts';
import { StartRoom } from './start-room.ts';
import type {
  ChangeKind,
  FirstOf,
  ScannedTable,
  SecondOf,
  StoreWriter,
  TableName,
  Tables,
  Transaction,
} from './tables.ts';

export interface StoreOptions {
  readonly directory: string;
  readonly log: Logger;
  readonly clock: Clock;
  /** Size of a journal file. */
  readonly segmentBytes?: number;
  /** Memory limit of the records that LMDB does not hold yet; beyond it `transact` is throttled. */
  readonly overlayBytesMax?: number;
  /** Tests replace the file system below the journal. */
  readonly disk?: Disk;
  /** Tests replace LMDB. */
  readonly openIndex?: (path: string) => RootDatabase<Buffer, Buffer>;
  /** Tests replace the free space that LMDB finds on the disk. */
  readonly indexRoom?: Partial<IndexRoomDisk>;
  /** A process that owned the store and is being killed: its lock is void. 0: none. */
  readonly predecessor?: number;
}

/** Notes which records belong to requests of the kernel (`--continuity`). */
export interface RecordWitness {
  /** Whether `writing` gets the inode of the next record. */
  readonly needsInode: boolean;
  /**
   * @param inode the newest inode in the record (0: none); null where it is not needed
   * @param names returns the names that the record changes
   */
  writing(sequence: number, inode: number | null, names: () => Iterable<Tables['name']['key']>): void;
  refused(): void;
}

const SEGMENT_BYTES = 8 * 1024 * 1024;
const OVERLAY_BYTES_MAX = 48 * 1024 * 1024;
/** Rows of one read from LMDB during a scan, first and later: no cursor outlives a turn of the event loop. */
const SCAN_ROWS_MIN = 32;
const SCAN_ROWS_MAX = 256;
/** Memory of a row beyond its bytes: objects, map entries, decoded value. */
const ROW_OVERHEAD_BYTES = 1000;
/** Limit of learnt rows while no record can be written; the next record includes them, and must fit into a journal file. */
const UNRECORDED_BYTES_MAX = 4 * 1024 * 1024;
/** Ids are reserved in blocks, so that most new ids write no row. */
const ID_BLOCK = 1000;
/** Limits of the cache of decoded nodes, and of that of decoded contents. */
const DECODED = { onceMax: 1_000, againMax: 20_000 } as const;
/** Values up to this size may use the reserved part of a journal file while LMDB has no room: a deletion may free space. */
const SHORT_BYTES_MAX = 4096;
const ROOM_FOR_SHORT_SHARE = 1 / 8;
const DISK_FULL_BELOW_BYTES = 1024 * 1024;
const OWNER_ROOM_BYTES = 4096;
const COUNTERS = {
  inode: { key: 'next-inode', first: 2 },
  content: { key: 'next-content', first: 1 },
  intent: { key: 'next-intent', first: 1 },
} as const;

/**
 * The journal, LMDB and the overlay of rows that LMDB does not hold yet, behind one interface.
 *
 * Reads are synchronous: overlay, then decoded records, then LMDB. A change is one journal record; a checkpoint transfers records to
 * LMDB in the background. LMDB runs with its defaults: `noSync`, `useWritemap` and `overlappingSync: false` lost synced data
 * in simulated power cuts (test/store/power-cut.test.ts).
 */
export class Store implements StoreWriter {
  readonly #database: RootDatabase<Buffer, Buffer>;
  readonly #lock: OwnerLock;
  readonly #log: Logger;
  readonly #overlayBytesMax: number;
  readonly #roomForShortBytes: number;
  readonly #overlay = new Overlay();
  readonly #checkpoint: Checkpoint;
  /** Cache of decoded records. The overlay is consulted first, so the cache is never stale. */
  readonly #decoded: { readonly [T in TableName]?: DecodedRows } = {
    node: new DecodedRows(DECODED),
    content: new DecodedRows(DECODED),
  };
  #recent = new RecentReads();
  readonly #ids = { inode: { next: 0, end: 0 }, content: { next: 0, end: 0 }, intent: { next: 0, end: 0 } };
  readonly #waiting = new Int32Array(new SharedArrayBuffer(4));
  readonly #damage: DamagedRows;
  readonly #startRoom: StartRoom;
  #journal: Journal | null = null;
  /** Number of the last record that LMDB is known to hold on the disk. */
  #flushed = 0;
  /** Rows of kind `learnt` that could not be recorded, oldest first. They are visible, and part of the next record. */
  #unrecorded: Row[] = [];
  #unrecordedBytes = 0;
  #changing = false;
  #closed = false;
  #foundRecord = 0;
  #changes = 0;
  /** Called around each record: with its number before it is written, and when it could not be written. */
  witness: RecordWitness | null = null;
  /** Called at the next change, once. */
  onNextChange: (() => void) | null = null;
  /** LMDB is closed: a read would crash the process. */
  #ended = false;

  private constructor(
    options: StoreOptions,
    database: RootDatabase<Buffer, Buffer>,
    lock: OwnerLock,
    startRoom: StartRoom,
  ) {
    this.#startRoom = startRoom;
    this.#database = database;
    this.#lock = lock;
    this.#log = options.log;
    this.#damage = new DamagedRows({ log: options.log });
    this.#overlayBytesMax = options.overlayBytesMax ?? OVERLAY_BYTES_MAX;
    this.#roomForShortBytes = (options.segmentBytes ?? SEGMENT_BYTES) * ROOM_FOR_SHORT_SHARE;
    const room = new IndexRoom(indexFile(options.directory), () => lastPageOf(database), options.indexRoom);
    this.#checkpoint = new Checkpoint({
      database,
      clock: options.clock,
      log: options.log,
      isDiskFull: () => room.freeBytes < DISK_FULL_BELOW_BYTES,
      room,
      rewrite: () => rewriteIndex(options.directory, options.disk ?? systemDisk),
      committed: (records) => {
        for (const { rows } of records) for (const row of rows) this.#inIndex(row);
      },
      flushed: (sequence) => {
        this.#flushed = sequence;
        this.#journal?.release(sequence);
      },
    });
  }

  /**
   * Opens the store in `directory` (created if needed) and replays its journal.
   *
   * On a full disk it uses the space that an earlier run reserved (`StartRoom`). Without that space it opens, but refuses changes.
   *
   * @throws UsageError when another process owns it, or when a newer version of this program wrote it · StorageError
   */
  static async open(options: StoreOptions): Promise<Store> {
    const { directory, log, clock, disk = systemDisk, segmentBytes = SEGMENT_BYTES, predecessor = 0 } = options;
    const firstMade = mkdirSync(directory, { recursive: true, mode: 0o700 });
    const startRoom = new StartRoom(directory, disk, segmentBytes);
    const lock = OwnerLock.take(directory, () => startRoom.give(OWNER_ROOM_BYTES), predecessor);
    // The process before this one has synced the names and the index at its start. Programs wait for this one.
    const isUrgent = predecessor !== 0;
    let store: Store | undefined;
    try {
      const database = await usableIndex(join(directory, 'index'), options.openIndex ?? openIndex, disk);
      store = new Store(options, database, lock, startRoom);
      store.#checkSchema(); // before the first record is decoded, which this version may not understand
      if (!isUrgent || !hasCommits(database)) await syncIndex(directory, disk);
      await migrate({ database, directory, segmentBytes, disk, clock, log });
      store.#recent = new RecentReads(); // a migration writes to LMDB itself
      const applied = readApplied(database);
      const replayed: { readonly sequence: number; readonly rows: readonly Row[] }[] = [];
      store.#journal = await Journal.open(
        { directory: join(directory, 'journal'), segmentBytes, disk, log, clock, startRoom, isUrgent },
        applied,
        ({ sequence, payload }) => replayed.push({ sequence, rows: decodeRows(Buffer.from(payload), sequence) }),
      );
      store.#foundRecord = store.#journal.last;
      if (!isUrgent) await syncNames(directory, firstMade ?? directory, disk);
      // After the journal has its file: on an almost full disk LMDB would take the space for it.
      for (const { rows, sequence } of replayed) store.#keep(rows, sequence);
      store.#begin(store.#journal);
      if (store.#journal.hasFullFile) startRoom.refill();
      return store;
    } catch (error) {
      if (store !== undefined) await store.#checkpoint.close();
      lock.release();
      throw error;
    }
  }

  get changes(): number {
    return this.#changes;
  }

  /** The number of the last record that the start found. */
  get foundRecord(): number {
    return this.#foundRecord;
  }

  get<T extends TableName>(table: T, key: Tables[T]['key']): Tables[T]['value'] | undefined {
    const row = this.#overlay.find(table, key);
    if (row !== undefined) return row.value as Tables[T]['value'] | undefined;
    const decoded = this.#decoded[table];
    if (decoded === undefined) return this.#recent.get(table, key, () => this.#read(table, key));
    const hit = decoded.get(key as number);
    if (hit !== undefined) return hit as Tables[T]['value'];
    const value = this.#read(table, key);
    if (value !== undefined) decoded.read(key as number, value as object);
    return value;
  }

  *scan<T extends ScannedTable>(
    table: T,
    first: FirstOf<T>,
    after?: SecondOf<T>,
  ): Generator<readonly [SecondOf<T>, Tables[T]['value']]> {
    const { start, end } = rangeOf(table, first as number);
    const from = after === undefined ? start : behindKey(encodeKey(table, [first, after] as never));
    for (const row of this.rowsOf(table, first as number, from, end)) {
      yield [(row.key as readonly [unknown, unknown])[1] as SecondOf<T>, row.value as Tables[T]['value']];
    }
  }

  *all<T extends TableName>(
    table: T,
    after?: Tables[T]['key'],
  ): Generator<readonly [Tables[T]['key'], Tables[T]['value']]> {
    const { start, end } = rangeOf(table, undefined);
    const from = after === undefined ? start : behindKey(encodeKey(table, after));
    for (const row of this.rowsOf(table, undefined, from, end)) yield [row.key, row.value as Tables[T]['value']];
  }

  /** The damaged rows (`cfs doctor`). Reads the whole database. */
  damagedRows(): Iterable<DamagedRowName> {
    return findDamagedRows(this.#database);
  }

  transact<R>(change: (tx: Transaction) => R, kind: ChangeKind = 'made'): R {
    if (this.#changing) throw new Error('transact is not nested');
    if (this.#closed) throw new StorageError('the store is closed');
    const tx = new Change(this);
    let result: R;
    let ended: ReturnType<Change['end']>;
    this.#changing = true;
    try {
      result = change(tx);
    } finally {
      this.#changing = false;
      ended = tx.end();
    }
    const { rows, effects } = ended;
    if (rows.length > 0) this.#record(rows, kind);
    runAll(effects);
    return result;
  }

  /** How full the overlay is: 0 is empty; from 1 on each `transact` waits up to 2 ms for LMDB. */
  pressure(): number {
    return this.#checkpoint.pendingBytes / this.#overlayBytesMax;
  }

  async sync(): Promise<void> {
    await this.#journal?.sync();
  }

  /** Resolves when LMDB holds everything committed so far on the disk (tests, doctor, an orderly stop). */
  async drain(): Promise<void> {
    await this.#checkpoint.drain();
  }

  /** Transfers all records to LMDB and releases the store. Records that cannot be transferred stay in the journal. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    try {
      await this.#checkpoint.drain();
    } catch (err) {
      this.#log.warn({ err }, 'closed with changes that only the journal holds');
    }
    try {
      await this.#journal?.close();
    } catch (err) {
      this.#log.error({ err }, 'the journal could not be synced: a power cut may undo the changes since the last sync');
    }
    this.#ended = true;
    await this.#checkpoint.close();
    this.#startRoom.refill();
    this.#lock.release();
  }

  /** For `Change`: rows of a key range, from the overlay and LMDB. */
  *rowsOf(table: TableName, first: number | undefined, start: Buffer, end: Buffer): Generator<Row> {
    let limit = SCAN_ROWS_MIN;
    for (let from = start; ; limit = Math.min(limit * 2, SCAN_ROWS_MAX)) {
      if (this.#ended) throw new StorageError('the store is closed');
      const lower: Row[] = [];
      for (const { key, value } of this.#database.getRange({ start: from, end, limit })) {
        const decodedKey = decodeKey(key).key;
        const decoded = this.#damage.decode(table, decodedKey, key, value);
        lower.push({ table, key: decodedKey, keyBytes: key, value: decoded, valueBytes: null, sequence: 0 });
      }
      let over = this.#overlay.inOrder(table, first, from);
      const lastKey = lower.length < limit ? null : (lower.at(-1) as Row).keyBytes;
      if (lastKey !== null) over = over.slice(0, firstBehind(over, lastKey));
      yield* merged(lower, over);
      if (lastKey === null) return;
      from = behindKey(lastKey);
    }
  }

  /** For `Change`: an id that was never assigned before. */
  takeId(tx: Transaction, counter: keyof typeof COUNTERS): number {
    const ids = this.#ids[counter];
    const id = ids.next++;
    if (id >= ids.end) {
      const end = id + ID_BLOCK;
      tx.put('meta', COUNTERS[counter].key, end);
      tx.afterCommit(() => {
        ids.end = Math.max(ids.end, end);
      });
    }
    return id;
  }

  #begin(journal: Journal): void {
    journal.release(this.#flushed);
    const schema = this.#checkSchema();
    for (const counter of ['inode', 'content', 'intent'] as const) {
      const next = Number(this.get('meta', COUNTERS[counter].key) ?? COUNTERS[counter].first);
      this.#ids[counter].next = next;
      this.#ids[counter].end = next;
    }
    if (schema === undefined) this.transact((tx) => tx.put('meta', 'schema', SCHEMA_VERSION));
  }

  #checkSchema(): number | undefined {
    const schema = this.get('meta', 'schema');
    if (typeof schema !== 'number') return undefined;
    if (schema > SCHEMA_VERSION) {
      throw new UsageError(
        `the store was written by a newer version of this program (layout ${schema}, this one knows ${SCHEMA_VERSION})`,
      );
    }
    return schema;
  }

  #record(rows: Row[], kind: ChangeKind): void {
    let valueBytes = 0;
    for (const row of rows) {
      if (row.value === undefined) continue;
      row.valueBytes = encodeValue(row.table, row.key, row.keyBytes, row.value as never);
      valueBytes += row.valueBytes.byteLength;
    }
    const all = this.#unrecorded.length === 0 ? rows : [...this.#unrecorded, ...rows];
    let sequence: number;
    try {
      sequence = this.#append(all, valueBytes, kind);
    } catch (error) {
      if (kind !== 'learnt' || !(error instanceof StorageError)) throw error;
      this.#keepUnrecorded(rows, error);
      return;
    }
    this.#unrecorded = [];
    this.#unrecordedBytes = 0;
    for (const row of all) row.sequence = sequence;
    this.#keep(all, sequence);
  }

  /** @returns the record's sequence number. @throws StorageError */
  #append(rows: readonly Row[], valueBytes: number, kind: ChangeKind): number {
    const pressure = this.pressure();
    const journal = this.#journal as Journal;
    const recordBytes = encodedRowsBytes(rows);
    const { failure } = this.#checkpoint;
    // While LMDB has no room, changes go to the journal as long as it has some.
    const fits = valueBytes <= SHORT_BYTES_MAX || journal.roomBytes - recordBytes >= this.#roomForShortBytes;
    const isTaken = failure?.full === true && pressure < 1 && fits;
    if (failure !== null && !isTaken) throw failure;
    // A short wait at first: this thread also feeds the checkpoint.
    if (pressure >= 1) Atomics.wait(this.#waiting, 0, 0, Math.min(2, (pressure - 1) * 4));
    const { witness } = this;
    if (witness !== null && kind !== 'learnt')
      witness.writing(journal.last + 1, witness.needsInode ? newestNode(rows) : null, () => namesIn(rows));
    try {
      return journal.append(recordBytes, (target) => encodeRows(rows, target), kind !== 'freeing');
    } catch (error) {
      if (kind !== 'learnt') witness?.refused();
      throw error;
    }
  }

  /** Keeps learnt rows visible in memory until the next record includes them. @throws StorageError beyond `UNRECORDED_BYTES_MAX` */
  #keepUnrecorded(rows: readonly Row[], failure: StorageError): void {
    const bytes = bytesOf(rows);
    if (this.#unrecordedBytes + bytes > UNRECORDED_BYTES_MAX) throw failure;
    if (this.#unrecorded.length === 0)
      this.#log.warn({ err: failure }, 'no record can be written: remote state is kept in memory only');
    this.#unrecorded.push(...rows);
    this.#unrecordedBytes += bytes;
    this.#show(rows);
  }

  /** Makes a recorded change visible and queues it for the checkpoint. */
  #keep(rows: readonly Row[], sequence: number): void {
    this.#show(rows);
    this.#checkpoint.add({ sequence, rows, bytes: bytesOf(rows) });
  }

  #show(rows: readonly Row[]): void {
    this.#changes++;
    for (const row of rows) {
      this.#overlay.set(row);
      this.#recent.delete(row.table, row.key);
      this.#decoded[row.table]?.delete(row.key as number);
    }
    const changed = this.onNextChange;
    this.onNextChange = null;
    changed?.();
  }

  /** The row is in LMDB: the overlay drops it. */
  #inIndex(row: Row): void {
    const wasNewest = this.#overlay.drop(row);
    if (wasNewest && row.value !== undefined && !isTombstone(row))
      this.#decoded[row.table]?.written(row.key as number, row.value as object);
  }

  #read<T extends TableName>(table: T, key: Tables[T]['key']): Tables[T]['value'] | undefined {
    if (this.#ended) throw new StorageError('the store is closed');
    const keyBytes = encodeKey(table, key);
    const lent = this.#database.getBinaryFast(keyBytes);
    if (lent === undefined) return undefined;
    return this.#damage.decode(table, key, keyBytes, lent.subarray(0, lent.length));
  }
}

/**
 * Syncs the names of the store's folder and of the folders above it. A synced file is lost if the name of a folder above it is not on the
 * disk. An earlier run may have created those folders and been killed before it synced them.
 *
 * @param top the uppermost folder that this run created
 */
async function syncNames(directory: string, top: string, disk: Disk): Promise<void> {
  const end = dirname(resolve(top));
  for (let at = resolve(directory); ; at = dirname(at)) {
    await disk.syncDirectory(at);
    if (at === end || at === dirname(at)) return;
  }
}

/** Estimated memory of rows, bytes. */
function bytesOf(rows: readonly Row[]): number {
  let bytes = 0;
  for (const { keyBytes, valueBytes } of rows)
    bytes += keyBytes.byteLength + (valueBytes?.byteLength ?? 0) + ROW_OVERHEAD_BYTES;
  return bytes;
}

/** Runs all effects, even if one throws: they keep memory consistent with the record. @throws the first error */
function runAll(effects: readonly (() => void)[]): void {
  let failure: { readonly error: unknown } | null = null;
  for (const effect of effects) {
    try {
      effect();
    } catch (error) {
      failure ??= { error };
    }
  }
  if (failure !== null) throw failure.error;
}

function firstBehind(rows: readonly Row[], key: Uint8Array): number {
  const at = rows.findIndex((row) => Buffer.compare(row.keyBytes, key) > 0);
  return at < 0 ? rows.length : at;
}
