import type { Clock } from '../base/clock.ts';
import { backoffMs } from './backoff.ts';
import type { SyncEvent } from './sync-event.ts';

/**
 * Whether the service can be reached, as the pushes find it. While it cannot, one push at a time tries; the first that gets
 * an answer lets all others go on.
 */
export class ServiceLine {
  readonly #clock: Clock;
  readonly #onEvent: (event: SyncEvent) => void;
  #offlineSinceMs: number | null = null;
  #signInNeeded = false;
  #failures = 0;
  #closedUntilMs = 0;

  constructor(deps: { clock: Clock; onEvent: (event: SyncEvent) => void }) {
    this.#clock = deps.clock;
    this.#onEvent = deps.onEvent;
  }

  /** Wall, ms; null while the service answers. */
  get offlineSinceMs(): number | null {
    return this.#offlineSinceMs;
  }

  get signInNeeded(): boolean {
    return this.#signInNeeded;
  }

  /** Whether only one push may try. */
  get isProbing(): boolean {
    return this.#failures > 0;
  }

  /** Nothing is to be sent before that, by `elapsedMs`. */
  get closedUntilMs(): number {
    return this.#closedUntilMs;
  }

  answered(): void {
    this.#failures = 0;
    this.#closedUntilMs = 0;
    this.#signInNeeded = false;
    if (this.#offlineSinceMs === null) return;
    const offlineMs = Math.max(0, this.#clock.nowMs() - this.#offlineSinceMs);
    this.#offlineSinceMs = null;
    this.#onEvent({ type: 'online', offlineMs });
  }

  lost(reason: string): void {
    this.#close(OFFLINE_BACKOFF);
    if (this.#offlineSinceMs !== null) return;
    this.#offlineSinceMs = this.#clock.nowMs();
    this.#onEvent({ type: 'offline', reason });
  }

  refused(): void {
    this.#close(SIGN_IN_BACKOFF);
    if (this.#signInNeeded) return;
    this.#signInNeeded = true;
    this.#onEvent({ type: 'sign-in-needed' });
  }

  /** The service asked everybody for a pause. */
  pause(afterMs: number | null): void {
    this.#close(OFFLINE_BACKOFF, afterMs);
  }

  /** Somebody asks for a try now. */
  open(): void {
    this.#closedUntilMs = 0;
  }

  #close(limits: { firstMs: number; maxMs: number }, afterMs: number | null = null): void {
    const nowMs = this.#clock.elapsedMs();
    // Several pushes fail of one cause at the same moment: that is one failure.
    if (nowMs < this.#closedUntilMs) return;
    this.#failures++;
    this.#closedUntilMs = nowMs + backoffMs(this.#failures, this.#clock.random(), limits, afterMs);
  }
}

/** Not longer: what waits is to leave soon after the train has left the tunnel. */
const OFFLINE_BACKOFF = { firstMs: 1_000, maxMs: 30_000 };
const SIGN_IN_BACKOFF = { firstMs: 30_000, maxMs: 300_000 };
