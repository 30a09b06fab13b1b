import { backoffMs } from '../base/backoff.ts';
import type { Clock } from '../base/clock.ts';
import type { Inode } from '../base/vocabulary.ts';
import { JointRemovals } from './joint-removals.ts';
import type { Action } from './plan.ts';

/**
 * When each node is planned: after its settle delay, after a back-off, or at a moment that the plan named. One timer is set to the earliest
 * of them. All moments are by `elapsedMs`.
 */
export class RetrySchedule {
  readonly #clock: Clock;
  readonly #settleMs: number;
  readonly #onDue: () => void;
  /** Nodes in their settle delay. The delay is the same for all, so that the order of insertion is the order of the moments. */
  readonly #settling = new Map<Inode, number>();
  readonly #removals: JointRemovals;
  readonly #delayed = new Map<Inode, number>();
  readonly #changedMs = new Map<Inode, number>();
  readonly #failures = new Map<Inode, number>();
  /** Duration of the last upload of a file, if it exceeds the settle delay; latest last. */
  readonly #uploadMs = new Map<Inode, number>();
  #postponed = 0;
  #timer: { readonly dueMs: number; readonly cancel: () => void } | null = null;

  constructor(deps: { clock: Clock; settleMs: number; onDue: () => void }) {
    this.#clock = deps.clock;
    this.#settleMs = deps.settleMs;
    this.#removals = new JointRemovals(deps.settleMs);
    this.#onDue = deps.onDue;
  }

  /** A user changed the node: its settle delay starts again. @param removedFrom the folder that had the node, if the change is its removal */
  changed(ino: Inode, removedFrom: Inode | null): void {
    const nowMs = this.#clock.elapsedMs();
    this.#changedMs.set(ino, nowMs);
    this.#settling.delete(ino);
    if (removedFrom !== null) this.#removals.add(ino, removedFrom, nowMs);
    else {
      this.#removals.delete(ino);
      this.#settling.set(ino, nowMs + this.#settleMs);
    }
    this.arm(nowMs + this.#settleMs);
  }

  /** The node begins its settle delay without a change. */
  settles(ino: Inode): void {
    const dueMs = this.#clock.elapsedMs() + this.#settleMs;
    this.#settling.set(ino, dueMs);
    this.arm(dueMs);
  }

  delay(ino: Inode, untilMs: number): void {
    this.#delayed.set(ino, untilMs);
    this.arm(untilMs);
  }

  /** A push failed, or had no effect. `afterMs`: the pause that the service requested. */
  failed(ino: Inode, afterMs: number | null): void {
    const failures = this.failuresOf(ino) + 1;
    this.#failures.set(ino, failures);
    this.#postponed++;
    const pauseMs = backoffMs(failures, this.#clock.random(), PUSH_BACKOFF, afterMs);
    this.delay(ino, this.#clock.elapsedMs() + pauseMs);
  }

  /** Failed pushes that were put off, since the start. */
  get postponed(): number {
    return this.#postponed;
  }

  /**
   * Records the duration of a push. A file settles for at least as long as its last upload took. Otherwise a file that is saved every few
   * seconds and takes half a minute to upload would be uploaded without a break.
   */
  pushed({ type, ino }: Action, tookMs: number): void {
    if (type !== 'upload' && type !== 'create-file') return;
    this.#uploadMs.delete(ino);
    if (tookMs <= this.#settleMs) return;
    this.#uploadMs.set(ino, Math.min(tookMs, SETTLE_MS_MAX));
    if (this.#uploadMs.size > UPLOADS_MAX) this.#uploadMs.delete(this.#uploadMs.keys().next().value as Inode);
  }

  succeeded(ino: Inode): void {
    this.#failures.delete(ino);
  }

  failuresOf(ino: Inode): number {
    return this.#failures.get(ino) ?? 0;
  }

  /** Ends the node's settle delay and back-off. */
  skip(ino: Inode): void {
    this.#settling.delete(ino);
    this.#removals.delete(ino);
    this.#delayed.delete(ino);
    this.#failures.delete(ino);
  }

  forget(ino: Inode): void {
    this.#changedMs.delete(ino);
    this.#delayed.delete(ino);
    this.#failures.delete(ino);
  }

  /** The end of the node's settle delay; 0 if it was not changed since the start. A removal sends no bytes: its last upload does not matter. */
  settledMs(ino: Inode, isRemoved: boolean): number {
    const jointMs = this.#removals.dueMs(ino);
    if (jointMs !== undefined) return jointMs;
    const changedMs = this.#changedMs.get(ino);
    const uploadMs = isRemoved ? 0 : (this.#uploadMs.get(ino) ?? 0);
    return changedMs === undefined ? 0 : changedMs + Math.max(this.#settleMs, uploadMs);
  }

  /** The end of the node's back-off; 0 if it has none. */
  triedMs(ino: Inode): number {
    return this.#failures.has(ino) ? (this.#delayed.get(ino) ?? 0) : 0;
  }

  isWaiting(ino: Inode): boolean {
    return this.#settling.has(ino) || this.#delayed.has(ino) || this.#removals.has(ino);
  }

  /** Removes and returns the nodes whose moment has come; of many removals, some. */
  takeDue(): Inode[] {
    const nowMs = this.#clock.elapsedMs();
    const due = [...this.#removals.takeDue(nowMs)];
    for (const [ino, dueMs] of this.#settling) {
      if (dueMs > nowMs) break;
      this.#settling.delete(ino);
      due.push(ino);
    }
    for (const [ino, dueMs] of this.#delayed) {
      if (dueMs > nowMs) continue;
      this.#delayed.delete(ino);
      due.push(ino);
    }
    return due;
  }

  /** Guarantees a call of `onDue` at `dueMs` or earlier. */
  arm(dueMs: number): void {
    if (this.#timer !== null && this.#timer.dueMs <= dueMs) return;
    this.#timer?.cancel();
    const cancel = this.#clock.after(Math.max(0, dueMs - this.#clock.elapsedMs()), () => {
      this.#timer = null;
      this.#onDue();
    });
    this.#timer = { dueMs, cancel };
  }

  armNext(): void {
    let nextMs = this.#removals.nextMs;
    for (const dueMs of this.#settling.values()) {
      nextMs = Math.min(nextMs, dueMs);
      break;
    }
    for (const dueMs of this.#delayed.values()) nextMs = Math.min(nextMs, dueMs);
    if (nextMs !== Number.POSITIVE_INFINITY) this.arm(nextMs);
  }

  stop(): void {
    this.#timer?.cancel();
    // An earliest possible moment that never fires: `arm` keeps an earlier timer, so that no timer is set any more.
    this.#timer = { dueMs: Number.NEGATIVE_INFINITY, cancel: () => {} };
  }
}

/** Upper bound of a settle delay that a long upload extends. A longer `--settle` is not shortened. */
const SETTLE_MS_MAX = 60_000;
/** Number of files whose upload duration is kept. */
const UPLOADS_MAX = 1_000;
const PUSH_BACKOFF = { firstMs: 1_500, maxMs: 300_000 };
