import { isDeepStrictEqual } from 'node:util';
import type { Inode } from '../base/vocabulary.ts';
import { ifSound, soundNode, writeNode } from '../store/node-table.ts';
import type { DirtyRecord } from '../store/tables.ts';
import type { AgendaDeps } from './agenda-deps.ts';
import type { DirtyIndex } from './dirty-index.ts';
import { DueTimes } from './due-times.ts';
import { type Action, type Decision, decide, leavingHolder, type PlanView } from './plan.ts';
import { planViewOf } from './plan-view.ts';
import type { Blocker, Push } from './push.ts';
import { PushQueue } from './push-queue.ts';
import { type Place, RefusedNames } from './refused-names.ts';
import { VersionPace } from './version-pace.ts';
import { Waits } from './waits.ts';

/**
 * Which dirty nodes are to be decided about and when, and what may be pushed now. It asks the plan and remembers what came of
 * it: a place in the queue, the moment until which a node settles or its failures put it off, whose push it waits for. In
 * memory only: after a start all that is dirty is decided about again.
 *
 * It pushes nothing. Whoever does takes from `ready` and tells of the end: `succeeded` or `failed`, then `ended`.
 */
export class Agenda {
  readonly #deps: AgendaDeps;
  readonly #index: DirtyIndex;
  readonly #view: PlanView;
  readonly #due: DueTimes;
  readonly #pace: VersionPace;
  readonly #queue: PushQueue;
  readonly #waits = new Waits();
  /** What is known for this turn (`decide`). */
  readonly #ending = new Set<Inode>();
  /** Folders that cannot go to the trash in one piece. */
  readonly #splits = new Set<Inode>();
  /** Records that changed since the index looked at them. */
  readonly #stale = new Set<Inode>();
  /** For whom it waits while it is put off, where the service refused it a name that another is to leave. */
  readonly #refused: RefusedNames;
  /** Gone on the service, and open when that was found out last. */
  readonly #keptOpen = new Set<Inode>();
  /** To be decided about in the next turn. */
  readonly #todo = new Set<Inode>();
  #sweepIsDue = false;
  /** Whether `retryAtMs` was in the future when a push was to begin last. */
  #isHeld = false;

  constructor(deps: AgendaDeps) {
    this.#deps = deps;
    const { clock, options } = deps;
    this.#index = deps.index;
    this.#refused = new RefusedNames(deps.store);
    this.#due = new DueTimes({ clock, settleMs: options.settleMs, onDue: deps.onWork });
    this.#pace = new VersionPace(clock);
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

  /** Starts with all dirty nodes and the owners of open intents. */
  load(): void {
    for (const { owner } of this.#deps.intents.open()) {
      this.#index.refresh(owner);
      this.#todo.add(owner);
    }
    for (const [ino] of this.#deps.store.all('dirty')) {
      this.#index.refresh(ino);
      this.#todo.add(ino);
    }
  }

  /** A user changed the node: it settles. Cheap: to be called in the path of an operation. */
  changed(ino: Inode): void {
    this.#stale.add(ino);
    this.#due.changed(ino);
  }

  /** Decides about a node in the next turn, whatever it waits for in time. */
  reconsider(ino: Inode): void {
    this.#due.skip(ino);
    this.#index.refresh(ino);
    this.#todo.add(ino);
    this.#deps.onWork();
  }

  /** All that is dirty at this moment. */
  *dirty(): Iterable<readonly [Inode, DirtyRecord]> {
    this.#refreshStale();
    for (const ino of this.#index.inos()) {
      const record = this.#deps.store.get('dirty', ino);
      if (record !== undefined) yield [ino, record];
    }
  }

  /** Decides about some of what is to be decided about. Never long. */
  decideSome(): void {
    this.#ending.clear();
    this.#refreshStale();
    for (const ino of this.#due.takeDue()) this.#todo.add(ino);
    let decided = 0;
    for (const ino of this.#todo) {
      this.#todo.delete(ino);
      try {
        this.#consider(ino);
      } catch (error) {
        this.#undecided(ino, error);
      }
      if (++decided === DECISIONS_PER_TURN) break;
    }
  }

  /** What may be pushed now; it counts as begun when it is handed out. */
  *ready(): Iterable<Push> {
    const { store, clock, health, pushing, intents, onWork, isPaused } = this.#deps;
    if (isPaused()) return;
    const nowMs = clock.elapsedMs();
    this.#isHeld = nowMs < health.retryAtMs;
    if (this.#isHeld) return;
    this.#ending.clear();
    // What is left of the queue is for the next turn: a folder of thousands may have been deleted since it was put there.
    for (let decided = 0; decided < DECISIONS_PER_TURN; decided++) {
      if (health.isProbing && this.#queue.running > 0) return;
      const next = this.#queue.take(health.isProbing ? 'probe' : 'flow');
      if (next === null) return;
      // Since it was put there things may have changed.
      const decision = this.#decideAgain(next.ino);
      if (decision?.type !== 'push' || pushing.has(decision.action.ino)) {
        this.#queue.ended(next.weight);
        this.#todo.add(next.ino);
        onWork();
        continue;
      }
      const { action } = decision;
      const { ino } = action;
      let before: Push['before'];
      try {
        before = { node: store.get('node', ino), intent: intents.ownedBy(ino) };
      } catch (error) {
        this.#queue.ended(next.weight);
        this.#undecided(next.ino, error);
        continue;
      }
      this.#queue.delete(ino);
      this.#keptOpen.delete(ino);
      this.#refused.forget(ino);
      yield { action, asker: next.ino, weight: next.weight, startedMs: nowMs, before };
      this.#ending.clear();
    }
  }

  /**
   * After a turn: asks for the next one, now or at the moment that something waits for.
   * @returns whether nothing moves any more until then
   */
  rest(): boolean {
    if (this.#asksForTurn()) return false;
    this.#due.armNext();
    // By what `ready` saw: the moment may have come since, and nobody else would ask for a turn.
    if (this.#queue.size > 0 && this.#isHeld && !this.#deps.isPaused()) this.#due.arm(this.#deps.health.retryAtMs);
    if (this.#queue.running > 0 || this.#queue.size > 0) return false;
    if (!this.#sweepIsDue) return true;
    this.#sweepIsDue = false;
    this.#sweep();
    return !this.#asksForTurn();
  }

  /** The push was carried out, or was found to be none (`Pusher`). */
  succeeded(push: Push, outcome: 'done' | 'split' | 'unchanged'): void {
    const { store, clock, intents, log } = this.#deps;
    const { action, before } = push;
    const { ino, type } = action;
    if (outcome === 'split') this.#split(ino);
    if (type === 'upload' && outcome === 'done') this.#pace.note(ino);
    this.#due.pushed(action, clock.elapsedMs() - push.startedMs);
    const node = store.get('node', ino);
    // By what they say: a record that is read anew is another object.
    const isSameNode = isDeepStrictEqual(node, before.node);
    const isSame = isSameNode && isDeepStrictEqual(intents.ownedBy(ino), before.intent);
    // Made, and not there when its bytes came: once more, but not at once for as long as that is so.
    const isLostAgain =
      (type === 'create-file' || type === 'create-folder') && node?.local != null && node.remote === null;
    if ((isSame && !this.#splits.has(ino)) || isLostAgain) {
      // Nothing came of it (somebody else was faster, mostly): not again at once.
      log.debug({ ino, action: type }, 'push changed nothing');
      this.#due.failed(ino, null);
    } else if (type !== 'find-out' || !isSameNode) {
      // To have found out that nothing happened is no success: what fails next fails once more.
      this.#due.succeeded(ino);
    }
  }

  /** The node's push failed and is tried again after a pause. `afterMs`: what the service asked for. */
  failed(ino: Inode, afterMs: number | null): void {
    this.#due.failed(ino, afterMs);
  }

  /** The service refused its name, or one that it takes for the same, to another: for that one it is as if it had the very name. */
  inTheWay(ino: Inode, asker: Inode, place: Place): void {
    this.#refused.refused(asker, place, ino);
  }

  /** What is to be pushed of the node has nowhere to go, and it stays for as long as it is open: tried again after pauses. */
  keptOpen(ino: Inode): void {
    this.#keptOpen.add(ino);
  }

  /** The push is over, whatever its outcome: its place is free. @param owner the node that it was for in the end */
  ended(push: Push, owner: Inode): void {
    this.#queue.ended(push.weight);
    this.settled(push, owner);
  }

  /** The push is over and its outcome known: decides again about its node, and about all nodes that waited for it. */
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
   * What keeps a node from being pushed for as long as nobody acts; null when it is on its way.
   * @param found what was found of others already, in the same look at everything
   */
  blockerOf(ino: Inode, found: Map<Inode, Blocker | null>): Blocker | null {
    if (found.size === 0) this.#ending.clear();
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

  /** When the node may be pushed, of `elapsedMs`; in the past for one that waits for no moment. */
  dueMs(ino: Inode): number {
    return this.#view.settledMs(ino);
  }

  /** How often in a row the node's push failed. */
  failuresOf(ino: Inode): number {
    return this.#due.failuresOf(ino);
  }

  /** How often a push was put off since the start. */
  get postponed(): number {
    return this.#due.postponed;
  }

  /** Asks for no turn any more because of a moment. */
  stop(): void {
    this.#due.stop();
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
        for (const request of this.#deps.requests)
          if (request.waitsFor(ino, decision.for)) this.reconsider(decision.for);
        if (decision.for === before) return;
        this.#wakeWaiters(ino);
        this.#closeRing(ino);
        return;
      case 'end':
        this.#waits.add(ino, decision.ino);
        this.#deps.onVoid(decision.ino);
        return;
      case 'settle':
        this.#due.delay(ino, decision.untilMs);
        return;
      case 'open':
      case 'nothing':
        if (decision.type === 'nothing' && !this.#index.has(ino)) {
          this.#due.forget(ino);
          this.#splits.delete(ino);
          this.#keptOpen.delete(ino);
          this.#refused.forget(ino);
        }
        this.#wakeWaiters(ino);
        return;
      default:
        decision satisfies never;
    }
  }

  /** A wait that closes a ring of those that wait for each other: one of them may have to give way, and all of them decided before. */
  #closeRing(ino: Inode): void {
    const ring = this.#waits.ringOf(ino);
    if (ring.length === 0) return;
    // Found before it was closed: that what they wait for comes to an end.
    this.#ending.clear();
    for (const other of ring) if (other !== ino) this.#todo.add(other);
  }

  /** For whom it waits; or what it is that keeps it. */
  #next(ino: Inode): Inode | Blocker | null {
    if (this.#deps.store.get('dirty', ino)?.parked) return { ino, why: 'parked' };
    if (this.#keptOpen.has(ino) && this.#deps.isOpen(ino)) return { ino, why: 'open' };
    const decision = this.#decideAgain(ino);
    if (decision?.type === 'open') return { ino, why: 'open' };
    if (decision?.type === 'settle') {
      const other = ifSound(() => leavingHolder(ino, this.#view)) ?? null;
      // Deleted and open, that one gives way when this one is tried again.
      return other !== null && this.#isOpenAndDeleted(other) ? null : other;
    }
    return decision?.type === 'wait' ? decision.for : null;
  }

  #isOpenAndDeleted(ino: Inode): boolean {
    const { store, isOpen } = this.#deps;
    return soundNode(store, ino)?.local === null && isOpen(ino);
  }

  /** null where that failed: it is decided about in the next turn, which tells why. */
  #decideAgain(ino: Inode): Decision | null {
    try {
      return this.#decide(ino);
    } catch {
      return null;
    }
  }

  /** A damaged row, a full disk, or our mistake: one node's trouble does not end the sync of the others. */
  #undecided(ino: Inode, error: unknown): void {
    this.#ending.clear();
    this.#deps.onUndecided(ino, error);
    this.#wakeWaiters(ino);
  }

  #decide(ino: Inode): Decision {
    let decision: Decision = { type: 'nothing' };
    for (let attempt = 0; attempt < 3; attempt++) {
      if (this.#index.refresh(ino).changed) this.#ending.clear();
      decision = decide(ino, this.#view, this.#ending);
      if (decision.type !== 'wait' || this.#deps.pushing.has(decision.for)) break;
      // Its record may have changed without a word to us (a merge; a resource that was taken over): then decide again.
      if (!this.#index.refresh(decision.for).changed) break;
      this.#ending.clear();
    }
    return decision;
  }

  /** The bytes of `heir` become the next version of the file that `from` was: the one step that needs no push. */
  #inherit(heir: Inode, from: Inode): void {
    this.#ending.clear();
    const { store, clock } = this.#deps;
    const nowMs = clock.nowMs();
    store.transact((tx) => {
      const old = tx.get('node', from);
      const node = tx.get('node', heir);
      if (old === undefined || node === undefined) return;
      writeNode(tx, old, { ...old, remote: node.remote }, nowMs);
      const content = node.local?.content ?? null;
      const remote = old.remote === null || content === null ? old.remote : { ...old.remote, takenOverBy: content };
      writeNode(tx, node, { ...node, remote }, nowMs);
    });
    for (const ino of [from, heir]) {
      this.#index.refresh(ino);
      this.#todo.add(ino);
      this.#wakeWaiters(ino);
    }
  }

  #split(folder: Inode): void {
    this.#ending.clear();
    this.#splits.add(folder);
    this.#todo.add(folder);
    for (const child of this.#index.remoteChildren(folder)) this.#todo.add(child);
    this.#wakeWaiters(folder);
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

  #wakeWaiters(ino: Inode): void {
    for (const waiter of this.#waits.waitersOf(ino)) if (waiter !== ino) this.#todo.add(waiter);
    this.#asksForTurn();
  }

  /** @returns whether there is something to decide about */
  #asksForTurn(): boolean {
    if (this.#todo.size === 0) return false;
    this.#deps.onWork();
    return true;
  }

  #weightOf(action: Action): 'small' | 'large' {
    if (action.type !== 'upload' && action.type !== 'create-file' && action.type !== 'find-out') return 'small';
    const { store, options, intents } = this.#deps;
    const content = intents.ownedBy(action.ino)?.content ?? store.get('node', action.ino)?.local?.content ?? null;
    const sizeBytes = content === null ? 0 : (store.get('content', content)?.sizeBytes ?? 0);
    return sizeBytes > options.plainPutMaxBytes ? 'large' : 'small';
  }

  #refreshStale(): void {
    for (const ino of this.#stale) this.#index.refresh(ino);
    this.#stale.clear();
  }
}

/** So that no turn takes longer than a millisecond or two. */
const DECISIONS_PER_TURN = 200;
