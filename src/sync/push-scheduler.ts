import { isDeepStrictEqual } from 'node:util';
import type { Inode } from '../base/vocabulary.ts';
import { ifSound, soundNode, writeNode } from '../store/node-table.ts';
import type { DirtyRecord } from '../store/tables.ts';
import { CollisionMemory, type Place } from './collision-memory.ts';
import type { DirtyIndex } from './dirty-index.ts';
import { type Action, type Decision, decide, leavingHolder, type PlanView, wayOut } from './plan.ts';
import { planViewOf } from './plan-view.ts';
import type { Blocker, Push } from './push.ts';
import { PushQueue } from './push-queue.ts';
import type { PushSchedulerDeps } from './push-scheduler-deps.ts';
import { RetrySchedule } from './retry-schedule.ts';
import { VersionThrottle } from './version-throttle.ts';
import { Waits } from './waits.ts';

/**
 * The push scheduler: which dirty nodes are planned when, and which may be pushed now. It calls the plan and keeps the result: a place in the
 * queue, the end of a settle delay or of a back-off, or the node whose push has to end first. All of it is in memory: after a start, every
 * dirty node is planned again.
 *
 * It pushes nothing. The sync loop takes pushes from `turn` and reports their end: `succeeded` or `failed`, then `ended`.
 *
 * INVARIANT: a push starts at the moment of its decision, so that the decisions about other nodes see it running. No decision is kept: a
 * node that is ready while no push may start is queued, and planned when its place comes.
 */
export class PushScheduler {
  readonly #deps: PushSchedulerDeps;
  readonly #index: DirtyIndex;
  readonly #view: PlanView;
  readonly #due: RetrySchedule;
  readonly #pace: VersionThrottle;
  readonly #queue: PushQueue;
  readonly #waits = new Waits();
  /** Folders that cannot be moved to the trash whole. */
  readonly #splits = new Set<Inode>();
  /** Records that changed since the index read them. */
  readonly #stale = new Set<Inode>();
  /** Nodes that the service refused a name because of another node that is to leave it. They wait for that node during their back-off. */
  readonly #refused: CollisionMemory;
  /** Files that were deleted remotely and were open at the last look. */
  readonly #keptOpen = new Set<Inode>();
  /** To be planned in the next turn. */
  readonly #todo = new Set<Inode>();
  #sweepIsDue = false;
  /** Whether `retryAtMs` was in the future when the last push was about to begin. */
  #isHeld = false;

  constructor(deps: PushSchedulerDeps) {
    this.#deps = deps;
    const { clock, options } = deps;
    this.#index = deps.index;
    this.#refused = new CollisionMemory(deps.store);
    this.#due = new RetrySchedule({ clock, settleMs: options.settleMs, onDue: deps.onWork });
    this.#pace = new VersionThrottle(clock);
    this.#queue = new PushQueue(options.transfers);
    const seen = { due: this.#due, pace: this.#pace, splits: this.#splits, refused: this.#refused };
    this.#view = planViewOf({ ...deps, ...seen });
    // An intent that gets another owner is recovered without a settle delay.
    deps.intents.onChange((before, after) => {
      if (before === undefined || after === undefined || before.owner === after.owner) return;
      this.#todo.add(after.owner);
      deps.onWork();
    });
  }

  /**
   * Starts with all dirty nodes and the owners of open intents. The next turns read their records.
   *
   * @param isContinued an earlier process died, and programs have not noticed: a save may be half done, so that the nodes settle first
   */
  load(isContinued: boolean): void {
    const { intents, store } = this.#deps;
    for (const [ino] of store.all('dirty')) {
      this.#stale.add(ino);
      if (isContinued) this.#due.settles(ino);
      else this.#todo.add(ino);
    }
    for (const { owner } of intents.open()) {
      this.#stale.add(owner);
      this.#todo.add(owner);
    }
  }

  /** A user changed the node: its settle delay starts again. Cheap, because operations call it. */
  changed(ino: Inode): void {
    this.#stale.add(ino);
    const node = soundNode(this.#deps.store, ino);
    this.#due.changed(ino, node?.local === null ? (node.remote?.parent ?? null) : null);
  }

  /** Plans a node in the next turn, without its settle delay or back-off. */
  reconsider(ino: Inode): void {
    this.#due.skip(ino);
    this.#index.refresh(ino);
    this.#todo.add(ino);
    this.#deps.onWork();
  }

  /** All nodes that are dirty now. */
  *dirty(): Iterable<readonly [Inode, DirtyRecord]> {
    this.#refreshStale();
    for (const ino of this.#index.inos()) {
      const record = this.#deps.store.get('dirty', ino);
      if (record !== undefined) yield [ino, record];
    }
  }

  /** Plans some of the nodes that need it. The number is bounded, so that a turn stays short. @returns the pushes that start now */
  *turn(): Iterable<Push> {
    for (const ino of this.#due.takeDue()) this.#todo.add(ino);
    // Without a decision the index may wait, so that a long removal is not slowed by the records that it changes.
    if (this.#todo.size === 0 && this.#queue.size === 0 && this.#queue.running === 0) return;
    if (!this.#refreshStale(REFRESHED_PER_TURN)) {
      this.#deps.onWork();
      return;
    }
    const acyclic = new Set<Inode>();
    for (let decided = 0; decided < DECISIONS_PER_TURN; decided++) {
      const ino = this.#nextInLine() ?? firstOf(this.#todo);
      if (ino === undefined) return;
      this.#todo.delete(ino);
      let push: Push | null = null;
      try {
        push = this.#consider(ino, acyclic);
      } catch (error) {
        this.#undecided(ino, error);
      }
      if (push !== null) yield push;
    }
    // The rest waits for the next turn: a folder of thousands may have been deleted since it was queued.
    this.#deps.onWork();
  }

  /**
   * Ends a turn: asks for the next one, immediately or at the earliest moment that a node waits for.
   * @returns whether nothing changes until then
   */
  rest(): boolean {
    if (this.#asksForTurn()) return false;
    this.#due.armNext();
    // Uses the result of `turn`, not the clock: if the moment has passed meanwhile, no other timer would start a turn.
    if (this.#queue.size > 0 && this.#isHeld && !this.#deps.isPaused()) this.#due.arm(this.#deps.health.retryAtMs);
    if (this.#queue.running > 0 || this.#queue.size > 0) return false;
    if (!this.#sweepIsDue) return true;
    this.#sweepIsDue = false;
    this.#sweep();
    return !this.#asksForTurn();
  }

  /** The push was carried out, or turned out to be unnecessary (`Pusher`). */
  succeeded(push: Push, outcome: 'done' | 'split' | 'unchanged'): void {
    const { store, clock, intents, log } = this.#deps;
    const { action, before } = push;
    const { ino, type } = action;
    if (outcome === 'split') this.#split(ino);
    if (type === 'upload' && outcome === 'done') this.#pace.note(ino);
    this.#due.pushed(action, clock.elapsedMs() - push.startedMs);
    const node = store.get('node', ino);
    // Compares by value: a record that is read again is another object.
    const isSameNode = isDeepStrictEqual(node, before.node);
    const isSame = isSameNode && isDeepStrictEqual(intents.ownedBy(ino), before.intent);
    // Created, but deleted remotely before its bytes arrived. Repeated with a back-off, because it may happen again.
    const isLostAgain =
      (type === 'create-file' || type === 'create-folder') && node?.local != null && node.remote === null;
    if ((isSame && !this.#splits.has(ino)) || isLostAgain) {
      // The push had no effect, usually because another client was faster. Repeated with a back-off.
      log.debug({ ino, action: type }, 'push changed nothing');
      this.#due.failed(ino, null);
    } else if (type !== 'recover' || !isSameNode) {
      // A recovery that found no effect is no success: the count of failures goes on.
      this.#due.succeeded(ino);
    }
  }

  /** The node's push failed and is repeated after a pause. `afterMs`: the pause that the service requested. */
  failed(ino: Inode, afterMs: number | null): void {
    this.#due.failed(ino, afterMs);
  }

  /**
   * The service refused `asker` a name because of `ino`, whose name it takes for the same one. `asker` waits as if `ino` had exactly that
   * name.
   */
  inTheWay(ino: Inode, asker: Inode, place: Place): void {
    this.#refused.refused(asker, place, ino);
  }

  /** The file was deleted remotely, so its changes have no target, and it is kept while it is open. Its push is repeated with a back-off. */
  keptOpen(ino: Inode): void {
    this.#keptOpen.add(ino);
  }

  /** The push has ended, with any outcome. Its place in the queue is free. @param owner the node that the push was for at its end */
  ended(push: Push, owner: Inode): void {
    this.#queue.ended(push.weight);
    this.settled(push, owner);
  }

  /** The push has ended with a known outcome. Plans its node again, and all nodes that waited for it. */
  settled({ action, asker, before }: Push, owner: Inode): void {
    const { ino } = action;
    this.#sweepIsDue = true;
    this.#index.refresh(ino);
    for (const one of [ino, asker, owner]) this.#todo.add(one);
    const parent = before.node?.remote?.parent;
    if (parent !== undefined) this.#wakeWaiters(parent);
    this.#wakeWaiters(ino);
  }

  /**
   * What blocks the push of a node until a person acts or a file is closed; null if nothing does.
   * @param found the blockers of other nodes, found in the same pass
   */
  blockerOf(ino: Inode, found: Map<Inode, Blocker | null>): Blocker | null {
    const seen = new Set<Inode>();
    let blocker: Blocker | null = null;
    for (let at = ino; !seen.has(at); ) {
      const known = found.get(at);
      if (known !== undefined) {
        blocker = known;
        break;
      }
      seen.add(at);
      const next = this.#next(at);
      if (typeof next === 'object') {
        blocker = next;
        break;
      }
      at = next;
    }
    for (const one of seen) found.set(one, blocker);
    return blocker;
  }

  /** When the node may be pushed, by `elapsedMs`. In the past if it has no settle delay. */
  dueMs(ino: Inode): number {
    return this.#view.settledMs(ino);
  }

  /** Consecutive failures of the node's push. */
  failuresOf(ino: Inode): number {
    return this.#due.failuresOf(ino);
  }

  /** Failed pushes that were put off, since the start. */
  get postponed(): number {
    return this.#due.postponed;
  }

  /** Cancels the timers: no further push starts by itself. */
  stop(): void {
    this.#due.stop();
  }

  /** The queued node that may start now; undefined for none. */
  #nextInLine(): Inode | undefined {
    const { clock, health, isPaused } = this.#deps;
    this.#isHeld = clock.elapsedMs() < health.retryAtMs;
    if (this.#isHeld || isPaused() || (health.isProbing && this.#queue.running > 0)) return undefined;
    return this.#queue.next(health.isProbing ? 'probe' : 'flow');
  }

  /** @returns the push that starts now, if that is the decision */
  #consider(ino: Inode, acyclic: Set<Inode>): Push | null {
    const before = this.#waits.end(ino);
    let decision = this.#decide(ino);
    if (decision.type === 'wait') decision = this.#wait(ino, decision.for, before, acyclic) ?? decision;
    if (decision.type === 'push') {
      this.#queue.add(ino, this.#weightOf(decision.action));
      return this.#nextInLine() === ino ? this.#started(ino, decision.action) : null;
    }
    this.#queue.delete(ino);
    switch (decision.type) {
      case 'transfer':
        this.#transfer(decision.ino, decision.from);
        break;
      case 'split':
        this.#split(decision.ino);
        break;
      case 'wait':
        break;
      case 'end':
        this.#waits.add(ino, decision.ino);
        this.#deps.onVoid(decision.ino);
        break;
      case 'settle':
        this.#due.delay(ino, decision.untilMs);
        break;
      case 'open':
      case 'nothing':
        if (decision.type === 'nothing' && !this.#index.has(ino)) this.#forget(ino);
        this.#wakeWaiters(ino);
        break;
      default:
        decision satisfies never;
    }
    return null;
  }

  #started(asker: Inode, action: Action): Push {
    const { store, clock, intents } = this.#deps;
    const { ino } = action;
    const before = { node: store.get('node', ino), intent: intents.ownedBy(ino) };
    const weight = this.#queue.start(asker);
    this.#keptOpen.delete(ino);
    this.#refused.forget(ino);
    return { action, asker, weight, startedMs: clock.elapsedMs(), before };
  }

  /** @param before the node that `ino` waited for until now. @returns the step that opens the cycle of waiting nodes that this wait closes */
  #wait(ino: Inode, blocker: Inode, before: Inode | undefined, acyclic: Set<Inode>): Decision | null {
    this.#waits.add(ino, blocker);
    for (const request of this.#deps.requests) if (request.waitsFor(ino, blocker)) this.reconsider(blocker);
    const ring = this.#waits.ringOf(ino, acyclic);
    const way = wayOut(ring, this.#view);
    // The cycle is open now: no other node of it looks for a way out.
    if (way !== null) this.#waits.end(ino);
    else if (blocker !== before) {
      this.#wakeWaiters(ino);
      // No way out: the record of one of them may have changed.
      for (const other of ring) if (other !== ino) this.#todo.add(other);
    }
    return way;
  }

  #forget(ino: Inode): void {
    this.#due.forget(ino);
    this.#splits.delete(ino);
    this.#keptOpen.delete(ino);
    this.#refused.forget(ino);
  }

  /** The node that this one waits for, or what blocks this one. */
  #next(ino: Inode): Inode | Blocker | null {
    if (this.#deps.store.get('dirty', ino)?.parked) return { ino, why: 'parked' };
    if (this.#keptOpen.has(ino) && this.#deps.isOpen(ino)) return { ino, why: 'open' };
    const decision = this.#decideAgain(ino);
    if (decision?.type === 'open') return { ino, why: 'open' };
    if (decision?.type === 'settle') {
      const other = ifSound(() => leavingHolder(ino, this.#view)) ?? null;
      // A deleted file that is open gives its name on the service up when this node is tried again.
      return other !== null && this.#isOpenAndDeleted(other) ? null : other;
    }
    return decision?.type === 'wait' ? decision.for : null;
  }

  #isOpenAndDeleted(ino: Inode): boolean {
    const { store, isOpen } = this.#deps;
    return soundNode(store, ino)?.local === null && isOpen(ino);
  }

  /** null if planning failed: the next turn plans the node again and reports the cause. */
  #decideAgain(ino: Inode): Decision | null {
    try {
      return this.#decide(ino);
    } catch {
      return null;
    }
  }

  /** Planning failed: a damaged row, a full disk, or our bug. Only this node is affected. */
  #undecided(ino: Inode, error: unknown): void {
    this.#queue.delete(ino);
    this.#deps.onUndecided(ino, error);
    this.#wakeWaiters(ino);
  }

  #decide(ino: Inode): Decision {
    let decision: Decision = { type: 'nothing' };
    for (let attempt = 0; attempt < 3; attempt++) {
      this.#index.refresh(ino);
      decision = decide(ino, this.#view);
      if (decision.type !== 'wait' || decision.because === 'push') break;
      // That node's record may have changed without a notice (a merge; a resource that was taken over). If so, plan again.
      if (!this.#index.refresh(decision.for).changed) break;
    }
    return decision;
  }

  /** The bytes of `to` become the next version of the file that `from` was. This is the only step that needs no request. */
  #transfer(to: Inode, from: Inode): void {
    const { store, clock } = this.#deps;
    const nowMs = clock.nowMs();
    store.transact((tx) => {
      const old = tx.get('node', from);
      const node = tx.get('node', to);
      if (old === undefined || node === undefined) return;
      writeNode(tx, old, { ...old, remote: node.remote }, nowMs);
      writeNode(tx, node, { ...node, remote: old.remote }, nowMs);
    });
    for (const ino of [from, to]) {
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

  /** No push is running. Plans nodes again that changed without a notice: a merge may have made nodes clean for which others wait. */
  #sweep(): void {
    for (const [ino, { parked }] of this.#deps.store.all('dirty')) {
      if (parked !== null || this.#due.isWaiting(ino)) continue;
      this.#index.refresh(ino);
      this.#todo.add(ino);
    }
  }

  #wakeWaiters(ino: Inode): void {
    for (const waiter of this.#waits.waitersOf(ino)) if (waiter !== ino) this.#todo.add(waiter);
    this.#asksForTurn();
  }

  /** @returns whether there are nodes to plan */
  #asksForTurn(): boolean {
    if (this.#todo.size === 0) return false;
    this.#deps.onWork();
    return true;
  }

  #weightOf(action: Action): 'small' | 'large' {
    if (action.type !== 'upload' && action.type !== 'create-file' && action.type !== 'recover') return 'small';
    const { store, options, intents } = this.#deps;
    const content = intents.ownedBy(action.ino)?.content ?? store.get('node', action.ino)?.local?.content ?? null;
    const sizeBytes = content === null ? 0 : (store.get('content', content)?.sizeBytes ?? 0);
    return sizeBytes > options.plainPutMaxBytes ? 'large' : 'small';
  }

  /** @returns whether the index has all records; false if there are more than `max` */
  #refreshStale(max = Number.POSITIVE_INFINITY): boolean {
    let refreshed = 0;
    for (const ino of this.#stale) {
      if (refreshed++ === max) return false;
      this.#stale.delete(ino);
      this.#index.refresh(ino);
    }
    return true;
  }
}

function firstOf<T>([first]: Iterable<T>): T | undefined {
  return first;
}

/** Bounds a turn to one or two milliseconds. */
const DECISIONS_PER_TURN = 200;
const REFRESHED_PER_TURN = 100;
