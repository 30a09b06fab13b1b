import { backoffMs } from '../base/backoff.ts';
import type { Clock } from '../base/clock.ts';
import type { Inode } from '../base/vocabulary.ts';
import type { Action } from './plan.ts';

/**
 * When each node is to be decided about: after its settle time, after a pause that grows with its failures, or at a moment
 * that the plan named. One timer, set to the next of them. All moments are of `elapsedMs`.
 */
export class DueTimes {
  readonly #clock: Clock;
  readonly #settleMs: number;
  readonly #onDue: () => void;
  /** Changed a moment ago; the settle time is the same for all, so the order of insertion is that of the moments. */
  readonly #settling = new Map<Inode, number>();
  readonly #delayed = new Map<Inode, number>();
  readonly #changedMs = new Map<Inode, number>();
  readonly #failures = new Map<Inode, number>();
  /** How long the last upload of a file took, where that is longer than the settle time; latest last. */
  readonly #uploadMs = new Map<Inode, number>();
  #postponed = 0;
  #timer: { readonly dueMs: number; readonly cancel: () => void } | null = null;

  constructor(deps: { clock: Clock; settleMs: number; onDue: () => void }) {
    this.#clock = deps.clock;
    this.#settleMs = deps.settleMs;
    this.#onDue = deps.onDue;
  }

  /** A user changed the node: its settle time begins anew. */
  changed(ino: Inode): void {
    const nowMs = this.#clock.elapsedMs();
    this.#changedMs.set(ino, nowMs);
    this.#settling.delete(ino);
    this.#settling.set(ino, nowMs + this.#settleMs);
    this.arm(nowMs + this.#settleMs);
  }

  delay(ino: Inode, untilMs: number): void {
    this.#delayed.set(ino, untilMs);
    this.arm(untilMs);
  }

  /** A push failed, or changed nothing. `afterMs`: what the service asked for. */
  failed(ino: Inode, afterMs: number | null): void {
    const failures = this.failuresOf(ino) + 1;
    this.#failures.set(ino, failures);
    this.#postponed++;
    const pauseMs = backoffMs(failures, this.#clock.random(), PUSH_BACKOFF, afterMs);
    this.delay(ino, this.#clock.elapsedMs() + pauseMs);
  }

  /** How often a push was put off since the start. */
  get postponed(): number {
    return this.#postponed;
  }

  /**
   * A push took so long. A file settles for as long as its last upload took: what is saved every few seconds and takes half a
   * minute to upload would be uploaded all the time.
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

  /** The node is not to wait any more. */
  skip(ino: Inode): void {
    this.#settling.delete(ino);
    this.#delayed.delete(ino);
    this.#failures.delete(ino);
  }

  forget(ino: Inode): void {
    this.#changedMs.delete(ino);
    this.#delayed.delete(ino);
    this.#failures.delete(ino);
  }

  /** The end of the node's settle time; 0 when it was not changed since the start. */
  settledMs(ino: Inode): number {
    const changedMs = this.#changedMs.get(ino);
    return changedMs === undefined ? 0 : changedMs + Math.max(this.#settleMs, this.#uploadMs.get(ino) ?? 0);
  }

  /** As `settledMs`, for a removal. */
  removedMs(ino: Inode): number {
    const changedMs = this.#changedMs.get(ino);
    return changedMs === undefined ? 0 : changedMs + this.#settleMs;
  }

  /** Until when it is not tried again because of its failures; 0 for none. */
  triedMs(ino: Inode): number {
    return this.#failures.has(ino) ? (this.#delayed.get(ino) ?? 0) : 0;
  }

  isWaiting(ino: Inode): boolean {
    return this.#settling.has(ino) || this.#delayed.has(ino);
  }

  /** Takes out those whose moment has come. */
  takeDue(): Inode[] {
    const nowMs = this.#clock.elapsedMs();
    const due: Inode[] = [];
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

  /** Makes sure that `onDue` is called by then. */
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
    let nextMs = Number.POSITIVE_INFINITY;
    for (const dueMs of this.#settling.values()) {
      nextMs = dueMs;
      break;
    }
    for (const dueMs of this.#delayed.values()) nextMs = Math.min(nextMs, dueMs);
    if (nextMs !== Number.POSITIVE_INFINITY) this.arm(nextMs);
  }

  stop(): void {
    this.#timer?.cancel();
    // Never again: `arm` leaves an earlier timer alone.
    this.#timer = { dueMs: Number.NEGATIVE_INFINITY, cancel: () => {} };
  }
}

/** What an upload took extends the settle time up to this; a longer `--settle` stays. */
const SETTLE_MS_MAX = 60_000;
/** Files of which it is remembered. */
const UPLOADS_MAX = 1_000;
const PUSH_BACKOFF = { firstMs: 1_500, maxMs: 300_000 };
