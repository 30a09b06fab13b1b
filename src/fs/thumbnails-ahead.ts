import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { Inode, ResourceUrl, VersionUrl } from '../base/vocabulary.ts';
import type { NodeRecord, StoreReader } from '../store/tables.ts';
import { pathOf } from '../sync/sync-event.ts';
import type { Tree } from '../tree/tree.ts';

/** A picture as a desktop's thumbnail cache knows it. */
export interface CachedPicture {
  /** Relative to the mount's root. */
  readonly path: string;
  /** Its mtime, seconds: with another one the cached thumbnail is stale. */
  readonly mtimeSec: number;
}

/** The thumbnail cache of this user's desktop. Implemented by the main thread, across the port. */
export interface ThumbnailCache {
  /** The positions of the pictures without a valid thumbnail; none unless `cfs desktop install` was run. */
  missing(pictures: readonly CachedPicture[]): Promise<readonly number[]>;
  /** Writes a thumbnail; `jpeg` is the small form that the service makes. Never fails. */
  keep(picture: CachedPicture, jpeg: Uint8Array): Promise<void>;
  /**
   * Removes what desktops noted about pictures that they could not read, so that they try again. Never fails.
   * @returns the paths of which something was noted
   */
  retry(paths: readonly string[]): Promise<readonly string[]>;
}

/** Where the small form of a picture comes from; null if it has none, or needs none. */
export type PictureSource = (node: NodeRecord) => ResourceUrl | VersionUrl | null;

interface AheadDeps {
  readonly tree: Pick<Tree, 'node' | 'children'>;
  readonly store: StoreReader;
  readonly cache: ThumbnailCache;
  /** A JPEG, or null if the service makes none. */
  readonly fetch: (picture: ResourceUrl | VersionUrl, signal: AbortSignal) => Promise<Uint8Array | null>;
  readonly clock: Clock;
  readonly log: Logger;
  readonly shutdown: AbortSignal;
}

/** Pictures that follow one whose thumbnail was read. */
const AHEAD_MAX = 200;
const PARALLEL_MAX = 4;
/** Folders whose pictures are fetched ahead at a time. */
const FOLDERS_MAX = 4;
/** Fetched bytes that no program has asked for yet, per folder. */
const BYTES_MAX = 4 * 1024 * 1024;
/** After this time without a read in the folder, the rest goes to the cache of the desktop. */
const QUIET_MS = 5_000;
/** After so many pictures in a row without a small form, the service makes none. */
const REFUSED_MAX = 3;
/** Entries of a folder that are looked at in one turn of the event loop. */
const ENTRIES_PER_TURN = 100;

interface Waiting {
  readonly node: NodeRecord;
  readonly source: ResourceUrl | VersionUrl;
}

interface Fetched {
  readonly state: string;
  readonly picture: CachedPicture;
  readonly bytes: Promise<Uint8Array | null>;
}

/** The pictures that are fetched ahead in one folder. */
interface Batch {
  /** Not requested yet, in the order of names. */
  readonly waiting: Map<Inode, Waiting>;
  readonly fetched: Map<Inode, Fetched>;
  /** Those that programs have asked for themselves, also before the batch: a further request would be one too many. */
  readonly asked: Set<Inode>;
  readAtMs: number;
  isDone: boolean;
}

/**
 * Fetches thumbnails ahead of a file manager. A first read of `user.cfs.thumbnail` in a folder shows that its pictures are about to be shown:
 * the following ones, at most 200, are requested four at a time, and later reads find them in memory. A file manager writes the thumbnails that
 * it reads into its own cache. When it stops reading, those that it has not read are written there as well, for its next visit.
 */
export class ThumbnailsAhead {
  readonly #deps: AheadDeps;
  /** By folder, the least recently used first. */
  readonly #batches = new Map<Inode, Batch>();
  /** Pictures whose own requests are not answered yet. */
  readonly #asking = new Set<Inode>();

  constructor(deps: AheadDeps) {
    this.#deps = deps;
  }

  /**
   * @param source of the pictures that follow
   * @param ask requests the thumbnail itself
   * @throws what `ask` throws
   */
  async read(
    node: NodeRecord,
    source: PictureSource,
    ask: () => Promise<Uint8Array | null>,
  ): Promise<Uint8Array | null> {
    const folder = node.local?.parent;
    if (folder === undefined) return ask();
    const batch = this.#batches.get(folder);
    if (batch !== undefined) {
      batch.readAtMs = this.#deps.clock.elapsedMs();
      batch.waiting.delete(node.ino);
      batch.asked.add(node.ino);
      const found = batch.fetched.get(node.ino);
      batch.fetched.delete(node.ino);
      if (found !== undefined && found.state === stateOf(node)) {
        try {
          return await found.bytes;
        } catch {
          // The request of the program itself has a time limit and retries of its own.
        }
      }
    }
    this.#asking.add(node.ino);
    const bytes = await ask().finally(() => this.#asking.delete(node.ino));
    if (bytes !== null && this.#batches.get(folder)?.isDone !== false) this.#begin(folder, node, source);
    return bytes;
  }

  #begin(folder: Inode, first: NodeRecord, source: PictureSource): void {
    const { clock, log } = this.#deps;
    // What was fetched and not read yet goes on in the new batch.
    const rest = this.#batches.get(folder)?.fetched;
    const fetched = new Map(rest);
    rest?.clear();
    this.#batches.delete(folder);
    for (const [oldest, { isDone }] of this.#batches) {
      if (this.#batches.size < FOLDERS_MAX) break;
      if (isDone) this.#batches.delete(oldest);
    }
    if (this.#batches.size >= FOLDERS_MAX) return;
    const asked = new Set(this.#asking);
    const batch: Batch = { waiting: new Map(), fetched, asked, readAtMs: clock.elapsedMs(), isDone: false };
    this.#batches.set(folder, batch);
    const work = async (): Promise<void> => {
      await this.#choose(folder, first, source, batch);
      const isUseful = batch.waiting.size > 0;
      await this.#fetchAll(batch);
      // Without anything to fetch, later reads need not look again.
      batch.isDone = isUseful;
      await this.#keepRest(batch);
    };
    void work()
      .catch((err: unknown) => log.debug({ err }, 'thumbnails are not fetched ahead'))
      .finally(() => {
        if (this.#batches.get(folder) === batch) this.#batches.delete(folder);
      });
  }

  /** The pictures after the first one, then those before it, without those that the desktop has. */
  async #choose(folder: Inode, first: NodeRecord, source: PictureSource, batch: Batch): Promise<void> {
    const { store, cache } = this.#deps;
    const found: (Waiting & { readonly picture: CachedPicture })[] = [];
    for await (const node of this.#following(folder, first)) {
      const url = source(node);
      if (url === null || node.local === null || batch.fetched.has(node.ino)) continue;
      const picture = { path: pathOf(store, node.ino), mtimeSec: node.local.mtime.sec };
      if (found.push({ node, source: url, picture }) === AHEAD_MAX) break;
    }
    for (const at of await cache.missing(found.map(({ picture }) => picture))) {
      const wanted = found[at];
      if (wanted !== undefined && !batch.asked.has(wanted.node.ino)) batch.waiting.set(wanted.node.ino, wanted);
    }
  }

  async *#following(folder: Inode, first: NodeRecord): AsyncIterable<NodeRecord> {
    const { tree, shutdown } = this.#deps;
    const start = first.local?.name ?? '';
    let after: string | undefined = start;
    for (let isAround = false; ; ) {
      const entries: { readonly name: string; readonly node: NodeRecord }[] = [];
      for (const entry of tree.children(folder, after)) if (entries.push(entry) === ENTRIES_PER_TURN) break;
      for (const { name, node } of entries) {
        if (isAround && name === start) return;
        after = name;
        yield node;
      }
      if (entries.length < ENTRIES_PER_TURN) {
        if (isAround) return;
        isAround = true;
        after = undefined;
      }
      await nextTurn();
      shutdown.throwIfAborted();
    }
  }

  async #fetchAll(batch: Batch): Promise<void> {
    const { fetch, log, shutdown } = this.#deps;
    let bytesHeld = 0;
    let refused = 0;
    const lane = async (): Promise<void> => {
      for (const [ino, { node, source }] of batch.waiting) {
        if (bytesHeld >= BYTES_MAX || refused >= REFUSED_MAX) break;
        batch.waiting.delete(ino);
        const picture = { path: pathOf(this.#deps.store, ino), mtimeSec: node.local?.mtime.sec ?? 0 };
        const bytes = fetch(source, shutdown);
        batch.fetched.set(ino, { state: stateOf(node), picture, bytes });
        const got = await bytes;
        refused = got === null ? refused + 1 : 0;
        if (batch.fetched.has(ino)) bytesHeld += got?.byteLength ?? 0;
      }
    };
    const lanes = Array.from({ length: PARALLEL_MAX }, () =>
      // The first failure ends all lanes after their current picture.
      lane().catch((err: unknown) => {
        log.debug({ err }, 'no more thumbnails are fetched ahead');
        batch.waiting.clear();
      }),
    );
    await Promise.all(lanes);
    batch.waiting.clear();
  }

  async #keepRest(batch: Batch): Promise<void> {
    const { cache, clock, shutdown, tree } = this.#deps;
    for (;;) {
      const leftMs = batch.readAtMs + QUIET_MS - clock.elapsedMs();
      if (leftMs <= 0) break;
      await clock.sleep(leftMs, shutdown);
    }
    for (const [ino, { state, picture, bytes }] of batch.fetched) {
      shutdown.throwIfAborted();
      const node = tree.node(ino);
      const got = await bytes.catch(() => null);
      if (got !== null && node !== undefined && state === stateOf(node)) await cache.keep(picture, got);
      batch.fetched.delete(ino);
    }
  }
}

/** Differs when the bytes of the picture, its name or its time do. */
function stateOf({ local, remote }: NodeRecord): string {
  return JSON.stringify([remote?.resource, remote?.content, remote?.modified, remote?.sizeBytes, local]);
}
