import type { Clock } from '../base/clock.ts';
import type { ResourceId } from '../protocol/endpoints.ts';
import type { Database } from './database.ts';
import { OverHoldings, versionBytes } from './holdings.ts';
import type { Page } from './list-page.ts';
import { randomSuffix } from './random-suffix.ts';
import { notFound, overQuota } from './refusal.ts';
import type { Repository } from './repository.ts';
import { type FileRow, SEQ_END, TEXT_END, type VersionRow } from './rows.ts';

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
  readonly #removeBlobs: (names: readonly string[]) => Promise<void>;
  readonly #makingRoom = new Map<string, Promise<boolean>>();
  /** Whether a request is writing to a version. */
  #isUnderWay: (version: VersionRow) => boolean = () => false;

  /** @param deps.versionsKept complete versions kept per file, including the newest */
  constructor(deps: {
    database: Database;
    clock: Clock;
    repository: Repository;
    versionsKept: number;
    removeBlobs: (names: readonly string[]) => Promise<void>;
  }) {
    this.#removeBlobs = deps.removeBlobs;
    this.#database = deps.database;
    this.#clock = deps.clock;
    this.#repository = deps.repository;
    this.#versionsKept = deps.versionsKept;
  }

  /** Active uploads are not dropped. */
  spare(isUnderWay: (version: VersionRow) => boolean): void {
    this.#isUnderWay = isUnderWay;
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
      this.#database.holdings.add(file.uid, { unfinished: 1, bytes: versionBytes({ sizeBytes: 0 }) });
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
      if (row.complete) return;
      // The bytes are on the disk already, within the limits of their upload.
      this.#database.holdings.note(row.uid, { bytes: sizeBytes - row.sizeBytes });
      this.#put({ ...row, sizeBytes, lastModifiedMs: this.#clock.nowMs() });
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
      const more = { unfinished: -1, bytes: arrived.sizeBytes - row.sizeBytes };
      this.#database.holdings.add(row.uid, more, arrived.bytes?.byteLength ?? 0);
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
      this.#database.holdings.add(
        file.uid,
        { bytes: versionBytes(arrived) },
        versionBytes({ sizeBytes: arrived.bytes?.byteLength ?? 0 }),
      );
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
    const spareBytes = this.#quotaBytes(file.uid) - this.#repository.usageBytes(file.uid);
    return Math.max(0, spareBytes) + (file.newest?.sizeBytes ?? 0);
  }

  #quotaBytes(uid: string): number {
    return this.#database.users.get(uid)?.quotaBytes ?? 0;
  }

  /** Every version of every file; used at startup, when no client waits. */
  *all(): Generator<VersionRow> {
    for (const { value } of this.#database.versions.getRange({})) yield value;
  }

  /**
   * The same in batches, with other work between them: there may be a million. Rows that change meanwhile appear in
   * either state.
   */
  async *inPieces(
    of: { readonly uid?: string; readonly file?: string } = {},
  ): AsyncGenerator<readonly VersionRow[], void, undefined> {
    const { uid, file } = of;
    const start: Key = [uid ?? '', file ?? '', 0];
    const end: Key = [uid ?? TEXT_END, file ?? TEXT_END, SEQ_END];
    for await (const rows of this.#database.inPieces(this.#database.versions, start, end))
      yield rows.map(({ value }) => value);
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
      for (const row of dead) this.#remove(row);
      return dead.map((row) => row.blob);
    });
  }

  /** Bytes that `uid` may store beyond what is stored already. */
  spareBytes(uid: string): number {
    return this.#database.holdings.limitBytes(uid) - this.#database.holdings.of(uid).bytes;
  }

  /**
   * Repeats an action that finds a limit of the account used up, after dropping what the limit allows to drop: so a
   * history never forbids a save.
   * @param target.file set for a caller who is not the owner: only versions of that file are dropped for him
   * @throws OverHoldings 413 if nothing more can be dropped
   */
  async withRoom<T>(
    target: { readonly uid: string; readonly file?: string | undefined },
    action: () => Promise<T>,
  ): Promise<T> {
    for (let tries = 1; ; tries += 1) {
      try {
        return await action();
      } catch (error) {
        if (!(error instanceof OverHoldings) || error.what === 'entries' || tries === ROOM_TRIES) throw error;
        const dropped = await this.makeRoom(target, error.what === 'bytes' ? error.bytes : 0);
        if (!dropped) throw error;
      }
    }
  }

  /**
   * Drops versions until `bytes` more fit and a tenth of the limit is free: complete ones beyond the newest five of
   * their file, the oldest first; if those are not enough, older ones among the five. A file's content always stays.
   * With `bytes` 0, drops the oldest tenth of the unfinished uploads that are not active.
   * @returns whether it dropped any
   */
  makeRoom(target: { readonly uid: string; readonly file?: string | undefined }, bytes: number): Promise<boolean> {
    const before = this.#makingRoom.get(target.uid) ?? Promise.resolve(false);
    const made = before.catch(() => false).then(() => this.#makeRoom(target, bytes));
    const done = made
      .catch(() => false)
      .finally(() => {
        if (this.#makingRoom.get(target.uid) === done) this.#makingRoom.delete(target.uid);
      });
    this.#makingRoom.set(target.uid, done);
    return made;
  }

  async #makeRoom(
    { uid, file }: { readonly uid: string; readonly file?: string | undefined },
    bytes: number,
  ): Promise<boolean> {
    const { holdings } = this.#database;
    const slackBytes = holdings.limitBytes(uid) / 10;
    if (bytes > 0 && this.spareBytes(uid) >= bytes + slackBytes) return true;
    const range = file === undefined ? { uid } : { uid, file };
    const unfinished: VersionRow[] = [];
    const old: Droppable[] = [];
    let history: VersionRow[] = [];
    const endOfFile = (): void => {
      const kept = history.length - KEPT_VERSIONS;
      // The last one is the content of the file.
      for (const [at, row] of history.slice(0, -1).entries()) old.push({ row, isKept: at >= kept });
      history = [];
    };
    for await (const rows of this.inPieces(range)) {
      for (const row of rows) {
        if (history[0] !== undefined && history[0].file !== row.file) endOfFile();
        if (row.complete) history.push(row);
        else if (!this.#isUnderWay(row)) unfinished.push(row);
      }
    }
    endOfFile();
    if (bytes === 0) {
      const bySilence = unfinished.sort((a, b) => a.lastModifiedMs - b.lastModifiedMs);
      return this.#drop(bySilence.slice(0, Math.ceil(bySilence.length / 10)), () => false);
    }
    const byAge = old.sort((a, b) => Number(a.isKept) - Number(b.isKept) || a.row.seq - b.row.seq);
    const beyond = byAge.filter(({ isKept }) => !isKept).map(({ row }) => row);
    const droppedOld = await this.#drop(beyond, () => this.spareBytes(uid) >= bytes + slackBytes);
    if (this.spareBytes(uid) >= bytes) return droppedOld;
    const among = byAge.filter(({ isKept }) => isKept).map(({ row }) => row);
    return (await this.#drop(among, () => this.spareBytes(uid) >= bytes)) || droppedOld;
  }

  /** Deletes versions in small changes, until there is enough room. @returns whether it deleted any */
  async #drop(rows: readonly VersionRow[], isEnough: () => boolean): Promise<boolean> {
    let dropped = 0;
    for (let at = 0; at < rows.length && !isEnough(); at += DROPPED_AT_ONCE) {
      const blobs = await this.#database.changeTogether(() => {
        const gone: string[] = [];
        for (const { uid, file, seq } of rows.slice(at, at + DROPPED_AT_ONCE)) {
          if (isEnough()) break;
          const row = this.#database.versions.get([uid, file, seq]);
          const content = this.#database.resources.get([uid, file]);
          if (row === undefined || (content?.kind === 'file' && content.newest?.seq === seq)) continue;
          if (!row.complete && this.#isUnderWay(row)) continue;
          this.#remove(row);
          gone.push(row.blob);
        }
        return gone;
      });
      dropped += blobs.length;
      await this.#removeBlobs(blobs);
    }
    return dropped > 0;
  }

  #remove(row: VersionRow): void {
    this.#database.holdings.note(row.uid, { unfinished: row.complete ? 0 : -1, bytes: -versionBytes(row) });
    void this.#database.versions.remove(keyOf(row));
    this.#database.dropBlob(row.blob);
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
      const { seq, sizeBytes, lastModifiedMs, blob } = version;
      const moreBytes = sizeBytes - (file.newest?.sizeBytes ?? 0);
      const usageBytes = this.#repository.usageBytes(file.uid) + moreBytes;
      // As `roomBytes`: a file that does not grow is always accepted.
      if (moreBytes > 0 && usageBytes > this.#quotaBytes(file.uid)) throw overQuota();
      void this.#database.resources.put([file.uid, file.local], {
        ...file,
        newest: { seq, sizeBytes, lastModifiedMs, blob },
      });
      void this.#database.usage.put(file.uid, Math.max(0, usageBytes));
    }
    return { version, dropped: this.#prune(version.uid, version.file) };
  }

  #prune(uid: string, file: string): string[] {
    if (this.#versionsKept === Number.POSITIVE_INFINITY) return [];
    const superseded = this.#rows(uid, file)
      .filter((row) => row.complete)
      .slice(this.#versionsKept);
    for (const row of superseded) this.#remove(row);
    return superseded.map((row) => row.blob);
  }
}

/** A superseded complete version. */
interface Droppable {
  readonly row: VersionRow;
  /** Among the newest of its file. */
  readonly isKept: boolean;
}

/** Complete versions of a file, including the newest, that stay as long as they alone are within the limit. */
export const KEPT_VERSIONS = 5;
const DROPPED_AT_ONCE = 200;
/** The limit is exact: a change that comes between can use the room. */
const ROOM_TRIES = 4;
function keyOf({ uid, file, seq }: VersionRow): [string, string, number] {
  return [uid, file, seq];
}

type Key = [string, string, number];
type VersionRange = { start: [string, string, number]; end: [string, string, number]; reverse: boolean };
