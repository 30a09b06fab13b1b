import type { Clock } from '../base/clock.ts';
import { StorageError, UsageError } from '../base/errors.ts';
import { localTime } from '../base/local-time.ts';
import type { StoreWriter } from '../store/tables.ts';
import type { SyncEvent } from './sync-event.ts';

/** A pause that a person asked for. */
export interface Pause {
  readonly sinceMs: number;
  /** Wall clock, ms; null: until it is ended. */
  readonly untilMs: number | null;
}

/** In table `meta`, as JSON. */
const KEY = 'pause';
/** How often the end of the pause is checked: the wall clock may be set, and timers stop during suspend. */
const LOOK_EVERY_MS = 30_000;
/** Exit code for work that is left, queued and safe. */
const PENDING = 10;

/**
 * A person's pause of all pushes (`cfs pause`). It is stored: it survives a restart, and ends at its moment by the wall clock, even if
 * nothing was mounted at that moment.
 */
export class PushPause {
  readonly #store: StoreWriter;
  readonly #clock: Clock;
  readonly #onEvent: (event: SyncEvent) => void;
  readonly #onEnd: () => void;
  #current: Pause | null;
  #cancel: () => void = () => {};

  /** @param deps.onEnd called after each end of a pause */
  constructor(deps: { store: StoreWriter; clock: Clock; onEvent: (event: SyncEvent) => void; onEnd: () => void }) {
    this.#store = deps.store;
    this.#clock = deps.clock;
    this.#onEvent = deps.onEvent;
    this.#onEnd = deps.onEnd;
    this.#current = readPause(deps.store);
  }

  /** Reports a pause of an earlier run, or ends it if its moment has passed. */
  start(): void {
    if (this.#isOver) this.#endByTime();
    else if (this.#current !== null) this.#watch(this.#current);
  }

  /** null: pushes may be sent. */
  get current(): Pause | null {
    return this.#current;
  }

  /** Begins a pause, or gives the present pause another end. */
  begin(untilMs: number | null): void {
    this.#cancel();
    const pause = { sinceMs: this.#current?.sinceMs ?? this.#clock.nowMs(), untilMs };
    this.#store.transact((tx) => tx.put('meta', KEY, JSON.stringify(pause)));
    this.#current = pause;
    this.#watch(pause);
  }

  /** @returns whether there was a pause */
  end(): boolean {
    this.#cancel();
    if (this.#current === null) return false;
    this.#store.transact((tx) => tx.remove('meta', KEY));
    this.#ended();
    return true;
  }

  stop(): void {
    this.#cancel();
  }

  /** If the store has no room to delete the pause, the next start deletes it. */
  #endByTime(): void {
    try {
      this.end();
    } catch (error) {
      if (!(error instanceof StorageError)) throw error;
      this.#ended();
    }
  }

  #ended(): void {
    this.#current = null;
    this.#onEvent({ type: 'resumed' });
    this.#onEnd();
  }

  get #isOver(): boolean {
    const untilMs = this.#current?.untilMs ?? null;
    return untilMs !== null && untilMs <= this.#clock.nowMs();
  }

  #watch({ untilMs }: Pause): void {
    this.#onEvent({ type: 'paused', untilMs });
    if (untilMs !== null) this.#lookLater(untilMs);
  }

  #lookLater(untilMs: number): void {
    this.#cancel();
    const leftMs = Math.max(0, untilMs - this.#clock.nowMs());
    this.#cancel = this.#clock.after(Math.min(leftMs, LOOK_EVERY_MS), () => {
      if (this.#isOver) this.#endByTime();
      else this.#lookLater(untilMs);
    });
  }
}

/** The error of commands that would push during a pause. */
export function pausedError({ untilMs }: Pause): UsageError {
  const until = untilMs === null ? '' : ` until ${localTime(untilMs)}`;
  return new UsageError(
    `pushing is paused${until}: the rest stays queued and safe; cfs resume ends the pause`,
    PENDING,
  );
}

function readPause(store: Pick<StoreWriter, 'get'>): Pause | null {
  const stored = store.get('meta', KEY);
  return stored === undefined ? null : (JSON.parse(String(stored)) as Pause);
}
