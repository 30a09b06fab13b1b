import type { Clock } from '../base/clock.ts';
import { ApiError, FsError, ProtocolError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { BLOCK_BYTES, type ContentId, type Extent } from '../base/vocabulary.ts';
import type { Contents, Piece } from '../store/contents.ts';
import type { Patience } from './patience.ts';
import type { VersionSource } from './version-source.ts';

/** What one ranged GET asks for at most: long enough to fill a line, short enough that several run side by side. */
const FETCH_BYTES_MAX = 1024 * 1024;
/**
 * What one asks for ahead: more where a connection brings it in this time, for the way to the service is paid once in each.
 * No more on a slow line: whoever gets there waits for all of it.
 */
const AHEAD_BYTES_MAX = 8 * 1024 * 1024;
const AHEAD_MS_MAX = 400;
/** How fast a connection was counts for less with each fetch that was slower: some waited for their turn, some lines decay. */
const RATE_DECAY = 0.8;
/** A version up to this size is fetched whole: its second read would cost another round trip otherwise. */
const WHOLE_BYTES_MAX = 1024 * 1024;

/** What may be under way over all handles without anyone waiting for it: it takes the line from those who do. */
const PREFETCH_BYTES_MAX = 128 * 1024 * 1024;

/** Pieces that are all here. */
export type PresentPiece = Exclude<Piece, { kind: 'missing' }>;

interface Fetch {
  done: Promise<void>;
  /** A reader waits, or has waited, for it: it is not given up. */
  isWanted: boolean;
  wasGivenUp: boolean;
}

/**
 * Reads a content through the block cache: at once when everything is here, otherwise after fetching what is missing.
 *
 * A fetch belongs to nobody: readers join it and leave it, an interrupted one does not fail the others, and what arrives is
 * kept. A failed fetch is tried again behind the caller's back (`Patience`).
 */
export class BlockReader {
  readonly #contents: Contents;
  readonly #source: VersionSource;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #patience: Patience;
  readonly #readTimeoutMs: number;

  /** Fetches under way, by block. INVARIANT: at most one per block, however many readers wait for it. */
  readonly #fetches = new Map<string, Fetch>();
  /** Bytes under way that no reader asked for. */
  #prefetchingBytes = 0;
  /** What one connection brings, bytes per millisecond, the way to the service included. */
  #rate = 0;

  constructor(deps: {
    contents: Contents;
    source: VersionSource;
    clock: Clock;
    log: Logger;
    patience: Patience;
    readTimeoutMs: number;
  }) {
    this.#contents = deps.contents;
    this.#source = deps.source;
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#patience = deps.patience;
    this.#readTimeoutMs = deps.readTimeoutMs;
  }

  /**
   * The bytes of `extent`, cut short at the content's size. No promise when all of it is here. They are given to `take` in the same
   * turn in which they were found, so that it can lease what it keeps before anything is evicted.
   *
   * @throws FsError ESTALE when the version is gone from the service, ETIMEDOUT when it cannot be reached, EIO for answers
   *   that do not fit · `signal`'s reason when the caller gave up
   */
  read<T>(
    id: ContentId,
    extent: Extent,
    signal: AbortSignal,
    take: (pieces: readonly PresentPiece[]) => T,
  ): T | Promise<T> {
    const pieces = this.#contents.pieces(id, extent);
    return isPresent(pieces) ? take(pieces) : this.#readMissing(id, extent, signal, take);
  }

  /** Makes sure that `extent` of `id` is here, down through its bases. */
  async complete(id: ContentId, extent: Extent, signal: AbortSignal): Promise<void> {
    await this.#readMissing(id, extent, signal, () => undefined);
  }

  /**
   * Starts fetching what is missing of `extent`; nobody waits for it and its failure is nobody's. What no reader has joined
   * ends with `signal`. Does nothing while enough is under way that nobody asked for.
   */
  prefetch(id: ContentId, extent: Extent, signal: AbortSignal): void {
    if (signal.aborted) return;
    for (const piece of this.#contents.pieces(id, extent)) {
      if (piece.kind !== 'missing') continue;
      if (this.#prefetchingBytes >= PREFETCH_BYTES_MAX) return;
      for (const fetch of this.#fetchesOf(piece, signal)) fetch.done.catch(() => {});
    }
  }

  async #readMissing<T>(
    id: ContentId,
    extent: Extent,
    signal: AbortSignal,
    take: (pieces: readonly PresentPiece[]) => T,
  ): Promise<T> {
    const lease = this.#contents.lease(id);
    try {
      const startedMs = this.#clock.elapsedMs();
      for (;;) {
        const pieces = this.#contents.pieces(id, extent);
        if (isPresent(pieces)) return take(pieces);
        // A budget smaller than one read may evict what was just fetched: give up by time, not by rounds.
        if (this.#clock.elapsedMs() - startedMs > this.#readTimeoutMs)
          throw new FsError('ETIMEDOUT', 'the bytes did not arrive in time');
        const fetches = pieces.flatMap((piece) => (piece.kind === 'missing' ? this.#fetchesOf(piece, null) : []));
        await unlessAborted(Promise.all(fetches.map(({ done }) => done)), signal);
      }
    } finally {
      lease.release();
    }
  }

  /**
   * The ranged GETs that together bring the missing piece; joins what is under way.
   *
   * @param prefetch null for somebody who waits; otherwise what ends the fetches that are begun for nobody
   */
  #fetchesOf(piece: Extract<Piece, { kind: 'missing' }>, prefetch: AbortSignal | null): readonly Fetch[] {
    const sizeBytes = this.#contents.sizeOf(piece.content);
    const extent = sizeBytes <= WHOLE_BYTES_MAX ? { start: 0, end: sizeBytes } : piece.extent;
    const joined = new Set<Fetch>();
    const aheadBytes = Math.min(AHEAD_BYTES_MAX, this.#rate * AHEAD_MS_MAX);
    const fetchBytes = prefetch === null ? FETCH_BYTES_MAX : Math.max(FETCH_BYTES_MAX, aheadBytes);
    let runStart = -1;
    for (let start = extent.start - (extent.start % BLOCK_BYTES); ; start += BLOCK_BYTES) {
      const underWay = start < extent.end ? this.#fetches.get(`${piece.content}/${start}`) : undefined;
      const isFull = runStart >= 0 && start - runStart >= fetchBytes;
      if (runStart >= 0 && (start >= extent.end || underWay !== undefined || isFull)) {
        joined.add(
          this.#fetch(piece.content, { start: runStart, end: Math.min(start, sizeBytes) }, sizeBytes, prefetch),
        );
        runStart = -1;
      }
      if (start >= extent.end) break;
      if (underWay === undefined) {
        if (runStart < 0) runStart = start;
      } else if (!underWay.wasGivenUp) {
        joined.add(underWay);
        if (prefetch === null) underWay.isWanted = true;
      }
    }
    return [...joined];
  }

  /** Not tied to the reader who asked first: that one may be interrupted while others wait. */
  #fetch(content: ContentId, extent: Extent, sizeBytes: number, prefetch: AbortSignal | null): Fetch {
    const keys: string[] = [];
    for (let start = extent.start; start < extent.end; start += BLOCK_BYTES) keys.push(`${content}/${start}`);
    const lease = this.#contents.lease(content);
    const giveUp = new AbortController();
    const fetch: Fetch = { done: Promise.resolve(), isWanted: prefetch === null, wasGivenUp: false };
    const onAbort = (): void => {
      if (fetch.isWanted) return;
      fetch.wasGivenUp = true;
      giveUp.abort(prefetch?.reason);
    };
    const bytes = prefetch === null ? 0 : extent.end - extent.start;
    prefetch?.addEventListener('abort', onAbort, { once: true });
    this.#prefetchingBytes += bytes;
    const isAhead = (): boolean => !fetch.isWanted;
    fetch.done = this.#fetchPatiently(content, extent, sizeBytes, isAhead, giveUp.signal).finally(() => {
      prefetch?.removeEventListener('abort', onAbort);
      this.#prefetchingBytes -= bytes;
      lease.release();
      for (const key of keys) if (this.#fetches.get(key) === fetch) this.#fetches.delete(key);
    });
    for (const key of keys) this.#fetches.set(key, fetch);
    return fetch;
  }

  async #fetchPatiently(
    content: ContentId,
    extent: Extent,
    sizeBytes: number,
    isAhead: () => boolean,
    giveUp: AbortSignal,
  ): Promise<void> {
    try {
      await this.#patience.ask((signal) => this.#fetchOnce(content, extent, sizeBytes, isAhead(), signal), giveUp);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      this.#log.warn({ content, ...extent }, 'version gone while it was read');
      throw new FsError('ESTALE', 'this version no longer exists on the service', { cause: error });
    }
  }

  async #fetchOnce(
    content: ContentId,
    extent: Extent,
    sizeBytes: number,
    isAhead: boolean,
    signal: AbortSignal,
  ): Promise<void> {
    const record = this.#contents.record(content);
    if (record?.version == null) throw new FsError('EIO', `content ${content} has no version to fetch from`);
    const path = this.#contents.fetchPath(content);
    const target = path === null ? ({ kind: 'memory', isAhead } as const) : ({ kind: 'file', path, isAhead } as const);
    const startedMs = this.#clock.elapsedMs();
    const fetched = await this.#source.readVersion(record.version, extent, sizeBytes, target, signal);
    if (fetched.extent.start > extent.start || fetched.extent.end < extent.end) {
      throw new ProtocolError(
        `content ${content}: asked for ${extent.start}-${extent.end}, got ${fetched.extent.start}-${fetched.extent.end}`,
      );
    }
    // Short ones tell of the way only.
    if (extent.end - extent.start >= FETCH_BYTES_MAX / 2) {
      const rate = (extent.end - extent.start) / Math.max(1, this.#clock.elapsedMs() - startedMs);
      this.#rate = Math.max(rate, this.#rate * RATE_DECAY);
    }
    this.#contents.landed(content, fetched.extent, fetched.bytes);
  }
}

export function isPresent(pieces: readonly Piece[]): pieces is PresentPiece[] {
  return pieces.every((piece) => piece.kind !== 'missing');
}

/** Waits for `work`, but no longer than the caller wants; the work itself goes on. */
export async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  let stop: (() => void) | undefined;
  const aborted = new Promise<never>((_resolve, reject) => {
    stop = () => reject(signal.reason);
    signal.addEventListener('abort', stop, { once: true });
  });
  try {
    return await Promise.race([work, aborted]);
  } finally {
    if (stop) signal.removeEventListener('abort', stop);
    work.catch(() => {});
  }
}
