import { LRUCache } from 'lru-cache';
import { BLOCK_BYTES, type ContentId, type Extent } from '../base/vocabulary.ts';
import { blockLength } from '../bytes/block-map.ts';
import type { Contents, Piece } from '../bytes/contents.ts';
import { type Fetches, WHOLE_BYTES_MAX } from './fetches.ts';

const HALF_BYTES = BLOCK_BYTES / 2;
/** Limit of halves in memory: enough for a reader that returns to a place soon. */
const MEMORY_BYTES_MAX = 8 * 1024 * 1024;
/** Limit of halves that are known to have been fetched. */
const SEEN_MAX = 16_384;

/**
 * Halves of blocks, for short reads that no read-ahead expects (ADR 29). The cache has whole blocks only, so a half stays in memory. Once both
 * halves are known, the block goes into the cache. A half that has left the memory is not fetched again, but its whole block: a place that
 * is read repeatedly is cached from then on.
 */
export class HalfBlocks {
  readonly #contents: Contents;
  readonly #fetches: Pick<Fetches, 'isBringing' | 'inMemory' | 'expect'>;
  /** By content and offset. */
  readonly #halves = new LRUCache<string, Uint8Array>({ max: MEMORY_BYTES_MAX / HALF_BYTES });
  /** By content and offset: fetched before, whether or not they are still in memory. Made at the first fetch: it takes 350 KiB. */
  #seen: LRUCache<string, true> | null = null;
  readonly #underWay = new Map<string, Promise<Uint8Array | null>>();

  constructor(deps: {
    contents: Contents;
    fetches: Pick<Fetches, 'isBringing' | 'inMemory' | 'expect'>;
  }) {
    this.#contents = deps.contents;
    this.#fetches = deps.fetches;
  }

  /**
   * The bytes of `extent`. A promise if they must be fetched; it rejects as `Fetches.inMemory`.
   *
   * @param pieces those of the extent
   * @returns null, also later, if the missing bytes are to be fetched in whole blocks
   */
  read(id: ContentId, extent: Extent, pieces: readonly Piece[]): Uint8Array | Promise<Uint8Array | null> | null {
    const [piece, ...others] = pieces;
    if (piece?.kind !== 'missing' || piece.content !== id || others.length > 0) return null;
    const sizeBytes = this.#contents.sizeOf(id);
    const block = Math.floor(extent.start / BLOCK_BYTES);
    const start = extent.start - (extent.start % HALF_BYTES);
    const half = { start, end: Math.min(start + HALF_BYTES, sizeBytes) };
    const isShort = extent.end <= half.end && blockLength(block, sizeBytes) > HALF_BYTES;
    // Programs read the first block of a file again: it has the header.
    if (!isShort || block === 0 || sizeBytes <= WHOLE_BYTES_MAX) return null;
    const bytes = this.#halves.get(keyOf(id, start)) ?? this.#underWay.get(keyOf(id, start)) ?? null;
    const within = (half: Uint8Array) => half.subarray(extent.start - start, extent.end - start);
    const later = (half: Promise<Uint8Array | null>) => half.then((bytes) => bytes && within(bytes));
    if (bytes !== null) return bytes instanceof Promise ? later(bytes) : within(bytes);
    const whole = { start: block * BLOCK_BYTES, end: block * BLOCK_BYTES + blockLength(block, sizeBytes) };
    if (this.#fetches.isBringing(id, whole) || this.#seen?.has(keyOf(id, start)) === true) return null;
    return later(this.#fetch(id, half, whole));
  }

  #fetch(id: ContentId, half: Extent, whole: Extent): Promise<Uint8Array | null> {
    const key = keyOf(id, half.start);
    const bytes = this.#fetches.inMemory(id, half).finally(() => this.#underWay.delete(key));
    this.#underWay.set(key, bytes);
    bytes.then(
      (arrived) => {
        if (arrived === null) return;
        this.#halves.set(key, arrived);
        this.#seen ??= new LRUCache({ max: SEEN_MAX });
        this.#seen.set(key, true);
        this.#join(id, whole);
      },
      () => {}, // the readers get the error
    );
    return bytes;
  }

  /** The block goes into the cache if both of its halves are here. */
  #join(id: ContentId, whole: Extent): void {
    const first = this.#halves.get(keyOf(id, whole.start));
    const second = this.#halves.get(keyOf(id, whole.start + HALF_BYTES));
    const version = this.#contents.record(id)?.version;
    if (first === undefined || second === undefined || version == null) return;
    const bytes = Buffer.concat([first, second]);
    const sizeBytes = this.#contents.sizeOf(id);
    this.#fetches.expect(id, { extent: whole, sizeBytes, bytes: Promise.resolve({ version, bytes }) });
  }
}

function keyOf(id: ContentId, start: number): string {
  return `${id}/${start}`;
}
