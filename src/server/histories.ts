import type { Clock } from '../base/clock.ts';
import type { ResourceId } from '../protocol/endpoints.ts';
import { type Database, type FileRow, SEQ_END, type VersionRow } from './database.ts';
import { type Page, page } from './listing.ts';
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

  /** Newest first. */
  list(file: FileRow, start: number, max: number): Page<VersionRow> {
    return page(this.#rows(file.uid, file.local), start, max);
  }

  /** @throws Refusal 404 */
  version(file: FileRow, version: string): VersionRow {
    const seq = Number(/^(\d{1,15})_\d{1,15}$/.exec(version)?.[1]);
    const row = Number.isSafeInteger(seq) ? this.#database.versions.get([file.uid, file.local, seq]) : undefined;
    if (row?.version !== version) throw notFound();
    return row;
  }

  /** A version without data yet. */
  create(caller: string, id: ResourceId, blob: string): VersionRow {
    return this.#database.change(() => {
      const file = this.#repository.file(caller, id, 'write');
      const now = this.#clock.nowMs();
      return this.#put({
        ...this.#newRow(file, now),
        lastModifiedMs: now,
        complete: false,
        sizeBytes: 0,
        blob,
        sha256: null,
      });
    });
  }

  /** How much of an incomplete version is certainly on the disk. A version that is gone by now is left so. */
  recordProgress(version: VersionRow, sizeBytes: number): void {
    this.#database.change(() => {
      const row = this.#database.versions.get([version.uid, version.file, version.seq]);
      if (row !== undefined && !row.complete) this.#put({ ...row, sizeBytes, lastModifiedMs: this.#clock.nowMs() });
    });
  }

  /**
   * A version that has arrived in full: the file's newest, if no later one is.
   * @returns the version, and the blobs of versions that are kept no longer
   * @throws Refusal 404 when the file or the version was deleted meanwhile, 413
   */
  complete(version: VersionRow, arrived: ArrivedBlob): { version: VersionRow; dropped: string[] } {
    return this.#database.change(() => {
      const file = this.#fileOf(version.uid, version.file);
      const row = this.#database.versions.get([version.uid, version.file, version.seq]);
      if (row === undefined) throw notFound();
      return this.#finish(file, { ...row, lastModifiedMs: this.#clock.nowMs() }, arrived);
    });
  }

  /** A version made in one step (interface 4.7). @throws Refusal as `complete` */
  add(target: FileRow, arrived: ArrivedBlob): { version: VersionRow; dropped: string[] } {
    return this.#database.change(() => {
      const file = this.#fileOf(target.uid, target.local);
      const now = this.#clock.nowMs();
      return this.#finish(file, { ...this.#newRow(file, now), lastModifiedMs: now }, arrived);
    });
  }

  /** The hash of a complete version. One that is gone by now is left so. */
  recordHash(version: VersionRow, sha256: string): void {
    this.#database.change(() => {
      const row = this.#database.versions.get([version.uid, version.file, version.seq]);
      if (row !== undefined) this.#put({ ...row, sha256 });
    });
  }

  /** How many bytes a new version of `file` may have. */
  roomBytes(file: FileRow): number {
    const quotaBytes = this.#database.users.get(file.uid)?.quotaBytes ?? 0;
    return quotaBytes - this.#repository.usageBytes(file.uid) + (file.newest?.sizeBytes ?? 0);
  }

  /** Every version of every file. */
  *all(): Generator<VersionRow> {
    for (const { value } of this.#database.versions.getRange({})) yield value;
  }

  /** Forgets incomplete versions that nothing was added to since `beforeMs`. @returns their blobs */
  dropAbandoned(beforeMs: number): string[] {
    const dead = [...this.all()].filter((row) => !row.complete && row.lastModifiedMs < beforeMs);
    if (dead.length === 0) return [];
    this.#database.change(() => {
      for (const row of dead) void this.#database.versions.remove([row.uid, row.file, row.seq]);
    });
    return dead.map((row) => row.blob);
  }

  #rows(uid: string, file: string): VersionRow[] {
    const range = { start: [uid, file, SEQ_END], end: [uid, file, 0], reverse: true } as const;
    return [...this.#database.versions.getRange(range as unknown as VersionRange)].map(({ value }) => value);
  }

  #fileOf(uid: string, local: string): FileRow {
    const row = this.#database.resources.get([uid, local]);
    if (row?.kind !== 'file') throw notFound();
    return row;
  }

  #newRow(file: FileRow, createdMs: number) {
    const seq = this.#database.nextNumber();
    const version = `${seq}_${this.#database.nextNumber()}`;
    return { uid: file.uid, file: file.local, seq, version, createdMs, mediaType: file.mediaType };
  }

  #put(row: VersionRow): VersionRow {
    void this.#database.versions.put([row.uid, row.file, row.seq], row);
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

type VersionRange = { start: [string, string, number]; end: [string, string, number]; reverse: boolean };
