import { unlessAborted } from '../base/abort.ts';
import { backoffMs } from '../base/backoff.ts';
import type { Clock } from '../base/clock.ts';
import { ApiError, FsError, isPassing, ProtocolError, SignInError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { ContentId, Extent } from '../base/vocabulary.ts';
import type { Contents, Piece } from '../bytes/contents.ts';
import type { EarlyBytes } from './early-bytes.ts';
import { Fetches, type FetchesDeps, type MissingPiece } from './fetches.ts';
import { HalfBlocks } from './half-blocks.ts';

/** Limit of read-ahead in flight over all handles: it competes with the fetches that readers wait for. */
const PREFETCH_BYTES_MAX = 256 * 1024 * 1024;
/** Shares of the cache budget: read-ahead in flight over all handles, and how far one stream may be ahead of its reader. */
const PREFETCH_SHARE = 1 / 2;
const WINDOW_SHARE = 1 / 8;

/** Pause between two attempts to complete a content in the background. */
const COMPLETION_BACKOFF = { firstMs: 7_000, maxMs: 60_000 };

/** A piece whose bytes are present. */
export type PresentPiece = Exclude<Piece, { kind: 'missing' }>;

/** The calling operation. The getter creates the signal on first use: callers that need not wait do not pay for it. */
export interface Caller {
  readonly signal: AbortSignal;
  /** As `OpContext.appends`. */
  appends?(content: ContentId): boolean;
  /** As `OpContext.appendFailed`. */
  appendFailed?(content: ContentId): void;
}

/**
 * Reads a content through the block cache: immediately if every block is present, otherwise after fetching the missing ones.
 *
 * No reader owns a fetch (`Fetches`): readers join and leave, an interrupted reader does not fail the others, and the bytes that arrive
 * are kept.
 */
export class BlockReader {
  readonly #contents: Contents;
  readonly #fetches: Fetches;
  readonly #halves: HalfBlocks;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #readTimeoutMs: number;
  readonly #prefetchBytesMax: number;
  /** How far one stream may fetch ahead of its reader, bytes. */
  readonly windowBytesMax: number;
  #hits = 0;
  #misses = 0;

  /** @param deps `cacheBytes`: of `--cache-size`; read-ahead takes a share of it */
  constructor(deps: FetchesDeps & { readonly readTimeoutMs: number; readonly cacheBytes: number }) {
    this.#contents = deps.contents;
    this.#fetches = new Fetches(deps);
    this.#halves = new HalfBlocks({ contents: deps.contents, fetches: this.#fetches });
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#readTimeoutMs = deps.readTimeoutMs;
    this.#prefetchBytesMax = Math.min(PREFETCH_BYTES_MAX, deps.cacheBytes * PREFETCH_SHARE);
    this.windowBytesMax = deps.cacheBytes * WINDOW_SHARE;
  }

  /**
   * The bytes of `extent`, up to the content's size. No promise if all of them are present. `take` receives them in the same
   * turn in which they were found, so that it can lease the bytes it keeps before anything is evicted.
   *
   * @throws FsError ESTALE when the service has dropped the version, ETIMEDOUT when the service is unreachable, EIO for invalid
   *   answers · the signal's reason when the caller cancelled
   */
  read<T>(id: ContentId, extent: Extent, caller: Caller, take: (pieces: readonly PresentPiece[]) => T): T | Promise<T> {
    const pieces = this.#contents.pieces(id, extent);
    if (isPresent(pieces)) {
      this.#hits++;
      return take(pieces);
    }
    const half = this.#halves.read(id, extent, pieces);
    if (half instanceof Uint8Array) {
      this.#hits++;
      return take([inMemory(half)]);
    }
    this.#misses++;
    const whole = (known: readonly Piece[]) =>
      this.#readMissing(id, extent, caller.signal, take, { pieces: known, mayBeInMemory: true });
    if (half === null) return whole(pieces);
    return unlessAborted(half, caller.signal).then((bytes) =>
      bytes === null ? whole(this.#contents.pieces(id, extent)) : take([inMemory(bytes)]),
    );
  }

  /** Reads since the start: answered from the cache, or after fetching. */
  get reads(): { readonly hits: number; readonly misses: number } {
    return { hits: this.#hits, misses: this.#misses };
  }

  /** Makes `extent` of `id` present, down through its bases. */
  async complete(id: ContentId, extent: Extent, signal: AbortSignal): Promise<void> {
    const lease = this.#contents.lease(id);
    try {
      const end = Math.min(extent.end, this.#contents.sizeOf(id));
      // In steps of what the connections transfer in parallel: a long file requested as a whole would queue ahead of every other
      // read or push.
      for (let start = extent.start; start < end; ) {
        const stop = Math.min(start + this.#fetches.parallelBytes, end);
        await this.#readMissing(id, { start, end: stop }, signal, () => undefined);
        start = stop;
      }
      // Blocks that were evicted meanwhile.
      await this.#readMissing(id, extent, signal, () => undefined);
    } finally {
      lease.release();
    }
  }

  /**
   * As `complete`, in the background: retries after a temporary failure, as long as the content is referenced. Never rejects.
   */
  async completeBehind(id: ContentId, extent: Extent, signal: AbortSignal): Promise<void> {
    try {
      for (let failures = 1; ; failures++) {
        const failure = await this.complete(id, extent, signal).then(
          () => null,
          (error: unknown) => error,
        );
        if (failure === null) return;
        if (!mayPass(failure)) throw failure;
        await this.#clock.sleep(backoffMs(failures, this.#clock.random(), COMPLETION_BACKOFF), signal);
        if ((this.#contents.record(id)?.refs ?? 0) === 0) return;
      }
    } catch (err) {
      this.#log.debug({ content: id, err }, 'not completed');
    }
  }

  /** As `complete`. @returns whether the bytes are on the disk; if it is full, they are only briefly in memory */
  async keep(id: ContentId, extent: Extent, signal: AbortSignal): Promise<boolean> {
    return await this.#readMissing(id, extent, signal, (pieces) =>
      pieces.every((piece) => piece.kind !== 'bytes' || piece.isPassing !== true),
    );
  }

  /**
   * Starts to fetch the missing blocks of `extent`; failures are only logged. `signal` cancels the fetches that no reader has joined.
   * Does nothing while enough read-ahead is in flight.
   */
  prefetch(id: ContentId, extent: Extent, signal: AbortSignal): void {
    if (signal.aborted) return;
    try {
      for (const piece of this.#contents.pieces(id, extent)) {
        if (piece.kind !== 'missing') continue;
        if (this.#fetches.aheadBytes >= this.#prefetchBytesMax) return;
        this.#fetches.bringing(piece, signal);
      }
    } catch (err) {
      // Damage ahead is reported to the read that reaches it, not to this one.
      this.#log.debug({ content: id, ...extent, err }, 'not fetched ahead');
    }
  }

  /** As `Fetches.paceBytes`. */
  get paceBytes(): number | null {
    return this.#fetches.paceBytes;
  }

  /** As `Fetches.expect`. */
  expect(id: ContentId, early: EarlyBytes): boolean {
    return this.#fetches.expect(id, early);
  }

  async #readMissing<T>(
    id: ContentId,
    extent: Extent,
    signal: AbortSignal,
    take: (pieces: readonly PresentPiece[]) => T,
    known: { readonly pieces?: readonly Piece[]; readonly mayBeInMemory?: boolean } = {},
  ): Promise<T> {
    const lease = this.#contents.lease(id);
    try {
      let missingBytes = Number.POSITIVE_INFINITY;
      let sinceMs = this.#clock.elapsedMs();
      for (let { pieces = this.#contents.pieces(id, extent) } = known; ; pieces = this.#contents.pieces(id, extent)) {
        if (isPresent(pieces)) return take(pieces);
        const arrived = known.mayBeInMemory ? this.#fetches.arrivedBytes(id, extent) : null;
        if (arrived !== null) return take([inMemory(arrived)]);
        // A budget smaller than one read may evict the blocks just fetched: give up by time, not by rounds. Progress restarts the time:
        // then the connection is only slow.
        const before = missingBytes;
        missingBytes = Math.min(before, missingIn(pieces));
        if (missingBytes < before) sinceMs = this.#clock.elapsedMs();
        else if (this.#clock.elapsedMs() - sinceMs > this.#readTimeoutMs)
          throw new FsError('ETIMEDOUT', 'the bytes did not arrive in time');
        const fetches = pieces.flatMap((piece) => (piece.kind === 'missing' ? this.#awaited(piece) : []));
        await unlessAborted(Promise.all(fetches), signal);
      }
    } finally {
      lease.release();
    }
  }

  /** The promises that a reader of the missing piece waits for. */
  #awaited(piece: MissingPiece): Promise<void>[] {
    return this.#fetches.bringing(piece, null).map((fetch) => {
      const reached = fetch.reached(piece.extent.end);
      // After a cancelled fetch has ended, readers that still miss its blocks start another one.
      return fetch.wasGivenUp ? reached.catch(() => {}) : reached;
    });
  }
}

/**
 * Whether a failed completion may succeed later: the service was unreachable or failing, or the user must sign in first. A missing
 * version, a clear refusal and local damage are permanent.
 */
function mayPass(failure: unknown): boolean {
  if (failure instanceof SignInError) return true;
  if (!(failure instanceof FsError)) return false;
  const { errno, cause } = failure;
  if (errno === 'ETIMEDOUT') return true;
  if (errno !== 'EIO') return false;
  return cause instanceof ProtocolError || (cause instanceof ApiError && isPassing(cause));
}

export function isPresent(pieces: readonly Piece[]): pieces is PresentPiece[] {
  return pieces.every((piece) => piece.kind !== 'missing');
}

function inMemory(bytes: Uint8Array): PresentPiece {
  return { kind: 'bytes', length: bytes.byteLength, bytes };
}

function missingIn(pieces: readonly Piece[]): number {
  return pieces.reduce((bytes, piece) => (piece.kind === 'missing' ? bytes + piece.length : bytes), 0);
}
