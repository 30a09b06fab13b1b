import { setMaxListeners } from 'node:events';
import { unlessAborted } from '../base/abort.ts';
import type { Clock } from '../base/clock.ts';
import { ApiError, FsError, SignInError, TransportError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { ListingPage } from '../base/resources.ts';
import type { ServiceHealth } from '../base/service-health.ts';
import { type Inode, ROOT_INODE } from '../base/vocabulary.ts';
import { BackgroundListings } from './background-listings.ts';
import { ifReadable } from './if-readable.ts';
import { ListingAhead } from './listing-ahead.ts';
import type { ListingFence } from './listing-fence.ts';
import { listPages } from './listing-pages.ts';
import { MergedAhead } from './merged-ahead.ts';
import { type HeldRemovals, MissingEntries } from './missing-entries.ts';
import { PushPreflight } from './push-preflight.ts';
import type { RemoteListing } from './remote-listing.ts';
import type { Tree } from './tree.ts';
import { WATCHED_MAX, WatchedFolders } from './watched-folders.ts';

export interface FreshnessDeps {
  readonly tree: Tree;
  readonly listing: RemoteListing;
  readonly fence: ListingFence;
  readonly health: ServiceHealth;
  readonly clock: Clock;
  readonly log: Logger;
  /** Removals now wait for the user's confirmation. */
  readonly onHeld?: (held: HeldRemovals) => void;
  /** Open files: their folders count as in use. */
  readonly openFiles?: () => Iterable<{ readonly ino: Inode }>;
  /** Revalidates files of a folder whose newest version a listing cannot determine. Absent: there are none. */
  readonly revalidate?: (folder: Inode, signal: AbortSignal) => Promise<void>;
  /** `readTimeoutMs`: longest wait of a reader for the first listing of a folder. */
  readonly options: { readonly dirTtlMs: number; readonly openWaitMs: number; readonly readTimeoutMs: number };
}

/**
 * Cache policy of folder listings. The service sends no events, so a listing is fresh for `dirTtlMs`; a stale one is
 * served and refreshed in the background. A folder is listed once at a time for all readers. While the service is
 * unreachable, known entries are served and retries follow after growing pauses.
 */
export class Freshness {
  readonly #tree: Tree;
  readonly #listing: RemoteListing;
  readonly #fence: ListingFence;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #openFiles: () => Iterable<{ readonly ino: Inode }>;
  readonly #revalidate: NonNullable<FreshnessDeps['revalidate']>;
  readonly #dirTtlMs: number;
  readonly #openWaitMs: number;
  readonly #readTimeoutMs: number;
  readonly #ahead: ListingAhead;
  readonly #behind: BackgroundListings;
  readonly #pushPreflight: PushPreflight;
  readonly #health: ServiceHealth;
  readonly #stop = new AbortController();

  /** INVARIANT: at most one listing per folder. */
  readonly #underWay = new Map<Inode, { readonly listing: Promise<void>; readonly begunMs: number }>();
  readonly #watched: WatchedFolders;
  readonly #missing: MissingEntries;
  #cancelTick: (() => void) | null = null;
  /** Folders that a program watches; null if none can be known. */
  #findWatched: (() => Promise<Iterable<Inode>>) | null = null;
  /** Listings requested before this (wall, ms) are stale regardless of the TTL: `cfs refresh`. */
  #staleBeforeMs = 0;

  constructor(deps: FreshnessDeps) {
    setMaxListeners(0, this.#stop.signal); // one for each request under way
    this.#tree = deps.tree;
    this.#listing = deps.listing;
    this.#fence = deps.fence;
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#openFiles = deps.openFiles ?? (() => []);
    this.#revalidate = deps.revalidate ?? (async () => {});
    this.#dirTtlMs = deps.options.dirTtlMs;
    this.#openWaitMs = deps.options.openWaitMs;
    this.#readTimeoutMs = deps.options.readTimeoutMs;
    this.#health = deps.health;
    this.#watched = new WatchedFolders({ clock: deps.clock, ttlMs: deps.options.dirTtlMs });
    const list = (folder: Inode) => this.#underWay.get(folder)?.listing ?? this.#list(folder);
    this.#ahead = new ListingAhead({ tree: deps.tree, list, log: deps.log });
    this.#behind = new BackgroundListings({
      isDue: (folder) =>
        !this.#underWay.has(folder) && (ifReadable(this.#log, folder, () => this.#isDue(folder)) ?? false),
      list: (folder) => this.#inBackground(folder),
    });
    this.#pushPreflight = new PushPreflight({
      tree: deps.tree,
      clock: deps.clock,
      log: deps.log,
      begunMs: (folder) => this.#underWay.get(folder)?.begunMs,
      list: (folder) => this.#inBackground(folder),
      ask: (question) => this.#missing.resolveOne(question, false),
    });
    this.#missing = new MissingEntries({
      ...{ tree: deps.tree, listing: deps.listing, fence: deps.fence, clock: deps.clock, log: deps.log },
      stop: this.#stop.signal,
      list: (folder, accept) => this.#list(folder, { accept }),
      underWay: (folder) => this.#underWay.get(folder)?.listing.catch(() => {}),
      onHeld: deps.onHeld ?? (() => {}),
      unanswered: (error) => this.#health.unanswered(error),
    });
  }

  /** Removals that wait for `cfs refresh --accept`. */
  get heldRemovals(): readonly HeldRemovals[] {
    return this.#missing.held;
  }

  /**
   * Whether the entries of a folder are known, which is enough for most calls. A stale listing is refreshed in the
   * background.
   */
  isListed(folder: Inode): boolean {
    this.#use(folder);
    if (!this.#tree.isComplete(folder)) return false;
    this.#ahead.looked(folder, false);
    if (this.#isDue(folder)) this.#behind.add(folder);
    return true;
  }

  /**
   * A program uses a folder, or a file in it, through a client that needs no request but this for it. A stale listing is refreshed in the
   * background; an unlisted folder is left alone.
   */
  validated(ino: Inode): void {
    ifReadable(this.#log, ino, () => {
      const node = this.#tree.node(ino);
      const folder = node?.kind === 'folder' ? ino : node?.local?.parent;
      if (folder !== undefined && this.#tree.isComplete(folder)) this.isListed(folder);
    });
  }

  /** Whether programs used the folder lately: it is refreshed without their requests. */
  isInUse(folder: Inode): boolean {
    return this.#watched.has(folder);
  }

  /** From now on, folders that a program watches stay in use. `find` is called rarely, and never while no folder is in use. */
  followWatched(find: () => Promise<Iterable<Inode>>): void {
    this.#findWatched = find;
  }

  /** Starts the first listing of a folder in the background; known entries are shown meanwhile. */
  listBehind(folder: Inode): void {
    if (!this.#isPausing(folder)) this.#behind.add(folder);
  }

  /**
   * Call before reading the entries of a folder. Returns a promise only if the folder was never listed. The wait ends
   * with `signal` or after `readTimeoutMs`; the listing continues for others.
   *
   * @throws (rejects) TransportError no response, immediately during a known outage · FsError ETIMEDOUT not listed in
   * time, ENOENT the folder was deleted · ApiError
   */
  ensureListed(folder: Inode, signal: AbortSignal): void | Promise<void> {
    if (this.isListed(folder)) return;
    const underWay = this.#underWay.get(folder);
    const { pausing } = this.#health;
    if (pausing !== null && (underWay === undefined || this.#openWaitLeftMs(underWay) <= 0))
      return Promise.reject(pausing);
    const listing = underWay?.listing ?? this.#list(folder, { isAwaited: true });
    this.#ahead.looked(folder, true);
    const waiting = new AbortController();
    const late = this.#clock.sleep(this.#readTimeoutMs, waiting.signal).then(
      () => Promise.reject(new FsError('ETIMEDOUT', 'the service did not list the folder in time')),
      () => {},
    );
    return unlessAborted(Promise.race([listing, late]), signal).finally(() => waiting.abort());
  }

  /**
   * Call before a file is opened: waits for a fresh listing, so that the program does not edit an old version. The wait
   * ends `openWaitMs` after the listing began, for all openers. After one such timeout, and during an outage, opens do
   * not wait until the service responds again. Rejects only if the caller's signal aborts.
   */
  beforeOpen(ino: Inode, caller: { readonly signal: AbortSignal }): void | Promise<void> {
    const folder = this.#tree.node(ino)?.remote?.parent;
    if (folder === undefined || this.#tree.node(folder) === undefined) return;
    this.#use(folder);
    if (!this.#isOld(folder) || this.#isPausing(folder)) return;
    const listing = this.#inBackground(folder);
    const underWay = this.#underWay.get(folder);
    const leftMs = underWay === undefined ? 0 : this.#openWaitLeftMs(underWay);
    if (leftMs <= 0 || this.#health.hasTimedOut('opener')) return;
    const waiting = new AbortController();
    const late = this.#clock.sleep(leftMs, waiting.signal).then(
      () => this.#health.timedOut('opener'),
      () => {},
    );
    return unlessAborted(Promise.race([listing, late]), caller.signal).finally(() => waiting.abort());
  }

  /**
   * Call before a push: lists the ancestors that were not listed for a long time, mostly after an outage. The service
   * would accept a push into a trashed folder, and no user would see it. Never rejects.
   */
  beforePush(ino: Inode): void | Promise<void> {
    return this.#pushPreflight.before(ino);
  }

  /**
   * Lists a folder and revalidates racily clean files in it, and waits for both. Without a folder: the root and every
   * folder in use; all others become stale. `accept`: confirms removals that were held back.
   */
  async refresh(folder?: Inode, options: { readonly accept?: boolean } = {}): Promise<void> {
    const accept = options.accept ?? false;
    this.#health.retryNow();
    if (folder === undefined) this.#staleBeforeMs = this.#clock.nowMs();
    const held = accept ? [...this.#missing.heldFolders] : [];
    const folders = folder !== undefined ? [folder] : new Set([ROOT_INODE, ...this.#watched.all, ...held]);
    for (const each of folders) {
      // A listing in progress may have been requested before the state that the caller wants to see.
      await this.#underWay.get(each)?.listing.catch(() => {});
      await (this.#underWay.get(each)?.listing ?? this.#list(each, { accept, isAwaited: true })).catch(
        (error: unknown) => {
          // The refresh has found that the folder was deleted: a normal result.
          if (!(error instanceof FsError && error.errno === 'ENOENT')) throw error;
        },
      );
      if (!this.#stop.signal.aborted) await this.#revalidate(each, this.#stop.signal);
    }
  }

  stop(): void {
    this.#stop.abort(new FsError('EINTR', 'the mount is stopping'));
    this.#behind.clear();
    this.#cancelTick?.();
    this.#cancelTick = null;
  }

  /** Never rejects. */
  #inBackground(folder: Inode): Promise<void> {
    const listing = this.#underWay.get(folder)?.listing ?? this.#list(folder);
    return listing.catch((err: unknown) => this.#log.debug({ err, folder }, 'listing not refreshed'));
  }

  /** `isAwaited`: a program waits for it */
  #list(folder: Inode, options: { readonly accept?: boolean; readonly isAwaited?: boolean } = {}): Promise<void> {
    const { accept = false, isAwaited = false } = options;
    const listing = this.#listNow(folder, accept, isAwaited).finally(() => this.#underWay.delete(folder));
    this.#underWay.set(folder, { listing, begunMs: this.#clock.elapsedMs() });
    // Waiters get the error; without a waiter it must not become an unhandled rejection.
    listing.catch(() => {});
    return listing;
  }

  async #listNow(folder: Inode, accept: boolean, isAwaited: boolean): Promise<void> {
    const node = this.#tree.node(folder);
    if (node === undefined) throw new FsError('ENOENT');
    if (node.kind !== 'folder') throw new FsError('ENOTDIR');
    if (node.remote === null || this.#tree.isInTrash(folder)) return;
    const sequence = this.#fence.nextSequence();
    const requestedMs = this.#clock.nowMs();
    const refused = this.#missing.takeRefused(folder);
    try {
      const { resource } = node.remote;
      const isNewHere = this.#tree.listedMs(folder) === null && this.#tree.isEmpty(folder) && !this.#missing.isWaiting;
      const ahead = isNewHere ? new MergedAhead() : null;
      let clockMs: number | null = null;
      const onPage = async (page: ListingPage): Promise<void> => {
        clockMs ??= page.serverTimeMs;
        if (ahead !== null)
          await this.#missing.mergePage({ folder, sequence, requestedMs, serverTimeMs: clockMs }, page.entries, ahead);
      };
      const pages = await listPages(this.#listing, resource, this.#stop.signal, {
        isAwaited,
        ...(ahead !== null && { onPage }),
      });
      let { entries } = pages;
      const { serverTimeMs } = pages;
      this.#health.answered('opener');
      const listed = { folder, sequence, requestedMs, serverTimeMs };
      let outcome = await this.#missing.merge(listed, entries, ahead);
      if (ahead?.isClashing) {
        ({ entries } = await listPages(this.#listing, resource, this.#stop.signal, { isAwaited }));
        outcome = await this.#missing.merge(listed, entries);
      }
      const isNew = outcome.changes > 0 || outcome.questions.length > 0;
      this.#watched.listed(folder, isNew ? 'new' : 'nothing new');
      await this.#missing.resolve(listed, outcome, { entries, refused, accept });
    } catch (error) {
      if (error instanceof ApiError) this.#health.answered('opener');
      if (error instanceof ApiError && error.status === 404) {
        // A deleted folder that is retained stays stale: otherwise each step of a program in it would send a request.
        this.#watched.failed(folder);
        if (await this.#missing.resolveFolder(folder, accept)) this.#watched.doubted(folder);
        return;
      }
      if (error instanceof TransportError || error instanceof SignInError) this.#health.unanswered(error);
      this.#watched.failed(folder);
      throw error;
    } finally {
      this.#fence.finish(sequence);
    }
  }

  /** Remaining wait of an open for a listing. */
  #openWaitLeftMs({ begunMs }: { readonly begunMs: number }): number {
    return begunMs + this.#openWaitMs - this.#clock.elapsedMs();
  }

  #isOld(folder: Inode): boolean {
    const node = this.#tree.node(folder);
    if (node === undefined || node.remote === null) return false;
    const listedMs = this.#tree.listedMs(folder);
    if (listedMs === null) return !this.#tree.isInTrash(folder);
    const nowMs = this.#clock.nowMs();
    const ageMs = nowMs - listedMs;
    // The clock was set back after `cfs refresh`: new listings would count as stale until it catches up.
    this.#staleBeforeMs = Math.min(this.#staleBeforeMs, nowMs);
    // A wall clock that was set back must not keep a listing fresh permanently.
    const isOld = ageMs >= this.#dirTtlMs || ageMs < 0 || listedMs < this.#staleBeforeMs;
    // The trash shows what is known here, without a request.
    return isOld && !this.#tree.isInTrash(folder);
  }

  /** Whether a listing is stale and may be requested now. */
  #isDue(folder: Inode): boolean {
    return this.#isOld(folder) && !this.#isPausing(folder);
  }

  /** Whether requests are currently paused. */
  #isPausing(folder: Inode): boolean {
    return this.#health.pausing !== null || this.#watched.isPausing(folder);
  }

  #use(folder: Inode): void {
    this.#watched.use(folder);
    this.#scheduleTick();
  }

  #scheduleTick(): void {
    if (this.#cancelTick !== null || this.#stop.signal.aborted) return;
    this.#cancelTick = this.#clock.after(this.#watched.unaskedMs, () => {
      this.#cancelTick = null;
      for (const folder of this.#openFolders()) this.#watched.use(folder);
      if (this.#findWatched !== null && this.#watched.wantsLook) void this.#keepWatched(this.#findWatched);
      else this.#refreshDue();
    });
  }

  #refreshDue(): void {
    if (this.#stop.signal.aborted) return;
    const listedMs = (each: Inode) => ifReadable(this.#log, each, () => this.#tree.listedMs(each)) ?? null;
    for (const folder of this.#watched.due(listedMs)) this.#behind.add(folder);
    if (!this.#watched.isEmpty) this.#scheduleTick();
  }

  async #keepWatched(find: () => Promise<Iterable<Inode>>): Promise<void> {
    this.#watched.looks();
    try {
      for (const folder of await find()) this.#watched.use(folder);
    } catch (err) {
      this.#log.debug({ err }, 'the folders that programs watch are not known');
    }
    this.#refreshDue();
  }

  #openFolders(): Set<Inode> {
    const folders = new Set<Inode>();
    for (const { ino } of this.#openFiles()) {
      const parent = ifReadable(this.#log, ino, () => this.#tree.node(ino))?.remote?.parent;
      if (parent !== undefined) folders.add(parent);
      if (folders.size === WATCHED_MAX) break;
    }
    return folders;
  }
}
