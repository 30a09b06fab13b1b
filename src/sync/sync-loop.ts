import { isDeepStrictEqual } from 'node:util';
import { unlessAborted } from '../base/abort.ts';
import { SignInError, TransportError, UsageError } from '../base/errors.ts';
import type { ContentId, Inode } from '../base/vocabulary.ts';
import { type Intents, mayHaveActed } from '../store/intents.ts';
import { ifSound, liesIn } from '../store/node-table.ts';
import { BackgroundWork } from './background-work.ts';
import { DirtyIndex } from './dirty-index.ts';
import { type Discard, Discarding } from './discarding.ts';
import type { OnInTheWay } from './name-collisions.ts';
import type { Action } from './plan.ts';
import type { Push } from './push.ts';
import { type PushFailure, pushFailureOf } from './push-failure.ts';
import { type Pause, PushPause, pausedError } from './push-pause.ts';
import { PushScheduler } from './push-scheduler.ts';
import { Pusher } from './pusher.ts';
import { Refusals } from './refusals.ts';
import { RunningPushes } from './running-pushes.ts';
import type { SyncDeps } from './sync-deps.ts';
import { pathOf, type SyncStatus, type WaitingChange } from './sync-event.ts';
import { SyncReporter } from './sync-reporter.ts';
import { type OnBegin, type SyncReport, SyncRequest } from './sync-request.ts';
import { UnidentifiedVersions } from './unidentified-versions.ts';

/** Pause after a turn that failed. */
const TURN_AGAIN_MS = 5_000;

/**
 * Pushes the dirty nodes: begins some of the pushes that the push scheduler has ready, and reports their ends to it. Events drive it: a
 * change, a response, or a moment that a node waited for. Without events it does nothing.
 * A failed push is retried or parked, never dropped. Operations in flight are in table `intent` and continue after any end of the process.
 *
 * INVARIANT: at most one push per node. A node whose last push has an unknown outcome gets no push except its recovery.
 */
export class SyncLoop {
  readonly #deps: SyncDeps;
  readonly #intents: Intents;
  readonly #scheduler: PushScheduler;
  readonly #pusher: Pusher;
  readonly #unidentifiedVersions: UnidentifiedVersions;
  readonly #backgroundWork: BackgroundWork;
  readonly #reporter: SyncReporter;
  readonly #discarding: Discarding;
  readonly #refusals: Refusals;
  readonly #pause: PushPause;

  readonly #pushing: RunningPushes;
  /** Nodes about to be discarded: no push of them begins. */
  readonly #givingUp = new Set<Inode>();
  readonly #requests = new Set<SyncRequest>();
  /** Nodes whose last push got no response, with the number of other nodes that had got one by then. */
  readonly #unanswered = new Map<Inode, number>();
  readonly #stopped = new AbortController();
  #turnIsDue = false;
  #state: 'new' | 'running' | 'stopped' = 'new';
  #onPushEnd: (() => void)[] = [];

  constructor(deps: SyncDeps) {
    this.#deps = deps;
    const { store, clock, contents, log } = deps;
    const { intents } = deps;
    this.#intents = intents;
    const pushing = new RunningPushes(intents);
    this.#pushing = pushing;
    const index = new DirtyIndex(store, intents);
    this.#refusals = new Refusals(deps);
    this.#discarding = new Discarding({ store, intents, naming: deps.names, clock });
    deps.health.onReachable(() => this.#wake());
    const pause = new PushPause({ store, clock, onEvent: (event) => deps.onEvent(event), onEnd: () => this.#wake() });
    this.#pause = pause;
    const unidentifiedVersions = new UnidentifiedVersions(deps);
    this.#unidentifiedVersions = unidentifiedVersions;
    this.#backgroundWork = new BackgroundWork({
      contents,
      unidentifiedVersions,
      clock,
      log,
      isBusy: () => this.#pushing.size > 0,
    });
    const isBusy = (ino: Inode): boolean => pushing.has(ino) || this.#refusals.has(ino) || this.#givingUp.has(ino);
    const pusherOf = (ino: Inode): Inode | null => (isBusy(ino) ? ino : pushing.starterFor(ino));
    const onWork = (): void => this.#wake();
    const onUndecided = (ino: Inode, error: unknown): void => this.#record(ino, 'decide', pushFailureOf(error), error);
    const onVoid = (ino: Inode): void => pushing.abort(ino, 'the file was removed');
    const requests = this.#requests;
    const isPaused = (): boolean => pause.current !== null;
    const scheduler = new PushScheduler({ ...deps, index, pusherOf, requests, onWork, onVoid, onUndecided, isPaused });
    this.#scheduler = scheduler;
    const onDirty = (ino: Inode): void => scheduler.reconsider(ino);
    const onInTheWay: OnInTheWay = (ino, asker, place) => scheduler.inTheWay(ino, asker, place);
    const onKeptOpen = (ino: Inode): void => scheduler.keptOpen(ino);
    const onNameless = (content: ContentId): void => unidentifiedVersions.add(content);
    this.#pusher = new Pusher({ ...deps, index, isBusy, onDirty, onInTheWay, onKeptOpen, onNameless });
    this.#reporter = new SyncReporter({ ...deps, scheduler, pushing });
  }

  /** Continues with tables `intent` and `dirty`. `isContinued`: as in `PushScheduler.load`. */
  start(isContinued = false): void {
    if (this.#state !== 'new') throw new Error('a sync is started once');
    this.#state = 'running';
    this.#scheduler.load(isContinued);
    this.#pause.start();
    this.#backgroundWork.soon();
    this.#wake();
  }

  /**
   * The node was changed, by a user or by a merge that leaves it dirty. The last release counts as a change, because it ends the writing of a
   * file. Cheap, because operations call it.
   */
  changed(ino: Inode): void {
    if (this.#state !== 'running') return;
    this.#scheduler.changed(ino);
    this.#reporter.changed();
    this.#backgroundWork.soon();
  }

  /**
   * Immediately pushes every change that is closed at the call, without settle delays. Resolves when exactly these changes are pushed or
   * parked; files that are opened for writing again are left out. Waits while the service is unreachable.
   *
   * @param within only the changes in that folder, or of that file, and those that have to be pushed before them; null for all
   * @param onBegin gets a function that returns the remaining work, while the request runs
   * @throws the signal's reason · UsageError (exit code 10) while pushing is paused
   */
  syncNow(signal?: AbortSignal, within: Inode | null = null, onBegin?: OnBegin): Promise<SyncReport> {
    if (this.#pause.current !== null) return Promise.reject(pausedError(this.#pause.current));
    const { store, health, isBeingWritten } = this.#deps;
    health.retryNow();
    const request = new SyncRequest({
      inos: this.#dirtyWithin(within, 'inside'), // a damaged node is reported
      store,
      isBusy: (ino) => this.#pushing.has(ino) || this.#refusals.has(ino) || this.#intents.ownedBy(ino) !== undefined,
      isBeingWritten,
      blockerOf: (ino, found) => this.#scheduler.blockerOf(ino, found),
      signal,
      onEnd: (ended) => this.#requests.delete(ended),
    });
    if (signal?.aborted) return request.report;
    this.#requests.add(request);
    onBegin?.(() => request.left());
    for (const ino of request.inos()) this.#scheduler.reconsider(ino);
    request.check();
    this.#wake();
    return request.report;
  }

  /** As `syncNow`, for at most `timeoutMs`, or until `enough`. @returns how many nodes are still dirty, parked ones included */
  async drain(timeoutMs: number, onBegin?: OnBegin, enough?: AbortSignal): Promise<{ left: number }> {
    const deadline = new AbortController();
    const signal = enough === undefined ? deadline.signal : AbortSignal.any([deadline.signal, enough]);
    const timeUp = (): void => deadline.abort(new DOMException('drained long enough', 'TimeoutError'));
    // An infinite timer would fire immediately.
    const cancel = Number.isFinite(timeoutMs) ? this.#deps.clock.after(timeoutMs, timeUp) : () => {};
    try {
      await this.syncNow(signal, null, onBegin);
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      cancel();
    }
    return { left: this.status().pending };
  }

  /** Aborts all pushes. The next start continues them. */
  async stop(): Promise<void> {
    this.#state = 'stopped';
    this.#stopped.abort(new DOMException('the mount stops', 'AbortError'));
    this.#pause.stop();
    this.#refusals.stop();
    this.#backgroundWork.stop();
    this.#scheduler.stop();
    this.#pushing.abortAll('the mount stops');
    for (const request of this.#requests) request.abort(new DOMException('the mount stops', 'AbortError'));
    while (this.#pushing.size > 0) await this.#pushEnd();
  }

  /** A person's pause; null while pushes may be sent. */
  get paused(): Pause | null {
    return this.#pause.current;
  }

  /**
   * Sends nothing until `resume`, or until `untilMs` (wall clock; null: no end). It lasts over a restart. Running pushes are
   * aborted and continue later; waiting `syncNow` calls end.
   */
  pause(untilMs: number | null): void {
    this.#pause.begin(untilMs);
    const reason = pausedError({ sinceMs: 0, untilMs });
    this.#pushing.abortAll('pushing is paused');
    for (const request of this.#requests) request.abort(reason);
  }

  /** @returns whether there was a pause */
  resume(): boolean {
    return this.#pause.end();
  }

  /** Retries what is parked (one node, or all), and the connection, now. @returns the number of parked nodes */
  retry(ino?: Inode): number {
    const { store, health } = this.#deps;
    health.retryNow();
    const inos = ino === undefined ? this.status().parked.map((parked) => parked.ino) : [ino];
    // Includes pushes that are about to be parked.
    for (const one of ino === undefined ? this.#refusals.inos() : [ino])
      if (this.#refusals.drop(one)) this.#scheduler.reconsider(one);
    let retried = 0;
    store.transact((tx) => {
      for (const one of inos) {
        const dirty = tx.get('dirty', one);
        if (!dirty?.parked) continue;
        tx.put('dirty', one, { ...dirty, parked: null });
        retried++;
      }
    });
    for (const one of inos) this.#scheduler.reconsider(one);
    this.#reporter.changed();
    this.#wake();
    return retried;
  }

  /**
   * Discards the changes of a file, or of all files in a folder: the local state becomes the last known state of the service. Running pushes
   * of them are ended first.
   *
   * @param how `'preview'`: only lists the effect
   * @throws UsageError if one of the files is open for writing, or if the outcome of a deletion is unknown (`Discarding`)
   */
  async discard(within: Inode, how: 'preview' | 'discard'): Promise<readonly Discard[]> {
    const { isOpenForWriting, onTreeChange } = this.#deps;
    if (how === 'preview') return this.#discarding.preview(this.#dirtyWithin(within, 'outside'));
    const held = new Set<Inode>();
    try {
      let inos = this.#dirtyWithin(within, 'outside');
      for (let busy = true; busy; inos = this.#dirtyWithin(within, 'outside')) {
        for (const ino of inos) {
          held.add(ino);
          // The push may have been started for another node, over which this one was renamed.
          const starter = this.#pushing.starterFor(ino);
          if (starter !== null) held.add(starter);
        }
        // Block new pushes first. Otherwise an aborted push restarts while we wait for the others.
        for (const ino of held) {
          this.#givingUp.add(ino);
          this.#refusals.drop(ino);
        }
        const pushed = [...held].filter((ino) => this.#pushing.has(ino));
        busy = pushed.length > 0;
        for (const ino of pushed) this.#pushing.abort(ino, 'given up');
        if (busy) await this.#pushEnd();
      }
      if (inos.some(isOpenForWriting)) throw new UsageError('a file in it is open for writing: close it first');
      const given = this.#discarding.preview(inos);
      onTreeChange(this.#discarding.discard(inos));
      return given;
    } finally {
      for (const ino of held) this.#givingUp.delete(ino);
      for (const ino of held) this.#scheduler.reconsider(ino);
    }
  }

  /**
   * Makes plain versions of acknowledged drafts, which the cache does not evict: the service is asked for the names of versions that the
   * response to an upload did not name, and layers are merged. What is not acknowledged stays a draft.
   *
   * @returns false if the service did not answer
   */
  async makeEvictable(contents: readonly ContentId[]): Promise<boolean> {
    const isAnswered = await this.#unidentifiedVersions.nameThese(contents, this.#stopped.signal);
    await this.#deps.contents.mergeLayers(this.#stopped.signal);
    return isAnswered;
  }

  status(): SyncStatus {
    return this.#reporter.status;
  }

  /** All dirty nodes, in no order. There may be very many: the caller yields to other work in between. */
  changes(): Iterable<WaitingChange> {
    return this.#reporter.changes();
  }

  /** Pushes that failed and were put off, since the start. */
  get postponed(): number {
    return this.#reporter.postponed;
  }

  /** The state of one node, for a person (`user.cfs.state`). */
  stateOf(ino: Inode): ReturnType<SyncReporter['stateOf']> {
    return this.#reporter.stateOf(ino);
  }

  #wake(): void {
    if (this.#turnIsDue || this.#state !== 'running') return;
    this.#turnIsDue = true;
    setImmediate(() => {
      this.#turnIsDue = false;
      if (this.#state !== 'running') return;
      try {
        this.#turn();
      } catch (err) {
        // A damaged row that belongs to no node. Without this log line nothing would report it, and the exception would end the mount.
        this.#deps.log.error({ err }, 'a turn of the sync failed');
        this.#deps.clock.after(TURN_AGAIN_MS, () => this.#wake());
      }
    });
  }

  /** One turn of the loop: decides about some nodes, starts what may start. Never long. */
  #turn(): void {
    for (const push of this.#scheduler.turn()) void this.#push(push);
    if (this.#scheduler.rest()) for (const request of this.#requests) request.check();
  }

  /** Never rejects. */
  async #push(push: Push): Promise<void> {
    const { store, health } = this.#deps;
    const { ino } = push.action;
    const signal = this.#pushing.start(ino);
    this.#reporter.changed();
    let isInDoubt = false;
    try {
      if (!(await this.#isOvertaken(push, signal))) {
        const outcome = await this.#pusher.push(push.action, signal);
        // Recovering the outcome of the previous push does not count as a response to the next one, if there is one.
        const isLeft = store.get('dirty', ino) !== undefined || this.#intents.ownedBy(ino) !== undefined;
        if (push.action.type !== 'recover' || !isLeft) {
          this.#unanswered.delete(ino);
          this.#refusals.drop(ino);
        }
        if (outcome !== 'unchanged') health.pushed();
        this.#scheduler.succeeded(push, outcome);
      }
    } catch (error) {
      const failure = pushFailureOf(error);
      // A network may have refused instead of the service. In that case a person can do nothing.
      isInDoubt = failure.type === 'park' && failure.isRefusal && this.#state === 'running';
      if (failure.type === 'park' && isInDoubt) void this.#doubt(push, failure, error);
      else this.#record(this.#pushing.ownerOf(ino), push.action.type, failure, error);
    }
    const owner = this.#pushing.ownerOf(ino);
    this.#pushing.end(ino);
    if (!isInDoubt) this.#pushing.release(ino);
    this.#over(push, () => this.#scheduler.ended(push, owner));
    for (const heard of this.#onPushEnd.splice(0)) heard();
    this.#wake();
  }

  #pushEnd(): Promise<void> {
    return new Promise((resolve) => this.#onPushEnd.push(resolve));
  }

  /** As `#failed`, which may fail itself. Never throws. A failure to plan affects only its node. */
  #record(ino: Inode, type: Action['type'] | 'decide', failure: PushFailure, error: unknown): void {
    try {
      this.#failed(ino, type, failure, error);
    } catch (err) {
      this.#deps.log.error({ ino, err }, 'a failure was not recorded');
      this.#scheduler.failed(ino, null);
    }
  }

  /** Parks the node once the refusal is known to come from the service. Its push has no place in the queue meanwhile. Never rejects. */
  async #doubt(push: Push, refusal: Parked, error: unknown): Promise<void> {
    const { ino, type } = push.action;
    const verdict = await this.#refusals.verdict(push);
    const owner = this.#pushing.ownerOf(ino);
    if (verdict === null) return this.#pushing.release(ino); // discarded, retried, or left to the next start
    if (verdict.type === 'refused') this.#record(owner, type, refusal, error);
    else if (verdict.type === 'unconfirmed') this.#record(owner, type, pushFailureOf(verdict.error), verdict.error);
    else if (verdict.type === 'changed') this.#scheduler.failed(owner, null);
    this.#pushing.release(ino);
    this.#over(push, () => this.#scheduler.settled(push, owner));
    this.#wake();
  }

  /** Never throws. */
  #over({ action: { ino } }: Push, tellScheduler: () => void): void {
    try {
      tellScheduler();
      this.#reporter.changed();
      this.#backgroundWork.soon();
      for (const request of this.#requests) request.check(ino);
    } catch (err) {
      this.#deps.log.error({ ino, err }, 'the end of a push was not reported to all');
    }
  }

  /** Whether the push is obsolete after its preflight: the node has changed, its folder is gone, or the file is open again. */
  async #isOvertaken({ action, before }: Push, signal: AbortSignal): Promise<boolean> {
    // Recovery is needed whatever happened to the place, and deletions have a preflight of their own.
    if (action.type === 'recover' || action.type === 'delete') return false;
    const { store, isBeingWritten, beforePush } = this.#deps;
    const looking = beforePush?.(action.ino);
    if (looking === undefined) return false;
    await unlessAborted(looking, signal);
    if (action.type === 'upload') {
      if (isBeingWritten(action.ino)) return true; // opened again meanwhile; partly written files are never pushed
    } else if (store.get('node', action.parent)?.remote == null) return true;
    return !isDeepStrictEqual(store.get('node', action.ino), before.node);
  }

  #failed(ino: Inode, type: Action['type'] | 'decide', failure: PushFailure, error: unknown): void {
    const { log, health } = this.#deps;
    switch (failure.type) {
      case 'stopped':
        return;
      case 'offline':
      case 'sign-in': {
        const Reason = failure.type === 'offline' ? TransportError : SignInError;
        health.unanswered(error instanceof Reason ? error : new Reason(failure.detail, { cause: error }));
        this.#notAnswered(ino);
        log.debug({ ino, action: type, detail: failure.detail }, 'the service is unreachable, or refused the sign-in');
        return;
      }
      case 'retry':
        if (failure.trouble === 'service') health.overloaded(failure.afterMs);
        else if (failure.trouble === 'error') health.erred(ino);
        // `this`: a local cause, or a state of the node. It says nothing about the service.
        this.#scheduler.failed(ino, failure.afterMs);
        log[type === 'decide' ? 'error' : 'warn'](
          { ino, action: type, detail: failure.detail, err: error },
          'push postponed',
        );
        return;
      case 'park': {
        if (failure.isRefusal) health.pushed();
        const isParked = this.#park(ino, type, failure);
        // An upload of which nothing was sent has nothing to resume. The outcome of other requests still has to be found out.
        // The node is parked even if this cannot be stored.
        const begun = this.#intents.ownedBy(ino);
        if (begun?.content != null && !mayHaveActed(begun)) this.#intents.forget(begun.id);
        else if (!isParked) this.#scheduler.failed(ino, null);
        return;
      }
      default:
        failure satisfies never;
    }
  }

  /** A push that gets no response while others do is put off alone: it must not open the circuit breaker again and again. */
  #notAnswered(ino: Inode): void {
    const { answers } = this.#deps.health;
    const before = this.#unanswered.get(ino);
    this.#unanswered.set(ino, answers);
    if (before !== undefined && before < answers) this.#scheduler.failed(ino, null);
  }

  /** @returns false for a node that is not dirty, because it was discarded: no person sees it parked, and none will retry it */
  #park(ino: Inode, action: Action['type'] | 'decide', { reason, detail }: Parked): boolean {
    const { log, store, clock, onEvent } = this.#deps;
    const dirty = store.get('dirty', ino);
    if (dirty === undefined) return false;
    store.transact((tx) => tx.put('dirty', ino, { ...dirty, parked: { reason, detail, atMs: clock.nowMs() } }));
    log.error({ ino, action, reason, detail }, 'push refused and parked');
    this.#reporter.changed();
    onEvent({ type: 'parked', path: pathOf(store, ino), reason });
    return true;
  }

  /**
   * The nodes that are dirty now, in a folder or altogether. If the records of a node's parents are damaged, it counts as `whereUnknown`
   * says.
   */
  #dirtyWithin(within: Inode | null, whereUnknown: 'inside' | 'outside'): Inode[] {
    const { store } = this.#deps;
    const inos = Array.from(this.#scheduler.dirty(), ([ino]) => ino);
    if (within === null) return inos;
    return inos.filter((ino) => ifSound(() => liesIn(store, ino, within)) ?? whereUnknown === 'inside');
  }
}

type Parked = Extract<PushFailure, { type: 'park' }>;
