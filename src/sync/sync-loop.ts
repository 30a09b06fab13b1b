import type { Clock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { ContentId, Extent, Inode } from '../base/vocabulary.ts';
import type { Contents } from '../store/contents.ts';
import { writeNode } from '../store/node-table.ts';
import type { StoreWriter } from '../store/tables.ts';
import { DirtyIndex } from './dirty-index.ts';
import { type Discard, Discarding } from './discarding.ts';
import { DueTimes } from './due-times.ts';
import { type Failure, failureOf } from './failure.ts';
import { Intents, type PushMarking } from './intents.ts';
import { MadeHere } from './made-here.ts';
import type { OnTreeChange, RemoteNaming } from './name-push.ts';
import { type Action, type Decision, decide, type PlanView } from './plan.ts';
import { planViewOf } from './plan-view.ts';
import { PushQueue } from './push-queue.ts';
import { Pusher } from './pusher.ts';
import type { RemoteChanges, UploadService } from './remote-changes.ts';
import { ServiceLine } from './service-line.ts';
import { type PendingChange, pathOf, type SyncEvent, type SyncStatus } from './sync-event.ts';
import { SyncReporter } from './sync-reporter.ts';
import { isWithin, type OnBegin, type SyncReport, SyncRequest } from './sync-request.ts';
import { Tidying } from './tidying.ts';
import { VersionPace } from './version-pace.ts';
import { Waits } from './waits.ts';

export interface SyncOptions {
  /** Pause after the last change before a change is pushed. */
  readonly settleMs: number;
  /** Pushes at the same time. */
  readonly transfers: number;
  /** How long a new file that replaces another one counts as a save of it. */
  readonly saveWindowMs: number;
  /** Where deleted files go. */
  readonly deletion: 'trash' | 'forever';
  /** A new file's first bytes up to this size go in one request. */
  readonly plainPutMaxBytes: number;
  /** The name of this machine, for conflicted copies. */
  readonly host: string;
}

export interface SyncDeps {
  readonly store: StoreWriter;
  readonly contents: Contents;
  readonly names: RemoteNaming;
  readonly marks: PushMarking;
  readonly changes: RemoteChanges;
  readonly uploads: UploadService;
  /** Fetches what is missing of a version, so that a draft over it can be sent. */
  readonly complete: (content: ContentId, extent: Extent, signal: AbortSignal) => Promise<void>;
  readonly isOpen: (ino: Inode) => boolean;
  readonly isBeingWritten: (ino: Inode) => boolean;
  readonly clock: Clock;
  readonly log: Logger;
  /** For a person to read. */
  readonly onEvent: (event: SyncEvent) => void;
  /** What the kernel has to forget: the sync changed what users see (a conflicted copy; theirs taken over). */
  readonly onTreeChange: OnTreeChange;
  readonly options: SyncOptions;
}

/**
 * Brings what is dirty to the service: asks the plan about each dirty node, carries out what it says, some at a time, and
 * asks again. Driven by what happens (a change, an answer, a moment that was waited for); idle, it does nothing at all.
 * Whatever fails is tried again or parked, and never dropped; what was begun is in table `upload` and gone on with after any
 * end of the process.
 *
 * INVARIANT: one push at a time per node, and none for a node whose last push has an unknown outcome but to find that out.
 */
export class SyncLoop {
  readonly #deps: SyncDeps;
  readonly #index: DirtyIndex;
  readonly #intents: Intents;
  readonly #pusher: Pusher;
  readonly #line: ServiceLine;
  readonly #pace: VersionPace;
  readonly #queue: PushQueue;
  readonly #tidying: Tidying;
  readonly #view: PlanView;
  readonly #reporter: SyncReporter;
  readonly #discarding: Discarding;

  /** Records that changed since the index looked at them. */
  readonly #stale = new Set<Inode>();
  /** To be decided about in the next turn. */
  readonly #todo = new Set<Inode>();
  readonly #due: DueTimes;
  readonly #waits = new Waits();
  readonly #splits = new Set<Inode>();
  readonly #pushing = new Map<Inode, AbortController>();
  readonly #requests = new Set<SyncRequest>();
  #sweepIsDue = false;
  #turnIsDue = false;
  #state: 'new' | 'running' | 'stopped' = 'new';
  #onIdle: (() => void)[] = [];
  #onPushEnd: (() => void)[] = [];

  constructor(deps: SyncDeps) {
    this.#deps = deps;
    const { store, clock, contents, options, log } = deps;
    this.#index = new DirtyIndex(store);
    this.#intents = new Intents({ store, index: this.#index, marks: deps.marks });
    this.#discarding = new Discarding({ store, intents: this.#intents, naming: deps.names, clock });
    const onEvent = (event: SyncEvent): void => deps.onEvent(event);
    this.#line = new ServiceLine({ clock, onEvent });
    this.#pace = new VersionPace(clock);
    this.#due = new DueTimes({ clock, settleMs: options.settleMs, onDue: () => this.#wake() });
    this.#queue = new PushQueue(options.transfers);
    const madeHere = new MadeHere(deps);
    this.#tidying = new Tidying({ contents, madeHere, clock, log, isBusy: () => this.#pushing.size > 0 });
    const onDirty = (ino: Inode): void => this.#reconsider(ino);
    const onNameless = (content: ContentId): void => madeHere.add(content);
    this.#pusher = new Pusher({ ...deps, intents: this.#intents, index: this.#index, onDirty, onNameless });
    const isUrgent = (ino: Inode): boolean => {
      for (const request of this.#requests) if (request.has(ino)) return true;
      return false;
    };
    const isPushing = (ino: Inode): boolean => this.#pushing.has(ino);
    const isSplit = (folder: Inode): boolean => this.#splits.has(folder);
    const state = { index: this.#index, intents: this.#intents, due: this.#due, pace: this.#pace };
    this.#view = planViewOf(deps, { ...state, isPushing, isUrgent, isSplit });
    this.#reporter = new SyncReporter({
      ...deps,
      ...state,
      line: this.#line,
      view: this.#view,
      pushing: this.#pushing,
    });
  }

  /** Goes on with what tables `upload` and `dirty` hold. */
  start(): void {
    if (this.#state !== 'new') throw new Error('a sync is started once');
    this.#state = 'running';
    const begun = this.#intents.load();
    this.#pusher.resume(begun);
    for (const ino of begun) this.#todo.add(ino);
    for (const [ino] of this.#deps.store.all('dirty')) {
      this.#index.refresh(ino);
      this.#todo.add(ino);
    }
    this.#tidying.soon();
    this.#wake();
  }

  /**
   * The node was changed: by a user (also its last release, which ends the writing of a file), or by a merge that leaves it
   * dirty. Cheap: to be called in the path of an operation.
   */
  changed(ino: Inode): void {
    if (this.#state !== 'running') return;
    this.#stale.add(ino);
    this.#due.changed(ino);
    this.#tidying.soon();
  }

  /**
   * Pushes at once everything that was closed when it was called, whatever the intervals. Resolves when exactly that is
   * pushed or parked; what is opened for writing again meanwhile is left out. Waits while the service cannot be reached.
   *
   * @param within only what lies in that folder, or that file, and what has to go before it; null for everything
   * @param onBegin gets what tells how much is left, while it lasts
   * @throws the signal's reason
   */
  syncNow(signal?: AbortSignal, within: Inode | null = null, onBegin?: OnBegin): Promise<SyncReport> {
    this.#refreshStale();
    this.#line.open();
    const { store } = this.#deps;
    const inos = [...this.#index.inos()].filter((ino) => store.get('dirty', ino) !== undefined);
    const request = new SyncRequest({
      inos: within === null ? inos : inos.filter((ino) => isWithin(store, ino, within)),
      store: this.#deps.store,
      isBusy: (ino) => this.#pushing.has(ino) || this.#intents.of(ino) !== undefined,
      isBeingWritten: this.#deps.isBeingWritten,
      blockerOf: (ino, decided) => this.#blockerOf(ino, decided),
      signal,
      onEnd: () => this.#requests.delete(request),
    });
    this.#requests.add(request);
    onBegin?.(() => request.left());
    for (const ino of request.inos()) this.#reconsider(ino);
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
    this.#tidying.stop();
    this.#due.stop();
    for (const controller of this.#pushing.values())
      controller.abort(new DOMException('the mount stops', 'AbortError'));
    for (const request of this.#requests) request.abort(new DOMException('the mount stops', 'AbortError'));
    if (this.#pushing.size > 0) await new Promise<void>((resolve) => this.#onIdle.push(resolve));
  }

  /** The service can be reached again, or somebody signed in: a try now. */
  retryNow(): void {
    this.#line.open();
    this.#wake();
  }

  /** Another try for what is parked (one node, or all), and for the service, now. @returns how many were parked */
  retry(ino?: Inode): number {
    const { store } = this.#deps;
    this.#line.open();
    const inos = ino === undefined ? this.status().parked.map((parked) => parked.ino) : [ino];
    let retried = 0;
    store.transact((tx) => {
      for (const one of inos) {
        const dirty = tx.get('dirty', one);
        if (!dirty?.parked) continue;
        tx.put('dirty', one, { ...dirty, parked: null });
        retried++;
      }
    });
    for (const one of inos) this.#reconsider(one);
    this.#wake();
    return retried;
  }

  /**
   * Gives up the changes of a file, or of all in a folder: what is here becomes what the service has, as far as that is known.
   * Where one of them is on its way, that is ended first.
   *
   * @param how `'preview'`: only tells what that would be
   * @throws UsageError while one of the files is being written
   */
  async discard(within: Inode, how: 'preview' | 'discard'): Promise<readonly Discard[]> {
    this.#refreshStale();
    const { store, isBeingWritten, onTreeChange } = this.#deps;
    const affected = (): Inode[] =>
      [...this.#index.inos()].filter((ino) => store.get('dirty', ino) !== undefined && isWithin(store, ino, within));
    if (how === 'preview') return this.#discarding.preview(affected());
    for (let busy = true; busy; ) {
      const pushed = affected().filter((ino) => this.#pushing.has(ino));
      busy = pushed.length > 0;
      for (const ino of pushed) this.#pushing.get(ino)?.abort(new DOMException('given up', 'AbortError'));
      if (busy) await new Promise<void>((resolve) => this.#onPushEnd.push(resolve));
    }
    const inos = affected();
    if (inos.some(isBeingWritten)) throw new UsageError('a file there is open for writing: close it first');
    const given = this.#discarding.preview(inos);
    onTreeChange(this.#discarding.discard(inos));
    for (const ino of inos) this.#reconsider(ino);
    return given;
  }

  /** The service answered somebody: what waits for it goes on without waiting for the pause to end. */
  reachable(): void {
    this.#line.open();
    this.#wake();
  }

  status(): SyncStatus {
    this.#refreshStale();
    return this.#reporter.status;
  }

  /** All that is to be pushed and not parked, in no order. */
  pendingChanges(): Iterable<PendingChange> {
    this.#refreshStale();
    return this.#reporter.pendingChanges();
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
      if (this.#state === 'running') this.#turn();
    });
  }

  /** One turn of the loop: decides about some nodes, starts what may start. Never long. */
  #turn(): void {
    this.#refreshStale();
    for (const ino of this.#intents.handOverIdle((begun) => this.#pushing.has(begun))) this.#todo.add(ino);
    for (const ino of this.#due.takeDue()) this.#todo.add(ino);
    let decided = 0;
    for (const ino of this.#todo) {
      this.#todo.delete(ino);
      try {
        this.#consider(ino);
      } catch (error) {
        // A full disk, or our mistake: one node's trouble does not end the sync of the others.
        this.#deps.log.error({ ino, err: error }, 'push not decided');
        this.#due.failed(ino, null);
      }
      if (++decided === DECISIONS_PER_TURN) break;
    }
    this.#startPushes();
    if (this.#todo.size > 0) {
      this.#wake();
      return;
    }
    this.#due.armNext();
    const { closedUntilMs } = this.#line;
    if (this.#queue.size > 0 && closedUntilMs > this.#deps.clock.elapsedMs()) this.#due.arm(closedUntilMs);
    if (this.#queue.running > 0 || this.#queue.size > 0) return;
    if (this.#sweepIsDue) {
      this.#sweepIsDue = false;
      this.#sweep();
      if (this.#todo.size > 0) {
        this.#wake();
        return;
      }
    }
    for (const request of this.#requests) request.check();
  }

  /**
   * Nothing is under way any more: looks after what changed without a word to us. A merge may have cleaned what others wait
   * for.
   */
  #sweep(): void {
    for (const [ino, { parked }] of this.#deps.store.all('dirty')) {
      if (parked !== null || this.#due.isWaiting(ino)) continue;
      this.#index.refresh(ino);
      this.#todo.add(ino);
    }
  }

  #consider(ino: Inode): void {
    this.#queue.delete(ino);
    const before = this.#waits.end(ino);
    const decision = this.#decide(ino);
    switch (decision.type) {
      case 'push':
        this.#queue.add(ino, this.#weightOf(decision.action));
        return;
      case 'inherit':
        this.#inherit(decision.ino, decision.from);
        return;
      case 'split':
        this.#split(decision.ino);
        return;
      case 'wait':
        this.#waits.add(ino, decision.for);
        for (const request of this.#requests) if (request.waitsFor(ino, decision.for)) this.#reconsider(decision.for);
        if (decision.for !== before) this.#wakeWaiters(ino);
        return;
      case 'settle':
        this.#due.delay(ino, decision.untilMs);
        return;
      case 'open':
      case 'nothing':
        if (decision.type === 'nothing' && !this.#index.has(ino)) this.#forget(ino);
        this.#wakeWaiters(ino);
        return;
      default:
        decision satisfies never;
    }
  }

  #decide(ino: Inode): Decision {
    let decision: Decision = { type: 'nothing' };
    for (let attempt = 0; attempt < 3; attempt++) {
      this.#index.refresh(ino);
      decision = decide(ino, this.#view);
      if (decision.type !== 'wait' || this.#pushing.has(decision.for)) break;
      // Its record may have changed without a word to us (a merge; a resource that was taken over): then decide again.
      if (!this.#index.refresh(decision.for).changed) break;
    }
    return decision;
  }

  #startPushes(): void {
    const nowMs = this.#deps.clock.elapsedMs();
    if (nowMs < this.#line.closedUntilMs) return;
    // What is left of the queue is for the next turn: a folder of thousands may have been deleted since it was put there.
    for (let decided = 0; decided < DECISIONS_PER_TURN; decided++) {
      if (this.#line.isProbing && this.#queue.running > 0) return;
      const next = this.#queue.take();
      if (next === null) return;
      // Since it was put there things may have changed.
      const decision = this.#decide(next.ino);
      if (decision.type !== 'push' || this.#pushing.has(decision.action.ino)) {
        this.#queue.ended(next.weight);
        this.#todo.add(next.ino);
        this.#wake();
        continue;
      }
      void this.#push(next.ino, decision.action, next.weight);
    }
  }

  /** Never rejects. */
  async #push(asker: Inode, action: Action, weight: 'small' | 'large'): Promise<void> {
    const { ino } = action;
    const { store, clock, log } = this.#deps;
    const controller = new AbortController();
    this.#pushing.set(ino, controller);
    this.#queue.delete(ino);
    const before = store.get('node', ino);
    const intentBefore = this.#intents.of(ino);
    const startedMs = clock.elapsedMs();
    try {
      const outcome = await this.#pusher.push(action, controller.signal);
      if (outcome === 'split') this.#split(ino);
      if (action.type === 'upload' && outcome === 'done') this.#pace.note(ino);
      this.#due.pushed(action, clock.elapsedMs() - startedMs);
      if (outcome !== 'unchanged') this.#line.answered();
      const isSame = store.get('node', ino) === before && this.#intents.of(ino) === intentBefore;
      if (isSame && !this.#splits.has(ino)) {
        // Nothing came of it (somebody else was faster, mostly): not again at once.
        log.debug({ ino, action: action.type }, 'push changed nothing');
        this.#due.failed(ino, null);
      } else {
        this.#due.succeeded(ino);
      }
    } catch (error) {
      try {
        this.#failed(ino, action, failureOf(error), error);
      } catch (err) {
        log.error({ ino, err }, 'failure not recorded');
        this.#due.failed(ino, null);
      }
    }
    this.#pushing.delete(ino);
    this.#queue.ended(weight);
    this.#sweepIsDue = true;
    this.#tidying.soon();
    this.#index.refresh(ino);
    this.#todo.add(ino);
    this.#todo.add(asker);
    const parent = before?.remote?.parent;
    if (parent !== undefined) this.#wakeWaiters(parent);
    this.#wakeWaiters(ino);
    for (const request of this.#requests) request.check(ino);
    for (const heard of this.#onPushEnd.splice(0)) heard();
    if (this.#pushing.size === 0) for (const done of this.#onIdle.splice(0)) done();
    this.#wake();
  }

  #failed(ino: Inode, action: Action, failure: Failure, error: unknown): void {
    const { log, store, clock, onEvent } = this.#deps;
    switch (failure.type) {
      case 'stopped':
        return;
      case 'offline':
        this.#line.lost(failure.detail);
        log.debug({ ino, action: action.type, detail: failure.detail }, 'service not reached');
        return;
      case 'sign-in':
        this.#line.refused();
        log.debug({ ino, action: action.type }, 'login refused');
        return;
      case 'retry':
        this.#line.answered();
        if (failure.everybody) this.#line.pause(failure.afterMs);
        this.#due.failed(ino, failure.afterMs);
        log.warn({ ino, action: action.type, detail: failure.detail, err: error }, 'push postponed');
        return;
      case 'park': {
        this.#line.answered();
        const { reason, detail } = failure;
        store.transact((tx) => {
          const dirty = tx.get('dirty', ino);
          if (dirty !== undefined) tx.put('dirty', ino, { ...dirty, parked: { reason, detail, atMs: clock.nowMs() } });
          // Nothing was sent that a later try could go on with.
          if (this.#intents.of(ino)?.version === null) this.#intents.end(tx, ino);
        });
        log.error({ ino, action: action.type, reason, detail }, 'push refused and parked');
        onEvent({ type: 'parked', path: pathOf(store, ino), reason });
        return;
      }
      default:
        failure satisfies never;
    }
  }

  /** The bytes of `heir` become the next version of the file that `from` was. */
  #inherit(heir: Inode, from: Inode): void {
    const { store, clock } = this.#deps;
    const nowMs = clock.nowMs();
    store.transact((tx) => {
      const old = tx.get('node', from);
      const node = tx.get('node', heir);
      if (old === undefined || node === undefined) return;
      writeNode(tx, old, { ...old, remote: node.remote }, nowMs);
      writeNode(tx, node, { ...node, remote: old.remote }, nowMs);
    });
    for (const ino of [from, heir]) {
      this.#index.refresh(ino);
      this.#todo.add(ino);
      this.#wakeWaiters(ino);
    }
  }

  #split(folder: Inode): void {
    this.#splits.add(folder);
    this.#todo.add(folder);
    for (const child of this.#index.remoteChildren(folder)) this.#todo.add(child);
    this.#wakeWaiters(folder);
  }

  /** Decides about a node now, whatever it waits for in time. */
  #reconsider(ino: Inode): void {
    this.#due.skip(ino);
    this.#index.refresh(ino);
    this.#todo.add(ino);
    this.#wake();
  }

  #wakeWaiters(ino: Inode): void {
    for (const waiter of this.#waits.waitersOf(ino)) if (waiter !== ino) this.#todo.add(waiter);
    if (this.#todo.size > 0) this.#wake();
  }

  /** What keeps a node from being pushed for as long as nobody acts; null when it is on its way. */
  #blockerOf(
    ino: Inode,
    decided: Map<Inode, Decision>,
  ): { readonly ino: Inode; readonly why: 'open' | 'parked' } | null {
    const seen = new Set<Inode>();
    for (let at = ino; !seen.has(at); ) {
      seen.add(at);
      if (this.#deps.store.get('dirty', at)?.parked) return { ino: at, why: 'parked' };
      const decision = decided.get(at) ?? this.#decide(at);
      decided.set(at, decision);
      if (decision.type === 'open') return { ino: at, why: 'open' };
      if (decision.type !== 'wait') return null;
      at = decision.for;
    }
    return null;
  }

  #weightOf(action: Action): 'small' | 'large' {
    if (action.type !== 'upload' && action.type !== 'create-file' && action.type !== 'find-out') return 'small';
    const { store, options } = this.#deps;
    const content = this.#intents.of(action.ino)?.content ?? store.get('node', action.ino)?.local?.content ?? null;
    const sizeBytes = content === null ? 0 : (store.get('content', content)?.sizeBytes ?? 0);
    return sizeBytes > options.plainPutMaxBytes ? 'large' : 'small';
  }

  #refreshStale(): void {
    for (const ino of this.#stale) this.#index.refresh(ino);
    this.#stale.clear();
  }

  #forget(ino: Inode): void {
    this.#due.forget(ino);
    this.#splits.delete(ino);
  }
}

/** So that no turn takes longer than a millisecond or two. */
const DECISIONS_PER_TURN = 200;
