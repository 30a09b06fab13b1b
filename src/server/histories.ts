import type { Clock } from '../base/clock.ts';
import type { ResourceId } from '../protocol/endpoints.ts';
import { type Database, type FileRow, SEQ_END, type VersionRow } from './database.ts';
import type { Page } from './listing.ts';
import { randomSuffix } from './random-suffix.ts';
import { notFound, overQuota } from './refusal.ts';
import type { Repository } from './repository.ts';

/** A blob that arrived in full. */
export interface ArrivedBlob {
  readonly blob: string;
  readonly sizeBytes: number;
  /** Hexadecimal; null where it is computed later. */
  readonly sha256: string | null;
  /** Of a small blob: kept with the row. */
  readonly bytes: Uint8Array | null;
}

/** Where a version stands in its file's history: behind all that were begun before it. */
export interface Place {
  readonly seq: number;
  /** With `seq` the version's name. */
  readonly suffix: string;
  readonly createdMs: number;
}

/**
 * The rows of versions: what a file was, is, and is to become (docs/service.md 7). Their bytes are with `uploads.ts`.
 *
 * Versions stand in the order in which they were created, newest first; the file itself is its newest *complete* version.
 * So an upload that was begun earlier and ends later than another does not take the file back.
 * ASSUMED (docs/service.md 7.1)
 */
export class Histories {
  readonly #database: Database;
  readonly #clock: Clock;
  readonly #repository: Repository;
  readonly #versionsKept: number;

  /** @param deps.versionsKept complete versions of one file, the newest included */
  constructor(deps: { database: Database; clock: Clock; repository: Repository; versionsKept: number }) {
    this.#database = deps.database;
    this.#clock = deps.clock;
    this.#repository = deps.repository;
    this.#versionsKept = deps.versionsKept;
  }

  /** Newest first. Only the page itself is read: where all versions are kept, a file that is saved often has tens of thousands. */
  list({ uid, local }: FileRow, start: number, max: number): Page<VersionRow> {
    // One more than asked for: whether there is more. The offset as in Repository.#children.
    const rows = this.#rows(uid, local, { offset: Math.min(start, 2 ** 32 - 1), limit: max + 1 });
    return { entries: rows.slice(0, max), start, hasMore: rows.length > max };
  }

  /** The newest complete version; null of a file that was never filled. */
  newest({ uid, local, newest }: FileRow): VersionRow | null {
    return newest === null ? null : (this.#database.versions.get([uid, local, newest.seq]) ?? null);
  }

  /** @throws Refusal 404 */
  version(file: FileRow, version: string): VersionRow {
    const seq = Number(/^(\d{1,15})_\d{1,20}$/.exec(version)?.[1]);
    const row = Number.isSafeInteger(seq) ? this.#database.versions.get([file.uid, file.local, seq]) : undefined;
    if (row?.version !== version) throw notFound();
    return row;
  }

  /** A version without data yet. */
  create(caller: string, id: ResourceId, blob: string): VersionRow {
    return this.#database.change(() => {
      const file = this.#repository.file(caller, id, 'write');
      const place = this.place();
      return this.#put({
        ...this.#newRow(file, place),
        lastModifiedMs: place.createdMs,
        complete: false,
        sizeBytes: 0,
        blob,
        sha256: null,
      });
    });
  }

  /**
   * How much of an incomplete version is certainly on the disk, and that its sender is not gone.
   * @throws Refusal 404 when the file or the version was deleted meanwhile
   */
  recordProgress(version: VersionRow, sizeBytes: number): void {
    this.#database.change(() => {
      const row = this.#rowOf(version);
      if (!row.complete) this.#put({ ...row, sizeBytes, lastModifiedMs: this.#clock.nowMs() });
    });
  }

  /** Whether there is such a version still. */
  has(version: VersionRow): boolean {
    return this.#database.versions.get(keyOf(version)) !== undefined;
  }

  /**
   * A version that has arrived in full: the file's newest, if no later one is.
   * @returns the version, and the blobs of versions that are kept no longer
   * @throws Refusal 404 when the file or the version was deleted meanwhile, 413
   */
  complete(version: VersionRow, arrived: ArrivedBlob): { version: VersionRow; dropped: string[] } {
    return this.#database.change(() => {
      const file = this.#fileOf(version.uid, version.file);
      const row = this.#rowOf(version);
      return this.#finish(file, { ...row, lastModifiedMs: this.#clock.nowMs() }, arrived);
    });
  }

  /**
   * The next place in the order of versions: for one that is made in one step, before its bytes come. What is begun and acknowledged
   * while they do is newer. Costs no commit; a place that comes to nothing is left out.
   */
  place(): Place {
    return { seq: this.#database.reserveNumber(), suffix: randomSuffix(), createdMs: this.#clock.nowMs() };
  }

  /**
   * A version made in one step (docs/service.md 6.1), in the place that it was given. Where as many newer ones are complete as are kept, it goes at
   * once, as it would have gone for them: its blob is among the dropped ones.
   * @throws Refusal as `complete`
   */
  add(target: FileRow, arrived: ArrivedBlob, place = this.place()): { version: VersionRow; dropped: string[] } {
    return this.#database.change(() => {
      const file = this.#fileOf(target.uid, target.local);
      return this.#finish(file, { ...this.#newRow(file, place), lastModifiedMs: this.#clock.nowMs() }, arrived);
    });
  }

  /** The hash of a complete version. One that is gone by now is left so. */
  recordHash(version: VersionRow, sha256: string): void {
    this.#database.change(() => {
      const row = this.#database.versions.get(keyOf(version));
      if (row !== undefined) this.#put({ ...row, sha256 });
    });
  }

  /** How many bytes a new version of `file` may have: never fewer than it has, also of an account that holds more than it may by now. */
  roomBytes(file: FileRow): number {
    const quotaBytes = this.#database.users.get(file.uid)?.quotaBytes ?? 0;
    return Math.max(0, quotaBytes - this.#repository.usageBytes(file.uid)) + (file.newest?.sizeBytes ?? 0);
  }

  /** Every version of every file: for a start, when nobody waits. */
  *all(): Generator<VersionRow> {
    for (const { value } of this.#database.versions.getRange({})) yield value;
  }

  /** The same in pieces, between which everybody else has his turn: there may be a million. What changes meanwhile is told as it was or is. */
  async *inPieces(): AsyncGenerator<readonly VersionRow[], void, undefined> {
    for (let from = {}; ; ) {
      const rows = [...this.#database.versions.getRange({ ...from, limit: PIECE_ROWS })].map(({ value }) => value);
      yield rows;
      const last = rows.at(-1);
      if (last === undefined || rows.length < PIECE_ROWS) return;
      from = { start: keyOf(last), exclusiveStart: true };
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /** Forgets incomplete versions that nothing was added to since `beforeMs`, nor is now. @returns their blobs */
  async dropAbandoned(beforeMs: number, isUnderWay: (version: VersionRow) => boolean): Promise<string[]> {
    const isDead = (row: VersionRow): boolean => !row.complete && row.lastModifiedMs < beforeMs && !isUnderWay(row);
    const seen: VersionRow[] = [];
    for await (const rows of this.inPieces()) seen.push(...rows.filter(isDead));
    if (seen.length === 0) return [];
    return this.#database.change(() => {
      // Somebody may have gone on with one since it was seen.
      const dead = seen.flatMap((row) => this.#database.versions.get(keyOf(row)) ?? []).filter(isDead);
      for (const row of dead) void this.#database.versions.remove(keyOf(row));
      return dead.map((row) => row.blob);
    });
  }

  #rows(uid: string, file: string, part: { readonly offset?: number; readonly limit?: number } = {}): VersionRow[] {
    const range = { start: [uid, file, SEQ_END], end: [uid, file, 0], reverse: true, ...part } as const;
    return [...this.#database.versions.getRange(range as unknown as VersionRange)].map(({ value }) => value);
  }

  #fileOf(uid: string, local: string): FileRow {
    const row = this.#database.resources.get([uid, local]);
    if (row?.kind !== 'file') throw notFound();
    return row;
  }

  /** @throws Refusal 404 */
  #rowOf(version: VersionRow): VersionRow {
    const row = this.#database.versions.get(keyOf(version));
    if (row === undefined) throw notFound();
    return row;
  }

  #newRow(file: FileRow, { seq, suffix, createdMs }: Place) {
    this.#database.keepNumber(seq);
    const version = `${seq}_${suffix}`;
    return { uid: file.uid, file: file.local, seq, version, createdMs, mediaType: file.mediaType };
  }

  #put(row: VersionRow): VersionRow {
    void this.#database.versions.put(keyOf(row), row);
    return row;
  }

  #finish(
    file: FileRow,
    begun: Omit<VersionRow, keyof ArrivedBlob | 'complete'>,
    { blob: name, sizeBytes: length, sha256, bytes }: ArrivedBlob,
  ): { version: VersionRow; dropped: string[] } {
    const version = this.#put({ ...begun, complete: true, blob: name, sizeBytes: length, sha256 });
    if (bytes !== null) void this.#database.smallBlobs.put(name, bytes);
    if (version.seq > (file.newest?.seq ?? 0)) {
      if (version.sizeBytes > this.roomBytes(file)) throw overQuota();
      const { seq, sizeBytes, lastModifiedMs, blob } = version;
      void this.#database.resources.put([file.uid, file.local], {
        ...file,
        newest: { seq, sizeBytes, lastModifiedMs, blob },
      });
      const usageBytes = this.#repository.usageBytes(file.uid) - (file.newest?.sizeBytes ?? 0) + sizeBytes;
      void this.#database.usage.put(file.uid, Math.max(0, usageBytes));
    }
    return { version, dropped: this.#prune(version.uid, version.file) };
  }

  #prune(uid: string, file: string): string[] {
    if (this.#versionsKept === Number.POSITIVE_INFINITY) return [];
    const superseded = this.#rows(uid, file)
      .filter((row) => row.complete)
      .slice(this.#versionsKept);
    for (const row of superseded) {
      void this.#database.versions.remove([uid, file, row.seq]);
      void this.#database.smallBlobs.remove(row.blob);
    }
    return superseded.map((row) => row.blob);
  }
}

/** Some milliseconds of reading. */
const PIECE_ROWS = 500;

function keyOf({ uid, file, seq }: VersionRow): [string, string, number] {
  return [uid, file, seq];
}

type VersionRange = { start: [string, string, number]; end: [string, string, number]; reverse: boolean };
