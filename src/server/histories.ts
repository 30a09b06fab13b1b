import type { Clock } from '../base/clock.ts';
import type { ResourceId } from '../protocol/endpoints.ts';
import { type Database, type FileRow, SEQ_END, type VersionRow } from './database.ts';
import type { Page } from './listing.ts';
import { randomSuffix } from './random-suffix.ts';
import { notFound, overQuota } from './refusal.ts';
import type { Repository } from './repository.ts';

/** A completely received blob. */
export interface ArrivedBlob {
  readonly blob: string;
  readonly sizeBytes: number;
  /** Hexadecimal; null if it is computed later. */
  readonly sha256: string | null;
  /** Content of a small blob, stored with the row. */
  readonly bytes: Uint8Array | null;
}

/** Position of a version in its file's history: after all versions begun before it. */
export interface Place {
  readonly seq: number;
  /** Together with `seq`, the name of the version. */
  readonly suffix: string;
  readonly createdMs: number;
}

/**
 * The rows of versions (docs/service.md 7). Their bytes are in `uploads.ts`.
 *
 * Versions are ordered by creation, newest first; the file's content is its newest *complete* version. So an upload
 * that began earlier and ends later than another does not revert the file. ASSUMED (docs/service.md 7.1)
 */
export class Histories {
  readonly #database: Database;
  readonly #clock: Clock;
  readonly #repository: Repository;
  readonly #versionsKept: number;

  /** @param deps.versionsKept complete versions kept per file, including the newest */
  constructor(deps: { database: Database; clock: Clock; repository: Repository; versionsKept: number }) {
    this.#database = deps.database;
    this.#clock = deps.clock;
    this.#repository = deps.repository;
    this.#versionsKept = deps.versionsKept;
  }

  /** Newest first. Reads only the page: a file that is saved often has tens of thousands of versions. */
  list({ uid, local }: FileRow, start: number, max: number): Page<VersionRow> {
    // One more than requested shows whether there is more. The offset as in Repository.#children.
    const rows = this.#rows(uid, local, { offset: Math.min(start, 2 ** 32 - 1), limit: max + 1 });
    return { entries: rows.slice(0, max), start, hasMore: rows.length > max };
  }

  /** The newest complete version; null for a file without data. */
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
   * Records how much of an incomplete version is synced, and that its upload is active.
   * @throws Refusal 404 if the file or the version was deleted meanwhile
   */
  recordProgress(version: VersionRow, sizeBytes: number): void {
    this.#database.change(() => {
      const row = this.#rowOf(version);
      if (!row.complete) this.#put({ ...row, sizeBytes, lastModifiedMs: this.#clock.nowMs() });
    });
  }

  /** Whether the version still exists. */
  has(version: VersionRow): boolean {
    return this.#database.versions.get(keyOf(version)) !== undefined;
  }

  /**
   * Completes a version: it becomes the file's content unless a later version is complete.
   * @returns the version, and the blobs of versions no longer kept
   * @throws Refusal 404 if the file or the version was deleted meanwhile, 413
   */
  complete(version: VersionRow, arrived: ArrivedBlob): { version: VersionRow; dropped: string[] } {
    return this.#database.change(() => {
      const file = this.#fileOf(version.uid, version.file);
      const row = this.#rowOf(version);
      return this.#finish(file, { ...row, lastModifiedMs: this.#clock.nowMs() }, arrived);
    });
  }

  /**
   * The next position in the order of versions, for a version created in one step; reserved before its bytes arrive.
   * Versions begun and acknowledged meanwhile are newer. Costs no commit; unused positions are skipped.
   */
  place(): Place {
    return { seq: this.#database.reserveNumber(), suffix: randomSuffix(), createdMs: this.#clock.nowMs() };
  }

  /**
   * Adds a version created in one step (docs/service.md 6.1), at its reserved position. If enough newer versions are
   * complete, it is dropped immediately: its blob is among the dropped ones.
   * @throws Refusal as `complete`
   */
  add(target: FileRow, arrived: ArrivedBlob, place = this.place()): { version: VersionRow; dropped: string[] } {
    return this.#database.change(() => {
      const file = this.#fileOf(target.uid, target.local);
      return this.#finish(file, { ...this.#newRow(file, place), lastModifiedMs: this.#clock.nowMs() }, arrived);
    });
  }

  /** Stores the hash of a complete version; no effect if the version was deleted. */
  recordHash(version: VersionRow, sha256: string): void {
    this.#database.change(() => {
      const row = this.#database.versions.get(keyOf(version));
      if (row !== undefined) this.#put({ ...row, sha256 });
    });
  }

  /**
   * Maximum length of a new version of `file`: never less than its current length, even if the account is over its
   * quota.
   */
  roomBytes(file: FileRow): number {
    const quotaBytes = this.#database.users.get(file.uid)?.quotaBytes ?? 0;
    return Math.max(0, quotaBytes - this.#repository.usageBytes(file.uid)) + (file.newest?.sizeBytes ?? 0);
  }

  /** Every version of every file; used at startup, when no client waits. */
  *all(): Generator<VersionRow> {
    for (const { value } of this.#database.versions.getRange({})) yield value;
  }

  /**
   * The same in batches, with other work between them: there may be a million. Rows that change meanwhile appear in
   * either state.
   */
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

  /**
   * Deletes incomplete versions without progress since `beforeMs` and without an active upload. @returns their blobs
   */
  async dropAbandoned(beforeMs: number, isUnderWay: (version: VersionRow) => boolean): Promise<string[]> {
    const isDead = (row: VersionRow): boolean => !row.complete && row.lastModifiedMs < beforeMs && !isUnderWay(row);
    const seen: VersionRow[] = [];
    for await (const rows of this.inPieces()) seen.push(...rows.filter(isDead));
    if (seen.length === 0) return [];
    return this.#database.change(() => {
      // An upload may have continued since the scan: read the row again.
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

/** Takes some milliseconds to read. */
const PIECE_ROWS = 500;

function keyOf({ uid, file, seq }: VersionRow): [string, string, number] {
  return [uid, file, seq];
}

type VersionRange = { start: [string, string, number]; end: [string, string, number]; reverse: boolean };
