import type { Clock } from '../base/clock.ts';
import { isOutOfDescriptors, StorageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { Disk } from './disk.ts';
import {
  allocateFitting,
  beginSegment,
  type OpenSegment,
  readWhole,
  reserveExactly,
  reserveFitting,
  type Segment,
  segmentPath,
  segmentsIn,
  sparePath,
  takeSpare,
} from './journal-files.ts';
import {
  decodeHeader,
  HEADER_BYTES,
  isWrittenAt,
  type JournalRecord,
  RECORD_HEADER_BYTES,
  recordsOf,
  sealRecord,
} from './journal-segment.ts';
import type { StartRoom } from './start-room.ts';

/**
 * The write-ahead log: an appended change survives SIGKILL after microseconds. The files are allocated in advance, so neither an append
 * nor its fdatasync waits for the file system to allocate blocks.
 *
 * A start never appends to a file of an earlier run: the bytes after its last complete record are unknown.
 */

export interface JournalOptions {
  readonly directory: string;
  readonly segmentBytes: number;
  readonly disk: Disk;
  readonly log: Logger;
  readonly clock: Clock;
  /** Space for the first file on a full disk. Without it, a start on a full disk has no file. */
  readonly startRoom?: Pick<StartRoom, 'give' | 'refill'>;
  /** Programs wait for this start: it does not wait for the device. */
  readonly isUrgent?: boolean;
}

/** Taken from the start room by a start: half becomes the journal file, the rest is for the index. */
const START_ROOM_BYTES = 320 * 1024;
/**
 * End of each file that is for changes which free space, and a bound on its share of a short file. Without it the pushes after a start on
 * a full disk use the only file up, and no deletion can make room for the next one.
 */
const FREEING_BYTES_MAX = 64 * 1024;
const FREEING_SHARE = 1 / 4;
/** Of the first file of an urgent start: the spare file soon follows it. */
const URGENT_SHARE = 1 / 8;
/** The spare file is allocated only while this many files fit on the disk: the rest is left for other writes. */
const SPARE_ROOM_FILES = 2;
/** After a power cut or damage: the newest changes may be lost, and only this message reports it. */
const UNREADABLE = 'journal file cannot be read to its end: the remaining records are dropped';
/** Pause before the spare file is tried again after a failure or on a full disk. */
const SPARE_PAUSE_MS = 1000;

export class Journal {
  readonly #options: JournalOptions;
  /** Older files, oldest first: removed from the front once LMDB has their records on the disk. */
  readonly #older: Segment[];
  /** Null after a start on a full disk: the first append tries again. */
  #current: OpenSegment | null;
  /** Number of the last file, and of the last record, that the start found. */
  readonly #found: { readonly number: number; readonly last: number };
  /** Files before the current one that are not synced yet. */
  #unsynced: Pick<OpenSegment, 'number' | 'fd'>[];
  /** Whether the next file is allocated at `sparePath`. */
  #hasSpare = false;
  #allocation: Promise<void> | null = null;
  /** The spare file is not tried again before this `elapsedMs`. */
  #spareFromMs = 0;
  #isSpareLacking = false;
  /** The sync of the folder after the last new file; null until the next sync() starts it. */
  #directorySync: Promise<void> | null = null;
  #syncing: Promise<void> | null = null;
  #syncQueued: Promise<void> | null = null;
  /** Set by a failed fdatasync: the kernel may have dropped the pages, so this run promises no durability any more. */
  #broken: StorageError | null = null;
  #scratch = Buffer.allocUnsafe(64 * 1024);
  #isRemovalFailing = false;
  #closed = false;

  private constructor(
    options: JournalOptions,
    older: Segment[],
    current: OpenSegment | null,
    found: { readonly number: number; readonly last: number },
    unsynced: Pick<OpenSegment, 'number' | 'fd'>[],
  ) {
    this.#options = options;
    this.#older = older;
    this.#current = current;
    this.#found = found;
    this.#unsynced = unsynced;
  }

  /**
   * Replays the records of earlier runs and opens a new file after them.
   *
   * LMDB has every record up to `applied` on the disk. It may be ahead of the journal: a power cut can remove the last journal records
   * although LMDB had synced them. Records up to `applied` are not replayed, and a gap in the sequence numbers is accepted only below it.
   * Everything after another gap or after damage is dropped. Its files are removed before anything new is written, so that no later start
   * takes them for the continuation.
   */
  static async open(
    options: JournalOptions,
    applied: number,
    replay: (record: JournalRecord) => void,
  ): Promise<Journal> {
    const { directory, disk, log } = options;
    disk.makeDirectory(directory);
    const files = segmentsIn(disk, directory);

    let last = applied;
    let intact = true;
    const kept: Segment[] = [];
    const needless: string[] = [];
    const forgotten: string[] = [];
    for (const file of files) {
      const bytes = readWhole(disk, file.path);
      const header = decodeHeader(bytes);
      if (!intact || header === null || header.firstSequence > last + 1) {
        if (intact && header !== null) {
          intact = false;
          log.warn(
            { file: file.number, expected: last + 1, found: header.firstSequence },
            'journal has a gap: later records are dropped',
          );
        }
        if (header === null && isWrittenAt(bytes, 0)) log.warn({ file: file.number, at: 0 }, UNREADABLE);
        forgotten.push(file.path);
        continue;
      }
      let own = header.firstSequence - 1;
      let end = HEADER_BYTES;
      for (const record of recordsOf(bytes, header)) {
        own = record.sequence;
        end += RECORD_HEADER_BYTES + record.payload.byteLength;
        if (own <= last) continue;
        replay(record);
        last = own;
      }
      if (isWrittenAt(bytes, end)) log.warn({ file: file.number, at: end, last: own }, UNREADABLE);
      if (own <= applied || own < header.firstSequence) needless.push(file.path);
      else kept.push({ ...file, last: own });
    }
    for (const path of forgotten) disk.remove(path);
    if (forgotten.length > 0) await disk.syncDirectory(directory);
    // Their space may be the only space for the new file.
    for (const path of needless) disk.remove(path);

    const found = { number: files.at(-1)?.number ?? 0, last };
    const current = await firstSegment(options, found);
    // An earlier run may have been killed before it synced these files, and this run's sync() promises their records too.
    const unsynced = kept.map(({ number, path }) => ({ number, fd: disk.open(path, 'write') }));
    return new Journal(options, kept, current, found, unsynced);
  }

  /** Sequence number of the newest record. */
  get last(): number {
    return (this.#current ?? this.#found).last;
  }

  /** Whether the current file has its full length: the disk was not full. */
  get hasFullFile(): boolean {
    return this.#current !== null && this.#current.sizeBytes >= this.#options.segmentBytes;
  }

  /** The number of files, including the current one. */
  get files(): number {
    return this.#older.length + (this.#current === null ? 0 : 1);
  }

  /** Space in the current and the spare file, bytes: appends up to this size allocate nothing. */
  get roomBytes(): number {
    const { sizeBytes, position } = this.#current ?? { sizeBytes: 0, position: 0 };
    return sizeBytes - position + (this.#hasSpare ? this.#options.segmentBytes - HEADER_BYTES : 0);
  }

  /**
   * Appends one record; `fill` writes its payload of `payloadBytes` into the given buffer. When this returns, the record survives
   * SIGKILL. When it throws, nothing was recorded and the journal stays usable.
   *
   * @param leavesRoom the end of a file stays free (`FREEING_BYTES_MAX`): where no further file fits, a deletion can still be recorded
   * @returns the record's sequence number
   * @throws StorageError full when there is no room
   */
  append(payloadBytes: number, fill: (target: Buffer) => void, leavesRoom = false): number {
    if (this.#broken !== null) throw this.#broken;
    const length = RECORD_HEADER_BYTES + payloadBytes;
    const segment = this.#segmentFor(length, leavesRoom);
    if (this.#scratch.byteLength < length) this.#scratch = Buffer.allocUnsafe(length * 2);
    const record = this.#scratch.subarray(0, length);
    fill(record.subarray(RECORD_HEADER_BYTES));
    const sequence = segment.last + 1;
    sealRecord(record, segment.salt, sequence);
    try {
      this.#options.disk.write(segment.fd, record, segment.position);
    } catch (error) {
      this.#blank(segment);
      throw error;
    }
    segment.position += length;
    segment.last = sequence;
    if (!this.#hasSpare && this.#allocation === null && segment.position > segment.sizeBytes / 8) this.#allocateSpare();
    return sequence;
  }

  /** Once this resolves, everything appended before survives a power cut. Waiting calls share one fdatasync. */
  sync(): Promise<void> {
    if (this.#syncing === null) {
      this.#syncing = this.#syncNow().finally(() => {
        this.#syncing = null;
      });
      return this.#syncing;
    }
    // The running sync may have started before the caller's record was appended.
    this.#syncQueued ??= this.#syncing
      .catch(() => {})
      .then(() => {
        this.#syncQueued = null;
        return this.sync();
      });
    return this.#syncQueued;
  }

  /** Removes the files whose records LMDB has on the disk: all records up to `sequence`. Never throws. */
  release(sequence: number): void {
    for (let [oldest] = this.#older; oldest !== undefined && oldest.last <= sequence; [oldest] = this.#older) {
      const { number, path } = oldest;
      try {
        this.#options.disk.remove(path);
      } catch (err) {
        // Harmless: a later start skips the records, because LMDB has them.
        if (!this.#isRemovalFailing)
          this.#options.log.warn({ err, file: number }, 'journal file not removed: tried again');
        this.#isRemovalFailing = true;
        return;
      }
      this.#isRemovalFailing = false;
      this.#older.shift();
      const unsynced = this.#unsynced.findIndex((segment) => segment.number === number);
      if (unsynced >= 0 && this.#syncing === null) {
        for (const { fd } of this.#unsynced.splice(unsynced, 1)) this.#options.disk.close(fd);
      }
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#allocation;
    await this.sync().finally(() => {
      const { disk } = this.#options;
      const current = this.#current === null ? [] : [this.#current];
      for (const { fd } of [...this.#unsynced, ...current]) disk.close(fd);
      this.#unsynced = [];
    });
    this.#removeEmpty();
  }

  /** Removes a file without records, as after `cfs doctor`: on a full disk the next start needs its space. Never throws. */
  #removeEmpty(): void {
    if (this.#current === null || this.#current.position > HEADER_BYTES) return;
    try {
      this.#options.disk.remove(this.#current.path);
    } catch {
      // The next start removes the file.
    }
  }

  async #syncNow(): Promise<void> {
    if (this.#broken !== null) throw this.#broken;
    const { disk, directory } = this.#options;
    const rotated = [...this.#unsynced];
    try {
      this.#directorySync ??= disk.syncDirectory(directory);
      await this.#directorySync;
      // Older files first: no record may be on the disk before its predecessors.
      for (const segment of rotated) await disk.sync(segment.fd);
      if (this.#current !== null) await disk.sync(this.#current.fd);
    } catch (error) {
      if (isOutOfDescriptors(error)) {
        // The folder was not opened, so no page is lost. The next sync() tries again.
        this.#directorySync = null;
        throw error;
      }
      this.#broken = new StorageError('the journal could not be synced: restart the mount', { cause: error });
      throw this.#broken;
    }
    this.#unsynced = this.#unsynced.filter((segment) => !rotated.includes(segment));
    for (const segment of rotated) disk.close(segment.fd);
  }

  /** The file for a record of `length` bytes. @throws StorageError full */
  #segmentFor(length: number, leavesRoom: boolean): OpenSegment {
    const current = this.#current;
    if (current === null) return this.#rotate(length);
    const { position, sizeBytes } = current;
    const leftBytes = leavesRoom ? Math.min(FREEING_BYTES_MAX, sizeBytes * FREEING_SHARE) : 0;
    return position + length + leftBytes <= sizeBytes ? current : this.#rotate(length);
  }

  /** Continues in a new file: the spare one, or one that is reserved now (its first syncs are slower). */
  #rotate(recordBytes: number): OpenSegment {
    const { disk, directory, segmentBytes } = this.#options;
    const neededBytes = HEADER_BYTES + recordBytes;
    const previous = this.#current;
    const number = (previous ?? this.#found).number + 1;
    const path = segmentPath(directory, number);
    let sizeBytes = segmentBytes;
    if (this.#hasSpare && neededBytes <= segmentBytes) {
      disk.rename(sparePath(directory), path);
      this.#hasSpare = false;
    } else {
      sizeBytes = reserveFitting(disk, path, segmentBytes, neededBytes);
    }
    const current = beginSegment(this.#options, { number, path, sizeBytes, firstSequence: this.last + 1 });
    this.#current = current;
    if (previous !== null) {
      this.#older.push(previous);
      this.#unsynced.push(previous);
    }
    // One sync of the folder covers all names, so a sync that was not started before needs no repetition.
    this.#directorySync = (this.#directorySync ?? Promise.resolve()).then(() => disk.syncDirectory(directory));
    this.#directorySync.catch(() => {}); // reported by the next sync()
    return current;
  }

  #allocateSpare(): void {
    const { clock } = this.#options;
    if (this.#closed || clock.elapsedMs() < this.#spareFromMs) return;
    this.#allocation = this.#spareMade()
      .then(
        (isMade) => this.#spareTried(isMade, null),
        (err: unknown) => this.#spareTried(false, err),
      )
      .finally(() => {
        this.#allocation = null;
      });
  }

  /**
   * Allocates the spare file. On an almost full disk the attempt would briefly take all space, and concurrent writes would fail with ENOSPC.
   *
   * @returns false if there is too little space. @throws StorageError
   */
  async #spareMade(): Promise<boolean> {
    const { disk, directory, segmentBytes } = this.#options;
    if ((await disk.freeBytes(directory)) < segmentBytes * SPARE_ROOM_FILES) return false;
    const path = sparePath(directory);
    try {
      await disk.allocate(path, segmentBytes);
      this.#options.startRoom?.refill();
      return true;
    } catch (error) {
      try {
        disk.remove(path);
      } catch {
        // The next attempt overwrites the file.
      }
      throw error;
    }
  }

  #spareTried(isMade: boolean, err: unknown): void {
    this.#hasSpare = isMade;
    if (!isMade) {
      this.#spareFromMs = this.#options.clock.elapsedMs() + SPARE_PAUSE_MS;
      if (!this.#isSpareLacking)
        this.#options.log.warn({ ...(err !== null && { err }) }, 'no room for the next journal file');
    }
    this.#isSpareLacking = !isMade;
  }

  /** Overwrites the header of an incomplete record, so that no start takes it for a complete one. */
  #blank(segment: OpenSegment): void {
    try {
      this.#options.disk.write(segment.fd, new Uint8Array(RECORD_HEADER_BYTES), segment.position);
    } catch {
      // The checksum of an incomplete record is wrong as well, and the next append overwrites it.
    }
  }
}

/** The first file of a run; null if the disk is full. @throws StorageError */
async function firstSegment(
  options: JournalOptions,
  found: { readonly number: number; readonly last: number },
): Promise<OpenSegment | null> {
  const { disk, directory, segmentBytes, startRoom, log, isUrgent = false } = options;
  const number = found.number + 1;
  const path = segmentPath(directory, number);
  const begin = (sizeBytes: number): OpenSegment =>
    beginSegment(options, { number, path, sizeBytes, firstSequence: found.last + 1 });
  if (takeSpare(disk, directory, path, segmentBytes)) return begin(segmentBytes);
  if (isUrgent && reserveExactly(disk, path, segmentBytes * URGENT_SHARE)) return begin(segmentBytes * URGENT_SHARE);
  let sizeBytes = await allocateFitting(disk, path, segmentBytes);
  if (sizeBytes === null && startRoom?.give(START_ROOM_BYTES))
    sizeBytes = await allocateFitting(disk, path, segmentBytes);
  if (sizeBytes === null) {
    log.error({}, 'the disk is full: changes are refused until it has space');
    return null;
  }
  if (sizeBytes < segmentBytes) log.warn({ sizeBytes }, 'the disk is almost full: a short journal file');
  return begin(sizeBytes);
}
