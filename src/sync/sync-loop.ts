import { isDeepStrictEqual } from 'node:util';
import { unlessAborted } from '../base/abort.ts';
import { SignInError, TransportError, UsageError } from '../base/errors.ts';
import type { ContentId, Inode } from '../base/vocabulary.ts';
import { type Intents, mayHaveActed } from '../store/intents.ts';
import { ifSound, liesIn } from '../store/node-table.ts';
import type { Transaction } from '../store/tables.ts';
import { Agenda } from './agenda.ts';
import { DirtyIndex } from './dirty-index.ts';
import { type Discard, Discarding } from './discarding.ts';
import { type Failure, failureOf } from './failure.ts';
import { MadeHere } from './made-here.ts';
import type { Action } from './plan.ts';
import type { Push } from './push.ts';
import { type Pause, PushPause, pausedError } from './push-pause.ts';
import { Pusher } from './pusher.ts';
import { Refusals } from './refusals.ts';
import { RunningPushes } from './running-pushes.ts';
import type { SyncDeps } from './sync-deps.ts';
import { pathOf, type SyncStatus, type WaitingChange } from './sync-event.ts';
import { SyncReporter } from './sync-reporter.ts';
import { type OnBegin, type SyncReport, SyncRequest } from './sync-request.ts';
import type { OnInTheWay } from './taken-names.ts';
import { Tidying } from './tidying.ts';

/** After a turn that failed. */
const TURN_AGAIN_MS = 5_000;

/**
 * Brings what is dirty to the service: starts what the agenda says is ready, some at a time, and tells it what came of each.
 * Driven by what happens (a change, an answer, a moment that was waited for); idle, it does nothing at all.
 * Whatever fails is tried again or parked, and never dropped; what was begun is in table `intent` and continues after any
 * end of the process.
 *
 * INVARIANT: one push at a time per node, and none for a node whose last push has an unknown outcome but to find that out.
 */
export class SyncLoop {
  readonly #deps: SyncDeps;
  readonly #intents: Intents;
  readonly #agenda: Agenda;
  readonly #pusher: Pusher;
  readonly #tidying: Tidying;
  readonly #reporter: SyncReporter;
  readonly #discarding: Discarding;
  readonly #refusals: Refusals;
  readonly #pause: PushPause;

  readonly #pushing: RunningPushes;
  /** About to be given up: no push of theirs begins. */
  readonly #givingUp = new Set<Inode>();
  readonly #requests = new Set<SyncRequest>();
  /** Nodes whose last push got no answer, and how many others had got one by then. */
  readonly #unanswered = new Map<Inode, number>();
  #turnIsDue = false;
  #state: 'new' | 'running' | 'stopped' = 'new';
  #onIdle: (() => void)[] = [];
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
    const madeHere = new MadeHere(deps);
    this.#tidying = new Tidying({ contents, madeHere, clock, log, isBusy: () => this.#pushing.size > 0 });
    const isBusy = (ino: Inode): boolean => pushing.has(ino) || this.#refusals.has(ino) || this.#givingUp.has(ino);
    const onWork = (): void => this.#wake();
    const onUndecided = (ino: Inode, error: unknown): void => this.#undecided(ino, error);
    const onVoid = (ino: Inode): void => pushing.abort(ino, 'the file was removed');
    const requests = this.#requests;
    const busy = {
      get size() {
        return pushing.size;
      },
      has: isBusy,
      starterFor: (ino: Inode) => pushing.starterFor(ino),
    };
    const agenda = new Agenda({
      ...{ ...deps, index, pushing: busy, requests, onWork, onVoid, onUndecided },
      isPaused: () => pause.current !== null,
    });
    this.#agenda = agenda;
    const onDirty = (ino: Inode): void => agenda.reconsider(ino);
    const onInTheWay: OnInTheWay = (ino, asker, place) => agenda.inTheWay(ino, asker, place);
    const onKeptOpen = (ino: Inode): void => agenda.keptOpen(ino);
    const onNameless = (content: ContentId): void => madeHere.add(content);
    const isOthers = (ino: Inode): boolean => (pushing.starterFor(ino) ?? ino) !== ino;
    this.#pusher = new Pusher({ ...deps, index, isOthers, onDirty, onInTheWay, onKeptOpen, onNameless });
    this.#reporter = new SyncReporter({ ...deps, agenda, pushing });
  }

  /** Continues with tables `intent` and `dirty`. */
  start(): void {
    if (this.#state !== 'new') throw new Error('a sync is started once');
    this.#state = 'running';
    this.#agenda.load();
    this.#pause.start();
    this.#tidying.soon();
    this.#wake();
  }

  /**
   * The node was changed: by a user (also its last release, which ends the writing of a file), or by a merge that leaves it
   * dirty. Cheap: to be called in the path of an operation.
   */
  changed(ino: Inode): void {
    if (this.#state !== 'running') return;
    this.#agenda.changed(ino);
    this.#reporter.changed();
    this.#tidying.soon();
  }

  /**
   * Pushes at once everything that was closed when it was called, whatever the intervals. Resolves when exactly that is
   * pushed or parked; what is opened for writing again meanwhile is left out. Waits while the service cannot be reached.
   *
   * @param within only what lies in that folder, or that file, and what has to go before it; null for everything
   * @param onBegin gets what tells how much is left, while it lasts
   * @throws the signal's reason · UsageError (exit code 10) while pushing is paused
   */
  syncNow(signal?: AbortSignal, within: Inode | null = null, onBegin?: OnBegin): Promise<SyncReport> {
    if (this.#pause.current !== null) return Promise.reject(pausedError(this.#pause.current));
    const { store, health, isBeingWritten } = this.#deps;
    health.retryNow();
    const request = new SyncRequest({
      inos: this.#dirtyWithin(within, 'inside'), // so that it is told of
      store,
      isBusy: (ino) => this.#pushing.has(ino) || this.#refusals.has(ino) || this.#intents.ownedBy(ino) !== undefined,
      isBeingWritten,
      blockerOf: (ino, found) => this.#agenda.blockerOf(ino, found),
      signal,
      onEnd: (ended) => this.#requests.delete(ended),
    });
    if (signal?.aborted) return request.report;
    this.#requests.add(request);
    onBegin?.(() => request.left());
    for (const ino of request.inos()) this.#agenda.reconsider(ino);
    request.check();
    this.#wake();
    return request.report;
  }

  /** As `syncNow`, for at most that long, or until `enough`. @returns how many nodes are left to be pushed, parked ones included */
  async drain(timeoutMs: number, onBegin?: OnBegin, enough?: AbortSignal): Promise<{ left: number }> {
    const deadline = new AbortController();
    const signal = enough === undefined ? deadline.signal : AbortSignal.any([deadline.signal, enough]);
    const timeUp = (): void => deadline.abort(new DOMException('drained long enough', 'TimeoutError'));
    // A timer cannot wait for ever: it would fire at once.
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

  /** Ends all pushes where they are; what they began is gone on with at the next start. */
  async stop(): Promise<void> {
    this.#state = 'stopped';
    this.#pause.stop();
    this.#refusals.stop();
    this.#tidying.stop();
    this.#agenda.stop();
    this.#pushing.abortAll('the mount stops');
    for (const request of this.#requests) request.abort(new DOMException('the mount stops', 'AbortError'));
    if (this.#pushing.size > 0) await new Promise<void>((resolve) => this.#onIdle.push(resolve));
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

  /** Another try for what is parked (one node, or all), and for the service, now. @returns how many were parked */
  retry(ino?: Inode): number {
    const { store, health } = this.#deps;
    health.retryNow();
    const inos = ino === undefined ? this.status().parked.map((parked) => parked.ino) : [ino];
    // What is about to be parked is tried again as well.
    for (const one of ino === undefined ? this.#refusals.inos() : [ino])
      if (this.#refusals.drop(one)) this.#agenda.reconsider(one);
    let retried = 0;
    store.transact((tx) => {
      for (const one of inos) {
        const dirty = tx.get('dirty', one);
        if (!dirty?.parked) continue;
        tx.put('dirty', one, { ...dirty, parked: null });
        retried++;
      }
    });
    for (const one of inos) this.#agenda.reconsider(one);
    this.#reporter.changed();
    this.#wake();
    return retried;
  }

  /**
   * Gives up the changes of a file, or of all in a folder: what is here becomes what the service has, as far as that is known.
   * Where one of them is on its way, that is ended first.
   *
   * @param how `'preview'`: only tells what that would be
   * @throws UsageError while one of the files is open for writing, or nothing has been heard of a deletion (`Discarding`)
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
        if (busy) await new Promise<void>((resolve) => this.#onPushEnd.push(resolve));
      }
      if (inos.some(isOpenForWriting)) throw new UsageError('a file there is open for writing: close it first');
      const given = this.#discarding.preview(inos);
      onTreeChange(this.#discarding.discard(inos));
      return given;
    } finally {
      for (const ino of held) this.#givingUp.delete(ino);
      for (const ino of held) this.#agenda.reconsider(ino);
    }
  }

  status(): SyncStatus {
    return this.#reporter.status;
  }

  /** All that is to be pushed, in no order. There may be very many: whoever takes them gives up the turn in between. */
  changes(): Iterable<WaitingChange> {
    return this.#reporter.changes();
  }

  /** Pushes that failed and were put off, since the start. */
  get postponed(): number {
    return this.#reporter.postponed;
  }

  /** What a person is told about one node (`user.cfs.state`). */
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
        // A row that cannot be read, where no node is to blame: nobody else would hear of it, and the mount would end.
        this.#deps.log.error({ err }, 'the sync could not go on');
        this.#deps.clock.after(TURN_AGAIN_MS, () => this.#wake());
      }
    });
  }

  /** One turn of the loop: decides about some nodes, starts what may start. Never long. */
  #turn(): void {
    this.#agenda.decideSome();
    for (const push of this.#agenda.ready()) void this.#push(push);
    if (this.#agenda.rest()) for (const request of this.#requests) request.check();
  }

  /** Never rejects. */
  async #push(push: Push): Promise<void> {
    const { ino } = push.action;
    const signal = this.#pushing.start(ino);
    this.#reporter.changed();
    let isInDoubt = false;
    try {
      if (!(await this.#isOvertaken(push, signal))) {
        const outcome = await this.#pusher.push(push.action, signal);
        // To have found out what the last one did is no answer to the next one, where there is one.
        if (push.action.type !== 'find-out' || !this.#isLeft(ino)) {
          this.#unanswered.delete(ino);
          this.#refusals.drop(ino);
        }
        if (outcome !== 'unchanged') this.#deps.health.pushed();
        this.#agenda.succeeded(push, outcome);
      }
    } catch (error) {
      const failure = failureOf(error);
      // The network may have refused instead of the service: then there is nothing to do for a person.
      isInDoubt = failure.type === 'park' && failure.isRefusal && this.#state === 'running';
      if (failure.type === 'park' && isInDoubt) void this.#doubt(push, failure, error);
      else this.#record(push.action, failure, error);
    }
    const owner = this.#pushing.ownerOf(ino);
    this.#pushing.end(ino);
    if (!isInDoubt) this.#pushing.release(ino);
    this.#over(push, () => this.#agenda.ended(push, owner));
    for (const heard of this.#onPushEnd.splice(0)) heard();
    if (this.#pushing.size === 0) for (const done of this.#onIdle.splice(0)) done();
    this.#wake();
  }

  /** As `failed`, where that may fail itself. Never throws. */
  #record({ ino: starter, type }: Action, failure: Failure, error: unknown): void {
    const ino = this.#pushing.ownerOf(starter);
    try {
      this.#failed(ino, type, failure, error);
    } catch (err) {
      this.#deps.log.error({ ino, err }, 'failure not recorded');
      this.#agenda.failed(ino, null);
    }
  }

  /** Parks once it is known that the service refused. The push has no place meanwhile. Never rejects. */
  async #doubt(push: Push, refusal: Parked, error: unknown): Promise<void> {
    const { ino } = push.action;
    const verdict = await this.#refusals.verdict(push);
    const owner = this.#pushing.ownerOf(ino);
    if (verdict === null) return this.#pushing.release(ino); // given up, tried again, or left to the next start
    if (verdict.type === 'refused') this.#record(push.action, refusal, error);
    else if (verdict.type === 'unconfirmed') this.#record(push.action, failureOf(verdict.error), verdict.error);
    else if (verdict.type === 'changed') this.#agenda.failed(owner, null);
    this.#pushing.release(ino);
    this.#over(push, () => this.#agenda.settled(push, owner));
    this.#wake();
  }

  /** Never throws. */
  #over({ action: { ino } }: Push, tellAgenda: () => void): void {
    try {
      tellAgenda();
      this.#reporter.changed();
      this.#tidying.soon();
      for (const request of this.#requests) request.check(ino);
    } catch (err) {
      this.#deps.log.error({ ino, err }, 'the end of a push was not reported to all');
    }
  }

  #isLeft(ino: Inode): boolean {
    return this.#deps.store.get('dirty', ino) !== undefined || this.#intents.ownedBy(ino) !== undefined;
  }

  /** Whether there is something else to be done about the node by now, because of what was seen right before its push. */
  async #isOvertaken({ action, before }: Push, signal: AbortSignal): Promise<boolean> {
    // What a push did has to be found out whatever became of its place, and what is deleted is looked at by itself.
    if (action.type === 'find-out' || action.type === 'delete') return false;
    const { store, isBeingWritten, beforePush } = this.#deps;
    const looking = beforePush?.(action.ino);
    if (looking === undefined) return false;
    await unlessAborted(looking, signal);
    if (action.type === 'upload') {
      if (isBeingWritten(action.ino)) return true; // opened again meanwhile: half a file is never pushed
    } else if (store.get('node', action.parent)?.remote == null) return true;
    return !isDeepStrictEqual(store.get('node', action.ino), before.node);
  }

  #failed(ino: Inode, type: Action['type'], failure: Failure, error: unknown): void {
    const { log, store, health } = this.#deps;
    switch (failure.type) {
      case 'stopped':
        return;
      case 'offline':
      case 'sign-in': {
        const Reason = failure.type === 'offline' ? TransportError : SignInError;
        health.unanswered(error instanceof Reason ? error : new Reason(failure.detail, { cause: error }));
        this.#notAnswered(ino);
        log.debug({ ino, action: type, detail: failure.detail }, 'service not reached, or sign-in refused');
        return;
      }
      case 'retry':
        if (failure.trouble === 'service') health.overloaded(failure.afterMs);
        else if (failure.trouble === 'error') health.erred(ino);
        // `this`: a local cause, or a state of the node. It says nothing about the service.
        this.#agenda.failed(ino, failure.afterMs);
        log.warn({ ino, action: type, detail: failure.detail, err: error }, 'push postponed');
        return;
      case 'park': {
        if (failure.isRefusal) health.pushed();
        const isWanted = store.get('dirty', ino) !== undefined;
        store.transact((tx) => this.#park(tx, ino, failure));
        this.#tellParked(ino, type, failure);
        // An upload of which nothing was sent has nothing to resume. The outcome of other requests still has to be found out.
        // The node is parked even if this cannot be stored.
        const begun = this.#intents.ownedBy(ino);
        if (begun?.content != null && !mayHaveActed(begun)) this.#intents.forget(begun.id);
        // Discarded meanwhile: no person sees it parked, and none will retry it.
        else if (begun !== undefined && !isWanted) this.#agenda.failed(ino, null);
        return;
      }
      default:
        failure satisfies never;
    }
  }

  /** One that gets no answer while others do is put off by itself: it must not pause them again and again. */
  #notAnswered(ino: Inode): void {
    const { answers } = this.#deps.health;
    const before = this.#unanswered.get(ino);
    this.#unanswered.set(ino, answers);
    if (before !== undefined && before < answers) this.#agenda.failed(ino, null);
  }

  /** What keeps one node from being decided about keeps no other. Never throws. */
  #undecided(ino: Inode, error: unknown): void {
    const failure = failureOf(error);
    const { store } = this.#deps;
    try {
      if (failure.type === 'park' && store.get('dirty', ino) !== undefined) {
        // What it began stays begun: nobody was asked what came of it.
        store.transact((tx) => this.#park(tx, ino, failure));
        this.#tellParked(ino, 'decide', failure);
        return;
      }
    } catch (err) {
      this.#deps.log.error({ ino, err }, 'failure not recorded');
    }
    this.#deps.log.error({ ino, err: error }, 'push not decided');
    this.#agenda.failed(ino, null);
  }

  #park(tx: Transaction, ino: Inode, { reason, detail }: Parked): void {
    const dirty = tx.get('dirty', ino);
    if (dirty === undefined) return;
    tx.put('dirty', ino, { ...dirty, parked: { reason, detail, atMs: this.#deps.clock.nowMs() } });
  }

  #tellParked(ino: Inode, action: Action['type'] | 'decide', { reason, detail }: Parked): void {
    const { log, store, onEvent } = this.#deps;
    log.error({ ino, action, reason, detail }, 'push refused and parked');
    this.#reporter.changed();
    onEvent({ type: 'parked', path: pathOf(store, ino), reason });
  }

  /** What is dirty at this moment, in a folder or altogether. Where the way up is damaged it counts as `whereUnknown` says. */
  #dirtyWithin(within: Inode | null, whereUnknown: 'inside' | 'outside'): Inode[] {
    const { store } = this.#deps;
    const inos = Array.from(this.#agenda.dirty(), ([ino]) => ino);
    if (within === null) return inos;
    return inos.filter((ino) => ifSound(() => liesIn(store, ino, within)) ?? whereUnknown === 'inside');
  }
}

type Parked = Extract<Failure, { type: 'park' }>;
