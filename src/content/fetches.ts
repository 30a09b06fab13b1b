import { unlessAborted } from '../base/abort.ts';
import type { Clock } from '../base/clock.ts';
import { ApiError, FsError, ProtocolError, StorageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { FetchedRange, WrittenExtent } from '../base/resources.ts';
import type { ServiceHealth } from '../base/service-health.ts';
import { BLOCK_BYTES, type ContentId, type Extent, type VersionUrl } from '../base/vocabulary.ts';
import type { Contents, Piece } from '../bytes/contents.ts';
import { type EarlyBytes, writeAt } from './early-bytes.ts';
import { Fetch } from './fetch.ts';
import type { RequestRetry } from './request-retry.ts';
import type { VersionSource } from './version-source.ts';

/** Size of one ranged GET: long enough to be worth the round trip, short enough that several run in parallel. */
const FETCH_BYTES_MIN = 1024 * 1024;
/**
 * A GET may be longer if a connection transfers it within `FETCH_MS`: each GET pays one round trip. Readers wait only for their own bytes, not
 * for the end of the range. A range that has started is finished even if its reader has moved elsewhere in the file.
 */
const FETCH_BYTES_MAX = 32 * 1024 * 1024;
const FETCH_MS = 1000;
/** The least number of parallel parts of a range that a reader waits for. */
const PARTS_OF_LONG = 8;
/** The best known rate decays with each slower fetch: a fetch may have been queued, or the connection may have become slower. */
const RATE_DECAY = 0.8;
/** A version up to this size is fetched whole: its second read would cost another round trip otherwise. */
export const WHOLE_BYTES_MAX = 1024 * 1024;

export type MissingPiece = Extract<Piece, { kind: 'missing' }>;

export interface FetchesDeps {
  readonly contents: Contents;
  readonly source: VersionSource;
  readonly clock: Clock;
  readonly log: Logger;
  readonly retry: RequestRetry;
  readonly health: ServiceHealth;
}

/**
 * The fetches in flight: which ranged GETs bring a missing piece, and where their bytes go.
 *
 * A failed fetch is retried in the background (`RequestRetry`).
 */
export class Fetches {
  readonly #contents: Contents;
  readonly #source: VersionSource;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #retry: RequestRetry;
  readonly #health: ServiceHealth;

  /** INVARIANT: at most one of them brings a given block, however many readers wait for it. */
  readonly #fetches = new Map<ContentId, Set<Fetch>>();
  #aheadBytes = 0;
  /** Rate of one connection, bytes per millisecond, round trip included. */
  #rate = 0;
  #ignoresRanges = false;
  /** An error other than a full disk is logged once, until data is cached again. */
  #isUncachedLogged = false;

  constructor(deps: FetchesDeps) {
    this.#contents = deps.contents;
    this.#source = deps.source;
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#retry = deps.retry;
    this.#health = deps.health;
  }

  /** Bytes of read-ahead in flight. */
  get aheadBytes(): number {
    return this.#aheadBytes;
  }

  /** Bytes that one connection transfers in `FETCH_MS`: the length of a range of read-ahead; null: not known yet. */
  get paceBytes(): number | null {
    return this.#rate === 0 ? null : Math.max(FETCH_BYTES_MIN, Math.min(FETCH_BYTES_MAX, this.#rate * FETCH_MS));
  }

  /** Bytes that the connections transfer in parallel within `FETCH_MS`. */
  get parallelBytes(): number {
    return PARTS_OF_LONG * (this.paceBytes ?? FETCH_BYTES_MIN);
  }

  /**
   * The ranged GETs that together bring the missing piece; joins fetches in flight.
   *
   * @param prefetch null for a waiting reader; for read-ahead, the signal that cancels the fetches started here
   */
  bringing(piece: MissingPiece, prefetch: AbortSignal | null): readonly Fetch[] {
    const { content } = piece;
    const sizeBytes = this.#contents.sizeOf(content);
    const isWhole = sizeBytes <= WHOLE_BYTES_MAX;
    const wanted = isWhole ? this.#missingOf(content, sizeBytes) : [piece.extent];
    return wanted.flatMap((extent) => this.#fetchesOfRun(content, extent, sizeBytes, prefetch));
  }

  /**
   * The bytes of `early` arrive without a further request, if they are of the version `id`: readers wait for them instead of a fetch.
   *
   * @returns false if there is no use for them
   */
  expect(id: ContentId, early: EarlyBytes): boolean {
    const sizeBytes = this.#contents.sizeOf(id);
    const pieces = early.sizeBytes === sizeBytes ? this.#contents.pieces(id, early.extent) : [];
    const [piece, ...others] = pieces;
    const isMissing = piece?.kind === 'missing' && piece.content === id && others.length === 0;
    if (!isMissing || this.#fetches.has(id)) return false;
    this.#fetch(id, early.extent, sizeBytes, null, early);
    return true;
  }

  /** Whether a fetch in flight has yet to bring some of `extent`. */
  isBringing(id: ContentId, extent: Extent): boolean {
    return [...(this.#fetches.get(id) ?? [])].some((fetch) => fetch.isBringing(extent));
  }

  /** The bytes of `extent` if a fetch in flight has them in memory. */
  arrivedBytes(id: ContentId, extent: Extent): Uint8Array | null {
    for (const fetch of this.#fetches.get(id) ?? []) {
      const bytes = fetch.arrivedBytes(extent);
      if (bytes !== null) return bytes;
    }
    return null;
  }

  /**
   * Fetches bytes of a version past the cache. @throws as a read (`BlockReader.read`)
   *
   * @returns null if the service sends more than the requested range, perhaps the whole file each time: the cache should have it
   */
  async inMemory(id: ContentId, extent: Extent): Promise<Uint8Array | null> {
    if (this.#ignoresRanges) return null;
    const lease = this.#contents.lease(id);
    try {
      const sizeBytes = this.#contents.sizeOf(id);
      const ask = async (signal: AbortSignal): Promise<Uint8Array | null> => {
        const target = { kind: 'memory', isAhead: false } as const;
        const came = () => this.#health.bytesCame();
        const fetched = await this.#source.readVersion(this.#versionOf(id), extent, sizeBytes, target, came, signal);
        if (fetched.isLonger) this.#ignoresRanges = true;
        else if (fetched.bytes === null) throw otherExtent(id, extent, fetched);
        return fetched.isLonger ? null : fetched.bytes;
      };
      return await this.#unlessGone(id, extent, () => this.#retry.ask(ask, undefined, () => extent.start));
    } finally {
      lease.release();
    }
  }

  /** The missing extents of a small version: some of its blocks may have landed while others are in flight. */
  #missingOf(content: ContentId, sizeBytes: number): readonly Extent[] {
    const pieces = this.#contents.pieces(content, { start: 0, end: sizeBytes });
    return pieces.flatMap((piece) => (piece.kind === 'missing' && piece.content === content ? [piece.extent] : []));
  }

  #fetchesOfRun(content: ContentId, extent: Extent, sizeBytes: number, prefetch: AbortSignal | null): readonly Fetch[] {
    const underWay = [...(this.#fetches.get(content) ?? [])].filter((fetch) => fetch.isBringing(extent));
    underWay.sort((a, b) => a.landedTo - b.landedTo);
    const fetches = [...underWay];
    const begin = (run: Extent): void => {
      for (const part of this.#parts(run, prefetch !== null))
        fetches.push(this.#fetch(content, part, sizeBytes, prefetch));
    };
    let { start } = extent;
    for (const fetch of underWay) {
      begin({ start, end: fetch.landedTo });
      start = fetch.extent.end;
    }
    begin({ start, end: extent.end });
    return fetches;
  }

  /** Splits a run of missing bytes into ranges of about equal length: a short rest would cost a round trip for few bytes. */
  #parts(run: Extent, isAhead: boolean): readonly Extent[] {
    const length = run.end - run.start;
    const paceBytes = this.paceBytes ?? FETCH_BYTES_MIN;
    const limit = isAhead ? paceBytes : Math.max(FETCH_BYTES_MIN, Math.min(paceBytes, length / PARTS_OF_LONG));
    const count = Math.max(1, Math.round(length / limit));
    const step = BLOCK_BYTES * Math.ceil(length / count / BLOCK_BYTES);
    const parts: Extent[] = [];
    for (let start = run.start; start < run.end; start += step)
      parts.push({ start, end: Math.min(start + step, run.end) });
    return parts;
  }

  /** Starts a fetch. It is not tied to its first reader, which may be interrupted while others wait. */
  #fetch(
    content: ContentId,
    extent: Extent,
    sizeBytes: number,
    prefetch: AbortSignal | null,
    early: EarlyBytes | null = null,
  ): Fetch {
    const lease = this.#contents.lease(content);
    const giveUp = new AbortController();
    const fetch = new Fetch(content, extent, prefetch !== null);
    const onAbort = (): void => {
      if (fetch.isWanted) return;
      fetch.wasGivenUp = true;
      giveUp.abort(prefetch?.reason);
    };
    const bytes = prefetch === null ? 0 : extent.end - extent.start;
    prefetch?.addEventListener('abort', onAbort, { once: true });
    this.#aheadBytes += bytes;
    this.#note(fetch);
    const over = (): void => {
      prefetch?.removeEventListener('abort', onAbort);
      this.#aheadBytes -= bytes;
      lease.release();
      this.#forget(fetch);
    };
    this.#fetchWithRetry(fetch, sizeBytes, giveUp.signal, early).then(
      () => {
        over();
        fetch.end();
      },
      (error: unknown) => {
        over();
        fetch.fail(error);
      },
    );
    return fetch;
  }

  #note(fetch: Fetch): void {
    const fetches = this.#fetches.get(fetch.content) ?? new Set();
    this.#fetches.set(fetch.content, fetches.add(fetch));
  }

  /** The fetch is over: a reader that misses one of its blocks from now on starts another one. */
  #forget(fetch: Fetch): void {
    const fetches = this.#fetches.get(fetch.content);
    fetches?.delete(fetch);
    if (fetches?.size === 0) this.#fetches.delete(fetch.content);
  }

  async #fetchWithRetry(fetch: Fetch, sizeBytes: number, giveUp: AbortSignal, early: EarlyBytes | null): Promise<void> {
    const ask = async (signal: AbortSignal): Promise<void> => {
      const bytes = early === null ? null : await this.#bytesOf(fetch, early, signal);
      if (bytes !== null) fetch.arrived(bytes);
      await this.#fetchSomewhere(fetch, bytes, sizeBytes, signal);
    };
    await this.#unlessGone(fetch.content, fetch.extent, () => this.#retry.ask(ask, giveUp, () => fetch.landedTo));
  }

  /** @throws FsError ESTALE if the service answers that the version does not exist */
  async #unlessGone<T>(content: ContentId, extent: Extent, ask: () => Promise<T>): Promise<T> {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      this.#log.warn({ content, ...extent }, 'version gone while it was read');
      throw new FsError('ESTALE', 'this version no longer exists on the service', { cause: error });
    }
  }

  /** @throws FsError EIO */
  #versionOf(content: ContentId): VersionUrl {
    const version = this.#contents.record(content)?.version;
    if (version == null) throw new FsError('EIO', `content ${content} has no version to fetch from`);
    return version;
  }

  /** @returns null if the bytes do not come, or are of another version: they are to be fetched */
  async #bytesOf({ content }: Fetch, early: EarlyBytes, signal: AbortSignal): Promise<Uint8Array | null> {
    const newest = await unlessAborted(early.bytes, signal);
    if (newest === null || newest.version !== this.#contents.record(content)?.version) return null;
    this.#health.bytesCame();
    return newest.bytes;
  }

  /**
   * Fetches into the cache, or into memory if the disk is full or fails: readers must not see that failure.
   *
   * @param bytes those of the fetch, if they are here already
   */
  async #fetchSomewhere(fetch: Fetch, bytes: Uint8Array | null, sizeBytes: number, signal: AbortSignal): Promise<void> {
    const into = (path: string | null): Promise<void> =>
      bytes === null ? this.#fetchOnce(fetch, sizeBytes, path, signal) : this.#take(fetch, bytes, path);
    let path: string | null | undefined;
    try {
      path = this.#contents.fetchPath(fetch.content);
      await into(path);
      if (path === null || !this.#isUncachedLogged) return;
      this.#isUncachedLogged = false;
      this.#log.info({}, 'fetched data is cached again');
    } catch (error) {
      if (path === null || !(error instanceof StorageError)) throw error;
      const level = error.full || this.#isUncachedLogged ? 'debug' : 'warn';
      this.#isUncachedLogged ||= !error.full;
      this.#log[level]({ content: fetch.content, err: error }, 'fetched data is not cached: the disk refuses it');
      await into(null);
    }
  }

  /** @param path null: into memory */
  async #take(fetch: Fetch, bytes: Uint8Array, path: string | null): Promise<void> {
    const { content, extent } = fetch;
    const givenUp = this.#contents.watchGivenUp(content);
    try {
      if (path === null) this.#contents.landed(content, extent, bytes);
      else {
        await writeAt(path, bytes, extent.start);
        for (const there of givenUp.without(extent)) this.#contents.landed(content, there, null);
      }
      fetch.landed(extent.end);
    } finally {
      givenUp.stop();
    }
  }

  /** Fetches the bytes that have not landed yet: a retry resumes where the last attempt was cut. @param path null: into memory */
  async #fetchOnce(fetch: Fetch, sizeBytes: number, path: string | null, signal: AbortSignal): Promise<void> {
    const { content } = fetch;
    const extent = { start: fetch.landedTo, end: fetch.extent.end };
    if (extent.start >= extent.end) return; // cut behind its last byte
    const version = this.#versionOf(content);
    const isAhead = !fetch.isWanted;
    const target = path === null ? ({ kind: 'memory', isAhead } as const) : ({ kind: 'file', path, isAhead } as const);
    const startedMs = this.#clock.elapsedMs();
    // Each block is recorded once. A block that was evicted meanwhile, after another fetch brought it, is not recorded: it is a hole in the
    // file, and would read as zeros.
    const givenUp = this.#contents.watchGivenUp(content);
    let takenTo: number | null = null;
    const checksums = new Map<number, number>();
    const take = (there: Extent): void => {
      const fresh = { start: takenTo ?? there.start, end: there.end };
      for (const extent of givenUp.without(fresh)) this.#contents.landed(content, extent, null, checksums);
      takenTo = there.end === sizeBytes ? sizeBytes : there.end - (there.end % BLOCK_BYTES);
      // Update the map first: the readers consult it.
      const end = fetch.wholeTo(there.end);
      if (end > fetch.landedTo) fetch.landed(end);
    };
    const written = (there: WrittenExtent): void => {
      this.#health.bytesCame();
      const { first = 0, values: fresh = [] } = there.checksums ?? {};
      for (const [at, checksum] of fresh.entries()) checksums.set(first + at, checksum);
      if (signal.aborted || there.start > extent.start || there.end === there.start) return;
      try {
        take(there);
      } catch (err) {
        // The final `take` fails with the same error.
        this.#log.debug({ content, err }, 'what landed is not taken in yet');
      }
    };
    try {
      const fetched = await this.#source.readVersion(version, extent, sizeBytes, target, written, signal);
      if (fetched.extent.start > extent.start || fetched.extent.end < extent.end) {
        throw otherExtent(content, extent, fetched);
      }
      // Short fetches measure only the round trip.
      if (extent.end - extent.start >= FETCH_BYTES_MIN / 2) {
        const rate = (extent.end - extent.start) / Math.max(1, this.#clock.elapsedMs() - startedMs);
        this.#rate = Math.max(rate, this.#rate * RATE_DECAY);
      }
      if (fetched.bytes !== null) this.#contents.landed(content, fetched.extent, fetched.bytes);
      else take(fetched.extent);
    } finally {
      givenUp.stop();
    }
  }
}

function otherExtent(content: ContentId, asked: Extent, { extent: got }: FetchedRange): ProtocolError {
  return new ProtocolError(`content ${content}: asked for ${asked.start}-${asked.end}, got ${got.start}-${got.end}`);
}
