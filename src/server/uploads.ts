import type { IncomingHttpHeaders } from 'node:http';
import type { Clock } from '../base/clock.ts';
import { systemCodeOf } from '../base/errors.ts';
import type { ResourceId } from '../protocol/endpoints.ts';
import type { Accounts, Session } from './accounts.ts';
import type { BlobWriter } from './blob-writer.ts';
import type { Blobs } from './blobs.ts';
import type { Database } from './database.ts';
import type { BodyOutcome, Exchange } from './exchange.ts';
import type { Histories } from './histories.ts';
import { notFound, overQuota, Refusal } from './refusal.ts';
import type { Repository } from './repository.ts';
import type { FileRow, VersionRow } from './rows.ts';
import type { Sealer } from './sealer.ts';

/**
 * Receives uploads (docs/service.md 6.1 and 7.4): from a request body to a blob, in an order that survives SIGKILL at any
 * point: bytes, sync, row, response. Acknowledged data exist; unacknowledged data leave a blob without a row.
 *
 * INVARIANT: at most one request writes to one version. A second one gets 416, like any request with a wrong offset:
 * its sender then asks for the version's length and sees it grow.
 */
export class Uploads {
  readonly #database: Database;
  readonly #blobs: Blobs;
  readonly #histories: Histories;
  readonly #sealer: Sealer;
  readonly #accounts: Accounts;
  readonly #repository: Repository;
  readonly #clock: Clock;
  readonly #underWay = new Map<string, BlobWriter | null>();
  /** Bytes that active uploads to an account have stored, but not recorded. */
  readonly #arriving = new Map<string, number>();

  constructor(deps: {
    database: Database;
    blobs: Blobs;
    histories: Histories;
    sealer: Sealer;
    accounts: Accounts;
    repository: Repository;
    clock: Clock;
  }) {
    this.#database = deps.database;
    this.#blobs = deps.blobs;
    this.#sealer = deps.sealer;
    this.#accounts = deps.accounts;
    this.#repository = deps.repository;
    this.#histories = deps.histories;
    this.#clock = deps.clock;
  }

  /** Bytes stored of an incomplete version, including those of an active upload. */
  async storedBytes(version: VersionRow): Promise<number> {
    return this.#underWay.get(keyOf(version))?.sizeBytes ?? (await this.#blobs.sizeBytes(version.blob)) ?? 0;
  }

  /**
   * Creates a version in one step. An interrupted upload leaves nothing. @throws Refusal 413, 507, 500 if it was cut
   */
  async replaceData(session: Session, id: ResourceId, exchange: Exchange): Promise<void> {
    const file = this.#repository.file(session.uid, id, 'write');
    const place = this.#histories.place();
    const roomBytes = await this.#room(session, file, 0, exchange);
    const blob = this.#blobs.newName();
    const writer = this.#blobs.write(blob, 0);
    const arriving = new Arriving(this.#arriving, file.uid);
    try {
      const outcome = await this.#take(writer, roomBytes, exchange, arriving);
      if (outcome === 'tooLong') throw overQuota();
      if (outcome !== 'complete') throw exchange.orderedRefusal ?? new Refusal(500, 'The data did not arrive in full');
      const finished = await writer.finish();
      const arrived = { blob, sizeBytes: writer.sizeBytes, ...finished };
      const { version, dropped } = await this.#histories.withRoom(roomFor(session, file), () =>
        this.#database.changeTogether(() => {
          this.#checkStillAllowed(session, file);
          return this.#histories.add(file, arrived, place);
        }),
      );
      await this.#blobs.remove(dropped);
      this.#sealer.add(version);
    } catch (error) {
      // A sync failure does not matter: the blob is deleted.
      await writer.close().catch(() => {});
      await this.#blobs.remove([blob]);
      throw error;
    } finally {
      arriving.end();
    }
  }

  /**
   * Continues an incomplete version at `offset`. It is complete if the request body ended as announced.
   * @throws Refusal 404 if it was deleted meanwhile, 416 if it holds another number of
   * bytes, 413, 507; bytes received before are kept
   */
  async append(
    session: Session,
    file: FileRow,
    version: VersionRow,
    offset: number,
    exchange: Exchange,
  ): Promise<VersionRow> {
    const key = keyOf(version);
    if (this.#underWay.has(key)) throw wrongOffset(await this.storedBytes(version));
    this.#underWay.set(key, null);
    let writer: BlobWriter | null = null;
    const arriving = new Arriving(this.#arriving, file.uid);
    try {
      const stored = (await this.#blobs.sizeBytes(version.blob)) ?? 0;
      if (offset !== stored) throw wrongOffset(stored);
      const roomBytes = await this.#room(session, file, offset, exchange);
      if (version.lastModifiedMs < this.#clock.nowMs() - TOUCHED_AFTER_MS) await this.#touch(version);
      writer = this.#blobs.write(version.blob, offset, Math.min(offset, version.sizeBytes));
      this.#underWay.set(key, writer);
      return await this.#receive({ session, file, version, writer, roomBytes, exchange, arriving });
    } finally {
      arriving.end();
      // After success the writer is closed already. Otherwise an error is being thrown, and a second failure adds
      // nothing.
      await writer?.close().catch(() => {});
      this.#underWay.delete(key);
      // The version was deleted during the upload: bytes that arrived later may have recreated its blob.
      if (!this.#histories.has(version)) await this.#blobs.remove([version.blob]);
    }
  }

  /**
   * Duplicates a blob: by hard link, or by a copy if the file system has no hard links (exFAT, some network file
   * systems) or the limit is reached (ext4: 65,000).
   * @returns the bytes if they are few, not yet stored @throws Error ENOENT if there is no such file · Refusal 507
   */
  async duplicate(from: string, to: string, sizeBytes: number): Promise<Uint8Array | null> {
    try {
      await this.#blobs.link(from, to);
      return null;
    } catch (error) {
      if (systemCodeOf(error) === 'ENOENT') throw error;
    }
    this.#database.reserve.check(sizeBytes);
    const writer = this.#blobs.write(to, 0);
    try {
      // The reader recycles its buffers; the writer keeps bytes while they are few.
      for await (const piece of await this.#blobs.read(from, 0, sizeBytes))
        await this.#database.reserve.spend(piece.byteLength, () => writer.write([Buffer.from(piece)]));
      return (await writer.finish()).bytes;
    } catch (error) {
      await writer.close().catch(() => {});
      await this.#blobs.remove([to]);
      throw error;
    }
  }

  /** Whether a request is writing to the version. */
  isUnderWay(version: VersionRow): boolean {
    return this.#underWay.has(keyOf(version));
  }

  /** Number of versions being written. */
  get underWay(): number {
    return this.#underWay.size;
  }

  async #receive(upload: {
    readonly session: Session;
    readonly file: FileRow;
    readonly version: VersionRow;
    readonly writer: BlobWriter;
    readonly roomBytes: number;
    readonly exchange: Exchange;
    readonly arriving: Arriving;
  }): Promise<VersionRow> {
    const { session, file, version, writer, roomBytes, exchange, arriving } = upload;
    const outcome = await this.#take(writer, roomBytes, exchange, arriving).catch(async (error) => {
      await this.#keepWhatArrived(version, writer);
      throw error;
    });
    if (outcome !== 'complete') {
      await writer.suspend();
      const { sizeBytes } = writer;
      await this.#database.changeTogether(() => this.#histories.recordProgress(version, sizeBytes));
      if (outcome === 'tooLong') throw overQuota();
      if (outcome === 'stopped' && exchange.orderedRefusal !== null) throw exchange.orderedRefusal;
      return version;
    }
    const finished = await writer.finish();
    const arrived = { blob: version.blob, sizeBytes: writer.sizeBytes, ...finished };
    const { version: complete, dropped } = await this.#histories.withRoom(roomFor(session, file), () =>
      this.#database.changeTogether(() => {
        this.#checkStillAllowed(session, file);
        return this.#histories.complete(version, arrived);
      }),
    );
    await this.#blobs.remove(dropped);
    this.#sealer.add(complete);
    return complete;
  }

  /**
   * After a disk failure, records the synced bytes, so that they are not sent again and the next boot does not truncate
   * them.
   */
  async #keepWhatArrived(version: VersionRow, writer: BlobWriter): Promise<void> {
    // Ignore failures here: the sender must get the original error.
    await writer.suspend().catch(() => writer.close().catch(() => {}));
    const { syncedBytes } = writer;
    const kept = this.#database.changeTogether(() => this.#histories.recordProgress(version, syncedBytes));
    await kept.catch(() => {});
  }

  /** Renews the expiry of an upload resumed late and slowly, before it ends: the server may be killed meanwhile. */
  async #touch(version: VersionRow): Promise<void> {
    await this.#database.changeTogether(() => this.#histories.recordProgress(version, version.sizeBytes));
  }

  /** Permission and sign-in may have been withdrawn while the bytes arrived. @throws Refusal 401, 403, 404 */
  #checkStillAllowed(session: Session, file: FileRow): void {
    this.#accounts.checkCurrent(session);
    // An owner may write as long as there is the row, which is read anyway.
    if (session.uid !== file.uid) this.#repository.file(session.uid, file, 'write');
  }

  #take(writer: BlobWriter, roomBytes: number, exchange: Exchange, arriving: Arriving): Promise<BodyOutcome> {
    return exchange.receive((chunks) => {
      const bytes = chunks.reduce((sum, chunk) => sum + chunk.byteLength, 0);
      arriving.add(bytes);
      if (arriving.bytes > SMALL_BYTES && this.#storedRoom(arriving.uid) < 0) throw overQuota();
      return this.#database.reserve.spend(bytes, () => writer.write(chunks));
    }, roomBytes);
  }

  /** Maximum number of bytes after `offset`. @throws Refusal 413 or 507 if more are announced */
  async #room(session: Session, file: FileRow, offset: number, exchange: Exchange): Promise<number> {
    const announced = exchange.contentLength ?? 0;
    const quotaBytes = this.#histories.roomBytes(file) - offset;
    if (announced > quotaBytes) throw overQuota();
    // Few bytes are checked as they arrive, and again with their row.
    if (announced > SMALL_BYTES) this.#database.reserve.check(announced);
    // A body of unknown length finds some room, as far as a history can give it.
    const wanted = exchange.contentLength ?? Math.min(quotaBytes, UNKNOWN_BYTES);
    // The change that completes few bytes checks them against the limit of the account. Not so for a continued upload:
    // many small pieces are much.
    if (offset === 0 && wanted <= SMALL_BYTES) return quotaBytes;
    if (wanted > this.#storedRoom(file.uid)) await this.#histories.makeRoom(roomFor(session, file), wanted);
    const storedBytes = this.#storedRoom(file.uid);
    if (announced > storedBytes) throw overQuota();
    return Math.min(quotaBytes, Math.max(0, storedBytes));
  }

  /** Bytes that the account may store beyond those stored and arriving. */
  #storedRoom(uid: string): number {
    return this.#histories.spareBytes(uid) - (this.#arriving.get(uid) ?? 0);
  }
}

/** The bytes of one active upload, until they are recorded. */
class Arriving {
  readonly uid: string;
  readonly #all: Map<string, number>;
  #bytes = 0;

  /** @param all bytes by account */
  constructor(all: Map<string, number>, uid: string) {
    this.#all = all;
    this.uid = uid;
  }

  get bytes(): number {
    return this.#bytes;
  }

  add(bytes: number): void {
    this.#bytes += bytes;
    this.#all.set(this.uid, (this.#all.get(this.uid) ?? 0) + bytes);
  }

  end(): void {
    const left = (this.#all.get(this.uid) ?? 0) - this.#bytes;
    this.#bytes = 0;
    if (left > 0) this.#all.set(this.uid, left);
    else this.#all.delete(this.uid);
  }
}

/** A receiver of a share drops only old versions of the file that he saves. */
export function roomFor(session: Session, file: FileRow): { uid: string; file?: string } {
  return session.uid === file.uid ? { uid: file.uid } : { uid: file.uid, file: file.local };
}

/** Smaller uploads are checked only when they are recorded: each of the limited number of requests has one. */
const SMALL_BYTES = 64 * 1024;
/** Room that a history gives to a body of unknown length. */
const UNKNOWN_BYTES = 64 * 1024 * 1024;
/** Uploads resumed sooner are not worth a commit. */
const TOUCHED_AFTER_MS = 3600_000;

/**
 * `Range: bytes=<n>-`: the offset of the body (docs/service.md 7.4). Without it the body starts at 0, which does not replace
 * stored bytes. ASSUMED (docs/service.md 7.4)
 * @throws Refusal 400 for any other form, and for Content-Range (RFC 9110, 14.5): the part would be taken for the whole
 */
export function uploadOffset(headers: IncomingHttpHeaders): number {
  if (headers['content-range'] !== undefined) throw new Refusal(400, 'Content-Range: only Range is understood');
  if (headers.range === undefined) return 0;
  const digits = /^\s*bytes\s*=\s*(\d{1,15})-\s*$/i.exec(headers.range)?.[1];
  if (digits === undefined) throw new Refusal(400, 'Range: only bytes=<first>- is understood');
  return Number(digits);
}

function wrongOffset(storedBytes: number): Refusal {
  return new Refusal(416, 'The data do not continue what is stored', { 'Content-Range': `bytes */${storedBytes}` });
}

function keyOf(version: VersionRow): string {
  return `${version.uid}/${version.file}/${version.version}`;
}

/** The data of a readable version. @throws Refusal 404 for none. ASSUMED (docs/service.md 6.4) */
export function blobToRead<T extends { readonly blob: string; readonly sizeBytes: number }>(newest: T | null): T {
  if (newest === null) throw notFound();
  return newest;
}
