import { setMaxListeners } from 'node:events';
import { unlessAborted } from '../base/abort.ts';
import type { Clock } from '../base/clock.ts';
import { ApiError, FsError, SignInError, TransportError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { type Inode, ROOT_INODE } from '../base/vocabulary.ts';
import { ifReadable } from './if-readable.ts';
import { ListingAhead } from './listing-ahead.ts';
import { listPages } from './listing-pages.ts';
import { type HeldRemovals, MissingEntries } from './missing-entries.ts';
import { PushLook } from './push-look.ts';
import type { PushMarks } from './push-marks.ts';
import { Reachability } from './reachability.ts';
import type { RemoteListing } from './remote-listing.ts';
import type { Tree } from './tree.ts';
import { WATCHED_MAX, WatchedFolders } from './watched-folders.ts';

export interface FreshnessDeps {
  readonly tree: Tree;
  readonly listing: RemoteListing;
  readonly marks: PushMarks;
  readonly clock: Clock;
  readonly log: Logger;
  /** Removals wait for a person's word from now on. */
  readonly onHeld?: (held: HeldRemovals) => void;
  /** The files that are open: their folders are in use, however quiet. */
  readonly openFiles?: () => Iterable<{ readonly ino: Inode }>;
  /** Asks about the files in a folder of whose bytes a listing cannot tell whether they are the newest. Absent: there are none. */
  readonly settleDoubts?: (folder: Inode, signal: AbortSignal) => Promise<void>;
  /** `readTimeoutMs`: how long somebody waits for the first listing of a folder. */
  readonly options: { readonly dirTtlMs: number; readonly openWaitMs: number; readonly readTimeoutMs: number };
}

/**
 * When to ask the service again. It sends no events, so a listing is believed for `dirTtlMs`; older, it is served and
 * refreshed behind the reader's back. A folder is listed once at a time however many wait for it. Without an answer what is
 * known is served, and the service is tried again after a growing pause.
 */
export class Freshness {
  readonly #tree: Tree;
  readonly #listing: RemoteListing;
  readonly #marks: PushMarks;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #openFiles: () => Iterable<{ readonly ino: Inode }>;
  readonly #settleDoubts: NonNullable<FreshnessDeps['settleDoubts']>;
  readonly #dirTtlMs: number;
  readonly #openWaitMs: number;
  readonly #readTimeoutMs: number;
  readonly #ahead: ListingAhead;
  readonly #pushLook: PushLook;
  readonly #reachability: Reachability;
  readonly #stop = new AbortController();

  /** INVARIANT: at most one listing per folder. */
  readonly #underWay = new Map<Inode, { readonly listing: Promise<void>; readonly begunMs: number }>();
  readonly #watched: WatchedFolders;
  readonly #missing: MissingEntries;
  #cancelTick: (() => void) | null = null;
  /** Listings requested before this (wall, ms) are old, whatever the TTL: `cfs refresh`. */
  #staleBeforeMs = 0;

  constructor(deps: FreshnessDeps) {
    setMaxListeners(0, this.#stop.signal); // one for each request under way
    this.#tree = deps.tree;
    this.#listing = deps.listing;
    this.#marks = deps.marks;
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#openFiles = deps.openFiles ?? (() => []);
    this.#settleDoubts = deps.settleDoubts ?? (async () => {});
    this.#dirTtlMs = deps.options.dirTtlMs;
    this.#openWaitMs = deps.options.openWaitMs;
    this.#readTimeoutMs = deps.options.readTimeoutMs;
    this.#reachability = new Reachability(deps);
    this.#watched = new WatchedFolders({ clock: deps.clock, ttlMs: deps.options.dirTtlMs });
    const list = (folder: Inode) => this.#underWay.get(folder)?.listing ?? this.#list(folder, false);
    this.#ahead = new ListingAhead({ tree: deps.tree, list, log: deps.log });
    this.#pushLook = new PushLook({
      tree: deps.tree,
      clock: deps.clock,
      log: deps.log,
      begunMs: (folder) => this.#underWay.get(folder)?.begunMs,
      list: (folder) => this.#inBackground(folder),
      ask: (question) => this.#missing.settleOne(question, false),
    });
    this.#missing = new MissingEntries({
      ...{ tree: deps.tree, listing: deps.listing, marks: deps.marks, clock: deps.clock, log: deps.log },
      stop: this.#stop.signal,
      list: (folder, accept) => this.#list(folder, accept),
      underWay: (folder) => this.#underWay.get(folder)?.listing.catch(() => {}),
      onHeld: deps.onHeld ?? (() => {}),
      unanswered: (error) => this.#reachability.unanswered(error),
    });
  }

  /** Since when listings get no answer (wall, ms); null while they do. */
  get offlineSinceMs(): number | null {
    return this.#reachability.awaySinceMs;
  }

  /** Removals that wait for `cfs refresh --accept`. */
  get heldRemovals(): readonly HeldRemovals[] {
    return this.#missing.held;
  }

  /** Whether the entries of a folder are known, which is all that most calls ask; an old listing is asked for again behind them. */
  isListed(folder: Inode): boolean {
    this.#use(folder);
    if (!this.#tree.isComplete(folder)) return false;
    this.#ahead.looked(folder, false);
    if (this.#isOld(folder) && !this.#isPausing(folder)) void this.#inBackground(folder);
    return true;
  }

  /** Begins to list a folder that never was, of which what is known is shown meanwhile: nobody waits. */
  listBehind(folder: Inode): void {
    if (!this.#isPausing(folder)) void this.#inBackground(folder);
  }

  /**
   * Call before the entries of a folder are looked at. Nothing to wait for when they are known; a promise when the folder was
   * never listed. The wait ends with `signal` or after `readTimeoutMs`, the listing goes on for others.
   *
   * @throws (rejects) TransportError no answer, also at once while the service is known to be away · FsError ETIMEDOUT not listed
   * in time, ENOENT the folder is gone · ApiError
   */
  ensureListed(folder: Inode, signal: AbortSignal): void | Promise<void> {
    if (this.isListed(folder)) return;
    const underWay = this.#underWay.get(folder);
    const { pausing } = this.#reachability;
    if (pausing !== null && (underWay === undefined || this.#patienceMs(underWay) <= 0)) return Promise.reject(pausing);
    const listing = underWay?.listing ?? this.#list(folder, false);
    this.#ahead.looked(folder, true);
    const waiting = new AbortController();
    const late = this.#clock.sleep(this.#readTimeoutMs, waiting.signal).then(
      () => Promise.reject(new FsError('ETIMEDOUT', 'the service did not list the folder in time')),
      () => {},
    );
    return unlessAborted(Promise.race([listing, late]), signal).finally(() => waiting.abort());
  }

  /**
   * Call before a file is opened: waits for a listing that is not old, so that one does not edit yesterday's version; for each
   * listing at most `openWaitMs` from its beginning on, however many open. Once that was in vain nobody waits until the
   * service answered; nor when offline. Rejects only when the caller's signal aborts.
   */
  beforeOpen(ino: Inode, caller: { readonly signal: AbortSignal }): void | Promise<void> {
    const folder = this.#tree.node(ino)?.remote?.parent;
    if (folder === undefined || this.#tree.node(folder) === undefined) return;
    this.#use(folder);
    if (!this.#isOld(folder) || this.#isPausing(folder)) return;
    const listing = this.#inBackground(folder);
    const underWay = this.#underWay.get(folder);
    const patienceMs = underWay === undefined ? 0 : this.#patienceMs(underWay);
    if (patienceMs <= 0 || this.#reachability.isSlow) return;
    const waiting = new AbortController();
    const patience = this.#clock.sleep(patienceMs, waiting.signal).then(
      () => this.#reachability.late(),
      () => {},
    );
    return unlessAborted(Promise.race([listing, patience]), caller.signal).finally(() => waiting.abort());
  }

  /**
   * Call before a change is pushed: lists the folders on the way to it that were not listed for long (the service was away, mostly). What is
   * pushed into something that somebody trashed meanwhile would be accepted there, and seen by nobody. Never rejects.
   */
  beforePush(ino: Inode): void | Promise<void> {
    return this.#pushLook.before(ino);
  }

  /**
   * Lists a folder now, asks about the files in it that are in doubt, and waits for both; without one: the root and every folder in use, and everything else when it is next
   * looked at. `accept`: removals that were held back are believed.
   */
  async refresh(folder?: Inode, options: { readonly accept?: boolean } = {}): Promise<void> {
    const accept = options.accept ?? false;
    this.#reachability.tryNow();
    if (folder === undefined) this.#staleBeforeMs = this.#clock.nowMs();
    const held = accept ? [...this.#missing.heldFolders] : [];
    const folders = folder !== undefined ? [folder] : new Set([ROOT_INODE, ...this.#watched.all, ...held]);
    for (const each of folders) {
      // One that is under way may have been requested before what the caller wants to see.
      await this.#underWay.get(each)?.listing.catch(() => {});
      await (this.#underWay.get(each)?.listing ?? this.#list(each, accept)).catch((error: unknown) => {
        // That it is gone is what there was to learn.
        if (!(error instanceof FsError && error.errno === 'ENOENT')) throw error;
      });
      if (!this.#stop.signal.aborted) await this.#settleDoubts(each, this.#stop.signal);
    }
  }

  /** The service answered somebody: ask again without waiting for the pause to end. */
  reachable(): void {
    this.#reachability.tryNow();
  }

  /** Requests of others have got no answer for long: it is not asked for more than now and then. */
  unreachable(error: Error): void {
    this.#reachability.unanswered(error);
  }

  stop(): void {
    this.#stop.abort(new FsError('EINTR', 'the mount is stopping'));
    this.#cancelTick?.();
    this.#cancelTick = null;
  }

  /** Never rejects. */
  #inBackground(folder: Inode): Promise<void> {
    const listing = this.#underWay.get(folder)?.listing ?? this.#list(folder, false);
    return listing.catch((err: unknown) => this.#log.debug({ err, folder }, 'listing not refreshed'));
  }

  #list(folder: Inode, accept: boolean): Promise<void> {
    const listing = this.#listNow(folder, accept).finally(() => this.#underWay.delete(folder));
    this.#underWay.set(folder, { listing, begunMs: this.#clock.elapsedMs() });
    // Whoever waits gets the error; that nobody waits is no fault.
    listing.catch(() => {});
    return listing;
  }

  async #listNow(folder: Inode, accept: boolean): Promise<void> {
    const node = this.#tree.node(folder);
    if (node === undefined) throw new FsError('ENOENT');
    if (node.kind !== 'folder') throw new FsError('ENOTDIR');
    if (node.remote === null) return;
    const sequence = this.#marks.nextSequence();
    const requestedMs = this.#clock.nowMs();
    const refused = this.#missing.takeRefused(folder);
    try {
      const { entries, serverTimeMs } = await listPages(this.#listing, node.remote.resource, this.#stop.signal);
      this.#reachability.answered();
      const listed = { folder, sequence, requestedMs, serverTimeMs };
      const outcome = await this.#missing.merge(listed, entries);
      const isNew = outcome.changes > 0 || outcome.questions.length > 0;
      this.#watched.listed(folder, isNew ? 'new' : 'nothing new');
      await this.#missing.settle(listed, outcome, { listedEntries: entries.length, refused, accept });
    } catch (error) {
      if (error instanceof ApiError) this.#reachability.answered();
      if (error instanceof ApiError && error.status === 404) {
        // A folder that is kept though it is gone stays old: each step of a program that works in it would ask.
        this.#watched.failed(folder);
        if (await this.#missing.settleFolder(folder, accept)) this.#watched.doubted(folder);
        return;
      }
      if (error instanceof TransportError || error instanceof SignInError) this.#reachability.unanswered(error);
      this.#watched.failed(folder);
      throw error;
    } finally {
      this.#marks.finish(sequence);
    }
  }

  /** How much longer an open waits for a listing. */
  #patienceMs({ begunMs }: { readonly begunMs: number }): number {
    return begunMs + this.#openWaitMs - this.#clock.elapsedMs();
  }

  #isOld(folder: Inode): boolean {
    const node = this.#tree.node(folder);
    if (node === undefined || node.remote === null) return false;
    const listedMs = this.#tree.listedMs(folder);
    if (listedMs === null) return true;
    const nowMs = this.#clock.nowMs();
    const ageMs = nowMs - listedMs;
    // Set back after `cfs refresh`: what is listed from now on would be old until the clock is there again.
    this.#staleBeforeMs = Math.min(this.#staleBeforeMs, nowMs);
    // A wall clock that was set back must not make a listing young for ever.
    return ageMs >= this.#dirTtlMs || ageMs < 0 || listedMs < this.#staleBeforeMs;
  }

  /** Whether asking is known to be of no use for the moment. */
  #isPausing(folder: Inode): boolean {
    return this.#reachability.pausing !== null || this.#watched.isPausing(folder);
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
      const listedMs = (each: Inode) => ifReadable(this.#log, each, () => this.#tree.listedMs(each)) ?? null;
      for (const folder of this.#watched.due(listedMs)) {
        const isOld = ifReadable(this.#log, folder, () => this.#isOld(folder)) ?? false;
        if (isOld && !this.#isPausing(folder)) void this.#inBackground(folder);
      }
      if (!this.#watched.isEmpty) this.#scheduleTick();
    });
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
