import type { Clock } from '../base/clock.ts';
import { isOutOfDescriptors, StorageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { Disk } from './disk.ts';
import {
  allocateFitting,
  beginSegment,
  type OpenSegment,
  readWhole,
  reserveFitting,
  type Segment,
  segmentPath,
  segmentsIn,
  sparePath,
  syncSegment,
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
 * The journal: what makes a change outlive SIGKILL, in microseconds. Records are appended to files that were allocated
 * beforehand, so that neither an append nor its fdatasync has to wait for the file system to find space.
 *
 * A start never appends to a file of an earlier run: what lies beyond its last whole record is unknown.
 */

export interface JournalOptions {
  readonly directory: string;
  readonly segmentBytes: number;
  readonly disk: Disk;
  readonly log: Logger;
  readonly clock: Clock;
  /** Gives room back for the first file where the disk is full; without: there is none. */
  readonly startRoom?: Pick<StartRoom, 'give' | 'refill'>;
}

/** What a start takes of it at once: half becomes the journal's file, the rest is for the index. */
const START_ROOM_BYTES = 320 * 1024;
/** The next file is made ahead where so many of its size are free: what is left then is for those who write. */
const SPARE_ROOM_FILES = 2;
/** After a power cut or damage: the last closed files may be missing, and only this message reports it. */
const UNREADABLE = 'journal file cannot be read to its end: the records there are forgotten';
/** How long after it found no room, or failed, it is tried again. */
const SPARE_PAUSE_MS = 1000;

export class Journal {
  readonly #options: JournalOptions;
  /** Older files, oldest first: dropped from the front once LMDB holds their records for good. */
  readonly #older: Segment[];
  /** Null after a start on a disk that had no room for it: the first record asks again. */
  #current: OpenSegment | null;
  /** Number and last record of what lay there at the start. */
  readonly #found: { readonly number: number; readonly last: number };
  /** Files that were rotated away from and not synced yet. */
  #unsynced: OpenSegment[] = [];
  /** Whether the next file lies ready under `sparePath`. */
  #hasSpare = false;
  #allocation: Promise<void> | null = null;
  /** `elapsedMs` before which the next file is not tried again. */
  #spareFromMs = 0;
  #isSpareLacking = false;
  /** null: still to be begun. */
  #directorySync: Promise<void> | null;
  #syncing: Promise<void> | null = null;
  #syncQueued: Promise<void> | null = null;
  /** After a failed fdatasync the kernel may have dropped the pages: nothing more can be promised in this run. */
  #broken: StorageError | null = null;
  #scratch = Buffer.allocUnsafe(64 * 1024);
  #isRemovalFailing = false;
  #closed = false;

  private constructor(
    options: JournalOptions,
    older: Segment[],
    current: OpenSegment | null,
    found: { readonly number: number; readonly last: number },
    directorySync: Promise<void>,
  ) {
    this.#options = options;
    this.#older = older;
    this.#current = current;
    this.#found = found;
    this.#directorySync = directorySync;
  }

  /**
   * Replays what an earlier run left and opens a new file behind it.
   *
   * `applied` is the sequence number up to which LMDB holds every record for good: it may be ahead of the journal, whose last
   * records a power cut can take although LMDB had synced what it took over from them. Records up to `applied` are not handed
   * out again, and a gap in the numbers is bridged only below it. Everything behind any other gap or damage is forgotten, and
   * its files are removed before anything new is written, so that no later start can take them for the continuation.
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
            'journal has a gap: later records are forgotten',
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
    // What they took may be all the room there is for the new one.
    disk.remove(sparePath(directory));
    for (const path of needless) disk.remove(path);
    // An earlier run may have been killed before it synced them: what this run promises rests on them.
    for (const { path } of kept) await syncSegment(disk, path);

    const found = { number: files.at(-1)?.number ?? 0, last };
    const current = await firstSegment(options, found);
    await disk.syncDirectory(directory);
    return new Journal(options, kept, current, found, Promise.resolve());
  }

  /** Sequence number of the newest record. */
  get last(): number {
    return (this.#current ?? this.#found).last;
  }

  /** Whether the current file is as long as it should be: the disk is not full. */
  get hasFullFile(): boolean {
    return this.#current !== null && this.#current.sizeBytes >= this.#options.segmentBytes;
  }

  /** How many files there are, the current one included. */
  get files(): number {
    return this.#older.length + (this.#current === null ? 0 : 1);
  }

  /** How much more it takes without asking the disk for room, bytes. */
  get roomBytes(): number {
    const { sizeBytes, position } = this.#current ?? { sizeBytes: 0, position: 0 };
    return sizeBytes - position + (this.#hasSpare ? this.#options.segmentBytes - HEADER_BYTES : 0);
  }

  /**
   * Appends one record: `fill` writes the payload (`payloadBytes` of it) into the buffer it is given. The record survives
   * SIGKILL when this returns. When it throws nothing was recorded and the journal can be used as before.
   *
   * @returns the record's sequence number
   * @throws StorageError full when there is no room
   */
  append(payloadBytes: number, fill: (target: Buffer) => void): number {
    if (this.#broken !== null) throw this.#broken;
    const length = RECORD_HEADER_BYTES + payloadBytes;
    const segment = this.#segmentFor(length);
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

  /** Everything appended so far survives a power cut once this resolves. Calls that wait share one fdatasync. */
  sync(): Promise<void> {
    if (this.#syncing === null) {
      this.#syncing = this.#syncNow().finally(() => {
        this.#syncing = null;
      });
      return this.#syncing;
    }
    // The one under way may have begun before the caller's record was appended.
    this.#syncQueued ??= this.#syncing
      .catch(() => {})
      .then(() => {
        this.#syncQueued = null;
        return this.sync();
      });
    return this.#syncQueued;
  }

  /** LMDB holds every record up to `sequence` on the disk: files that hold nothing newer are dropped. Never throws. */
  release(sequence: number): void {
    for (let [oldest] = this.#older; oldest !== undefined && oldest.last <= sequence; [oldest] = this.#older) {
      const { number, path } = oldest;
      try {
        this.#options.disk.remove(path);
      } catch (err) {
        // Read again at the next start, if need be: its records change nothing.
        if (!this.#isRemovalFailing) this.#options.log.warn({ err, file: number }, 'journal file not removed, later');
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

  /** A start that only looked (`cfs doctor`) leaves no file: on a full disk its room goes back to the next start. Never throws. */
  #removeEmpty(): void {
    if (this.#current === null || this.#current.position > HEADER_BYTES) return;
    try {
      this.#options.disk.remove(this.#current.path);
    } catch {
      // The next start removes it.
    }
  }

  async #syncNow(): Promise<void> {
    if (this.#broken !== null) throw this.#broken;
    const { disk, directory } = this.#options;
    const rotated = [...this.#unsynced];
    try {
      this.#directorySync ??= disk.syncDirectory(directory);
      await this.#directorySync;
      // Older files first: a record must never be on the disk when one before it is not.
      for (const segment of rotated) await disk.sync(segment.fd);
      if (this.#current !== null) await disk.sync(this.#current.fd);
    } catch (error) {
      if (isOutOfDescriptors(error)) {
        // The folder was not even opened: nothing is lost, and whoever asks next has it synced.
        this.#directorySync = null;
        throw error;
      }
      this.#broken = new StorageError('the journal could not be synced: restart to go on', { cause: error });
      throw this.#broken;
    }
    this.#unsynced = this.#unsynced.filter((segment) => !rotated.includes(segment));
    for (const segment of rotated) disk.close(segment.fd);
  }

  /** The file that takes a record of `length` bytes. @throws StorageError full */
  #segmentFor(length: number): OpenSegment {
    const current = this.#current;
    return current !== null && current.position + length <= current.sizeBytes ? current : this.#rotate(length);
  }

  /** Continues in a new file: the one allocated ahead, or one that gets its room now (its first syncs are slower). */
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
    // Without the one before, this one is of all the names.
    this.#directorySync = (this.#directorySync ?? Promise.resolve()).then(() => disk.syncDirectory(directory));
    this.#directorySync.catch(() => {}); // heard by the next sync()
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
   * Makes the spare file. On an almost full disk the attempt would briefly take all the room, and concurrent writes would fail with ENOSPC.
   *
   * @returns false where there is too little room. @throws StorageError
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
        // What is there is written over by the next one.
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

  /** Keeps a half-written record from being taken for a whole one. */
  #blank(segment: OpenSegment): void {
    try {
      this.#options.disk.write(segment.fd, new Uint8Array(RECORD_HEADER_BYTES), segment.position);
    } catch {
      // Its checksum does not fit either, and the next append writes over it.
    }
  }
}

/** The file that a start begins with; null where the disk is full. @throws StorageError */
async function firstSegment(
  options: JournalOptions,
  found: { readonly number: number; readonly last: number },
): Promise<OpenSegment | null> {
  const { disk, directory, segmentBytes, startRoom, log } = options;
  const number = found.number + 1;
  const path = segmentPath(directory, number);
  let sizeBytes = await allocateFitting(disk, path, segmentBytes);
  if (sizeBytes === null && startRoom?.give(START_ROOM_BYTES))
    sizeBytes = await allocateFitting(disk, path, segmentBytes);
  if (sizeBytes === null) {
    log.error({}, 'the disk is full: nothing can be changed until it has room');
    return null;
  }
  if (sizeBytes < segmentBytes) log.warn({ sizeBytes }, 'the disk is almost full: a short journal file');
  return beginSegment(options, { number, path, sizeBytes, firstSequence: found.last + 1 });
}
