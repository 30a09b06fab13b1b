import { createHash, type Hash, hash, randomUUID } from 'node:crypto';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import type { ResourceId } from '../../protocol/endpoints.ts';
import type { Session } from '../accounts.ts';
import type { BodyOutcome, Exchange } from '../exchange.ts';
import type { HoldingLimits } from '../holdings.ts';
import { type HashedBytes, type HashedFile, type ObjectStore, StoreError } from '../object-store.ts';
import { randomSuffix } from '../random-suffix.ts';
import { overQuota, Refusal, unauthorized } from '../refusal.ts';
import type { FileRow, VersionRow } from '../rows.ts';
import type { UploadRules } from '../rules.ts';
import { Turns } from '../turns.ts';
import { ArrivingPart, PART_BYTES, SMALL_BYTES_MAX } from './arriving-part.ts';
import { BatchedCalls } from './batched-calls.ts';
import { GatheredBytes } from './gathered-bytes.ts';
import { GroupedCalls, type GroupOutcome } from './grouped-calls.ts';
import { newObjectKey, newObjectName } from './object-name.ts';
import { PartBuffers } from './part-buffers.ts';
import type { Postgres } from './postgres.ts';
import {
  checkId,
  groupOutcome,
  joinedOutcomes,
  type SqlLimits,
  type SqlOutcome,
  type SqlTurn,
  type SqlVersion,
  sqlLimits,
  togetherOrApart,
  versionRow,
} from './postgres-rows.ts';

/**
 * Receives uploads in parts: each part becomes an object of its own, recorded before its first byte and again, as a part
 * of the version, after its last one. So any server continues an upload where another stopped, and a killed one loses
 * at most a part (docs/adr/0047).
 *
 * INVARIANT: only the last sender of a version records parts and completes it: each sender raises the epoch of the
 * version, and every change names its own. A lease keeps others away while a sender is active.
 */
export class PostgresUploads implements UploadRules {
  readonly #postgres: Postgres;
  readonly #store: ObjectStore;
  readonly #clock: Clock;
  readonly #directory: string;
  readonly #gathered: GatheredBytes;
  readonly #buffers: PartBuffers;
  /** A store holds some megabytes of each object in memory while it sends them. Accounts take turns. */
  readonly #puts = new Turns({ atOnceMax: PUTS_AT_ONCE_MAX, waitingMax: Number.POSITIVE_INFINITY });
  readonly #lease: string;
  readonly #renewedAfterMs: number;
  readonly #kept: number | null;
  readonly #limits: SqlLimits;
  /** By account, which changes lock until their commit. */
  readonly #saves: GroupedCalls<Save, void>;
  /** Null for a session that has ended. */
  readonly #places = new BatchedCalls<Session, number | null>(async (sessions) => {
    const rows = await this.#postgres.keptRows<{ place: number | null }>(
      'SELECT place FROM places($1, $2, $3) place',
      sessions.map(({ token }) => token),
      sessions.map(({ uid }) => uid),
      this.#clock.nowMs(),
    );
    return rows.map(({ place }) => place);
  });
  #underWay = 0;

  /**
   * @param deps.directory for temporary files
   * @param deps.versionsKept complete versions kept per file, including the newest
   * @param deps.leaseMs how long a sender that died keeps others away
   */
  constructor(deps: {
    postgres: Postgres;
    store: ObjectStore;
    clock: Clock;
    directory: string;
    limits: HoldingLimits;
    versionsKept: number;
    partBytes?: number;
    gatheredBytes?: number;
    partBuffers?: number;
    leaseMs?: number;
  }) {
    this.#postgres = deps.postgres;
    this.#store = deps.store;
    this.#clock = deps.clock;
    this.#directory = deps.directory;
    const partBytes = deps.partBytes ?? PART_BYTES;
    this.#gathered = new GatheredBytes({ bytesMax: deps.gatheredBytes ?? GATHERED_BYTES, partBytes });
    this.#buffers = new PartBuffers({ count: deps.partBuffers ?? PART_BUFFERS, bufferBytes: partBytes });
    const leaseMs = deps.leaseMs ?? LEASE_MS;
    this.#lease = `${leaseMs} milliseconds`;
    this.#renewedAfterMs = leaseMs / 3;
    this.#limits = sqlLimits(deps.limits);
    this.#kept = Number.isFinite(deps.versionsKept) ? deps.versionsKept : null;
    this.#saves = new GroupedCalls<Save, void>(
      (saves, _uid, gathers) => this.#saveTogether(saves, gathers ? 'free' : 'own'),
      {
        // A save that deletes old versions locks their blobs: in one account only, because of the order of locks.
        runJoined:
          this.#kept !== null
            ? null
            : (groups) =>
                joinedOutcomes(
                  groups,
                  (saves) => this.#saveAll(saves, 'joined', false),
                  () => undefined,
                ),
      },
    );
  }

  /** Number of versions that this server receives. */
  get underWay(): number {
    return this.#underWay;
  }

  async storedBytes(version: VersionRow): Promise<number> {
    const row = await this.#postgres.row<{ size_bytes: number }>(
      'SELECT size_bytes FROM versions WHERE uid = $1 AND file = $2 AND seq = $3',
      version.uid,
      version.file,
      version.seq,
    );
    return row?.size_bytes ?? 0;
  }

  async replaceData(session: Session, id: ResourceId, exchange: Exchange): Promise<void> {
    checkId(id);
    const { contentLength } = exchange;
    const isSmall = contentLength !== null && contentLength <= SMALL_BYTES_MAX;
    await this.#counted(() =>
      isSmall ? this.#saveSmall(session, id, exchange) : this.#saveLarge(session, id, exchange),
    );
  }

  async append(
    session: Session,
    file: FileRow,
    version: VersionRow,
    offset: number,
    exchange: Exchange,
  ): Promise<VersionRow> {
    const { epoch, room } = await this.#postgres.one<{ epoch: number; room: number }>(
      'SELECT * FROM take_upload($1, $2, $3, $4, $5, $6, $7, $8, $9)',
      ...[session.uid, file.uid, file.local, version.seq, offset, exchange.contentLength, this.#lease],
      ...[this.#clock.nowMs(), this.#limits],
    );
    const sender = new Sender(session, file, version.seq, epoch, null);
    if (offset > 0) sender.hash = null;
    let isOver = false;
    try {
      return await this.#counted(async () => {
        const outcome = await this.#receive(sender, room, exchange);
        if (outcome === 'complete') {
          const complete = await this.#finish(sender);
          isOver = true;
          return complete;
        }
        await this.#storePart(sender, true);
        isOver = true;
        if (outcome === 'tooLong') throw overQuota();
        if (outcome === 'stopped' && exchange.orderedRefusal !== null) throw exchange.orderedRefusal;
        return version;
      });
    } finally {
      if (!isOver) await this.#record(sender, null, true).catch(() => {});
      await sender.part?.remove();
    }
  }

  /** Few bytes wait in memory for their statement: it checks everything, and is shared by the saves of an account. */
  async #saveSmall(session: Session, id: ResourceId, exchange: Exchange): Promise<void> {
    const createdMs = this.#clock.nowMs();
    // Before the body: of two saves the one that began later is the content, also if its statement comes first.
    const place = await this.#places.call(session);
    if (place === null) throw unauthorized();
    // A caller without permission never joins the saves that wait for the lock of the account.
    if (session.uid !== id.uid)
      await this.#postgres.rows("SELECT entry($1, $2, $3, 'write', true)", session.uid, id.uid, id.local);
    const chunks: Uint8Array[] = [];
    const outcome = await exchange.receive(async (arrived) => void chunks.push(...arrived), SMALL_BYTES_MAX);
    checkWhole(outcome, exchange);
    await this.#saves.call(id.uid, { session, id, place, createdMs, bytes: Buffer.concat(chunks) });
  }

  async #saveTogether(saves: readonly Save[], turn: SqlTurn): Promise<GroupOutcome<void>> {
    const rows = await togetherOrApart(saves.length, (apart) => this.#saveAll(saves, turn, apart));
    return groupOutcome(rows, turn, () => undefined);
  }

  #saveAll(saves: readonly Save[], turn: SqlTurn, apart: boolean): Promise<SqlOutcome[]> {
    return this.#postgres.keptRows<SqlOutcome>(
      'SELECT * FROM save_all($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)',
      saves.map(({ session }) => session.uid),
      saves.map(({ session }) => session.refreshToken),
      saves.map(({ session }) => session.signOuts),
      saves.map(({ id }) => id.uid),
      saves.map(({ id }) => id.local),
      saves.map(({ place }) => place),
      saves.map(() => randomSuffix()),
      saves.map(() => newObjectName()),
      saves.map(({ createdMs }) => createdMs),
      saves.map(({ bytes }) => bytes),
      saves.map(({ bytes }) => hash('sha256', bytes, 'hex')),
      this.#kept,
      this.#clock.nowMs(),
      this.#limits,
      turn,
      apart,
    );
  }

  async #saveLarge(session: Session, file: ResourceId, exchange: Exchange): Promise<void> {
    const createdMs = this.#clock.nowMs();
    const { place, room } = await this.#postgres.one<{ place: number; room: number }>(
      'SELECT * FROM place_upload($1, $2, $3, $4, $5, $6, $7)',
      session.uid,
      session.token,
      file.uid,
      file.local,
      exchange.contentLength,
      createdMs,
      this.#limits,
    );
    const suffix = randomSuffix();
    const blob = newObjectName();
    const begin = async (): Promise<number> => {
      const { epoch } = await this.#postgres.one<SqlVersion>(
        'SELECT * FROM begin_version($1, $2, $3, $4, $5, $6, $7, true, $8, $9)',
        session.uid,
        file.uid,
        file.local,
        place,
        suffix,
        blob,
        createdMs,
        this.#lease,
        this.#limits,
      );
      return epoch;
    };
    const sender = new Sender(session, file, place, null, begin);
    try {
      checkWhole(await this.#receive(sender, room, exchange), exchange);
      if (sender.epoch !== null) {
        await this.#finish(sender);
        return;
      }
      const { bytes, key, etag, sizeBytes, sha256 } = await this.#lastPart(sender);
      await this.#postgres.rows(
        'SELECT replace_data($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)',
        ...[session.uid, session.refreshToken, session.signOuts, file.uid, file.local, place, suffix, blob],
        ...[createdMs, key, etag, sizeBytes, bytes, sha256, this.#kept, this.#clock.nowMs(), this.#limits],
      );
    } catch (error) {
      // The collector deletes it otherwise.
      if (sender.epoch !== null) await this.#forget(sender).catch(() => {});
      throw error;
    } finally {
      await sender.part?.remove();
    }
  }

  async #counted<T>(action: () => Promise<T>): Promise<T> {
    this.#underWay += 1;
    try {
      return await action();
    } finally {
      this.#underWay -= 1;
    }
  }

  #receive(sender: Sender, roomBytes: number, exchange: Exchange): Promise<BodyOutcome> {
    let renewedMs = this.#clock.elapsedMs();
    return exchange.receive(async (chunks) => {
      for (const chunk of chunks) {
        sender.hash?.update(chunk);
        for (let rest = chunk; rest.byteLength > 0; ) {
          // A full part is stored when more bytes follow it: the last one is stored with the completion.
          if (sender.part !== null && sender.part.sizeBytes >= this.#partMax(sender)) {
            await this.#storePart(sender, false);
            renewedMs = this.#clock.elapsedMs();
          }
          sender.part ??= this.#newPart(sender.session.uid);
          const taken = rest.subarray(0, this.#partMax(sender) - sender.part.sizeBytes);
          await sender.part.write(taken);
          rest = rest.subarray(taken.byteLength);
        }
      }
      // A slow sender keeps the version, and what it sent: another server sees the part after the lease.
      if (sender.epoch !== null && this.#clock.elapsedMs() - renewedMs > this.#renewedAfterMs) {
        await this.#storePart(sender, false);
        renewedMs = this.#clock.elapsedMs();
      }
    }, roomBytes);
  }

  #newPart(uid: string): ArrivingPart {
    return new ArrivingPart({
      path: join(this.#directory, randomUUID()),
      clock: this.#clock,
      takeBuffer: () => this.#buffers.take(uid),
      gathered: (bytes) => this.#gathered.add(uid, bytes),
    });
  }

  #partMax({ session, part }: Sender): number {
    return this.#gathered.partMax(session.uid, part?.sizeBytes ?? 0);
  }

  /** Stores what was received as a part of the version. @param isLast ends the lease */
  async #storePart(sender: Sender, isLast: boolean): Promise<void> {
    sender.epoch ??= (await sender.begin?.()) ?? null;
    await this.#record(sender, await this.#put(sender), isLast);
  }

  async #record(sender: Sender, object: Stored | null, isLast: boolean): Promise<void> {
    const { session, file, seq, epoch } = sender;
    await this.#postgres.rows(
      'SELECT add_part($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)',
      ...[session.uid, file.uid, file.local, seq, epoch, object?.key, object?.etag, object?.sizeBytes ?? 0, isLast],
      ...[this.#lease, this.#clock.nowMs(), this.#limits],
    );
  }

  async #finish(sender: Sender): Promise<VersionRow> {
    const { session, file, seq, epoch } = sender;
    const { bytes, key, etag, sizeBytes, sha256 } = await this.#lastPart(sender);
    return versionRow(
      await this.#postgres.one<SqlVersion>(
        'SELECT * FROM finish_upload($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)',
        ...[session.uid, session.refreshToken, session.signOuts, file.uid, file.local, seq, epoch, key, etag],
        ...[sizeBytes, bytes, sha256, this.#kept, this.#clock.nowMs(), this.#limits],
      ),
    );
  }

  /** The bytes themselves if the whole version is few bytes, else the last part as an object, if there is one. */
  async #lastPart(sender: Sender) {
    const sha256 = sender.hash?.digest('hex') ?? null;
    const few = sender.hasParts || sha256 === null ? null : sender.part === null ? new Uint8Array() : sender.part.bytes;
    const object = few === null ? await this.#put(sender) : null;
    return {
      bytes: few,
      key: object?.key ?? null,
      etag: object?.etag ?? null,
      sizeBytes: object?.sizeBytes ?? 0,
      sha256,
    };
  }

  /** Null if nothing was received since the last part. */
  async #put(sender: Sender): Promise<Stored | null> {
    const { part } = sender;
    if (part === null) return null;
    const waiter = { party: sender.session.uid, isGone: () => false };
    try {
      const content = await part.finish();
      const stored = await this.#puts.inTurn(() => this.#putContent(content), waiter);
      sender.hasParts = true;
      return stored;
    } catch (error) {
      if (!(error instanceof StoreError && error.isPassing)) throw error;
      throw new Refusal(503, 'The object store does not answer', { 'Retry-After': '5' }, { cause: error });
    } finally {
      sender.part = null;
      await part.remove();
    }
  }

  async #putContent(content: HashedBytes | HashedFile): Promise<Stored> {
    const key = newObjectKey();
    await this.#postgres.rows("INSERT INTO objects (key, state) VALUES ($1, 'arriving')", key);
    const etag = await this.#store.put(key, content, AbortSignal.timeout(PUT_MS_MAX));
    return { key, etag, sizeBytes: content.sizeBytes };
  }

  async #forget({ file, seq, epoch }: Sender): Promise<void> {
    await this.#postgres.rows('SELECT forget_upload($1, $2, $3, $4)', ...[file.uid, file.local, seq, epoch]);
  }
}

/** A whole version of few bytes. */
interface Save {
  readonly session: Session;
  readonly id: ResourceId;
  readonly place: number;
  readonly createdMs: number;
  readonly bytes: Uint8Array;
}

/** Of a body that becomes a version in one step. @throws Refusal unless all of it arrived */
function checkWhole(outcome: BodyOutcome, exchange: Exchange): void {
  if (outcome === 'tooLong') throw overQuota();
  if (outcome !== 'complete') throw exchange.orderedRefusal ?? new Refusal(500, 'The data did not arrive in full');
}

interface Stored {
  readonly key: string;
  readonly etag: string;
  readonly sizeBytes: number;
}

/** One request that sends a version. */
class Sender {
  readonly session: Session;
  readonly file: ResourceId;
  readonly seq: number;
  /** Null before the version has a row. */
  epoch: number | null;
  /** Makes the row. */
  readonly begin: (() => Promise<number>) | null;
  /** What was received since the last part. */
  part: ArrivingPart | null = null;
  /** Of the whole version; null if other requests sent its beginning. */
  hash: Hash | null = createHash('sha256');
  hasParts = false;

  constructor(
    session: Session,
    file: ResourceId,
    seq: number,
    epoch: number | null,
    begin: (() => Promise<number>) | null,
  ) {
    this.session = session;
    this.file = file;
    this.seq = seq;
    this.epoch = epoch;
    this.begin = begin;
  }
}

/** Of all uploads to this server, in buffers and temporary files. They are lost if the server is killed. */
const GATHERED_BYTES = 64 * PART_BYTES;
const PART_BUFFERS = 12;
/** With a part each in memory, in a buffer or read from its file; enough for a store that answers late. */
const PUTS_AT_ONCE_MAX = 16;
const LEASE_MS = 60_000;
/** An object that takes longer could be taken for interrupted. */
const PUT_MS_MAX = 30 * 60_000;
