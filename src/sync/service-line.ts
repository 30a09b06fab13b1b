import type { Clock } from '../base/clock.ts';
import type { Inode } from '../base/vocabulary.ts';
import { backoffMs, RETRY_AFTER_MAX_MS } from './backoff.ts';
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
  /** Until when the service asked to be left alone: no answer to somebody else ends that. */
  #pausedUntilMs = 0;
  #answers = 0;
  /** Whose last push the service answered with an error, with no other answer since. */
  readonly #erring = new Set<Inode>();

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
    return Math.max(this.#closedUntilMs, this.#pausedUntilMs);
  }

  /** How many pushes were answered since the start: whoever fails while others are answered has a trouble of its own. */
  get answers(): number {
    return this.#answers;
  }

  answered(): void {
    this.#erring.clear();
    this.#flows();
  }

  /**
   * The service answered a push with an error (500, 502, 504). Where several nodes get one, and none another answer between, the service is out of
   * order: that is a pause for all. With fewer it may be the node's own trouble.
   */
  erred(ino: Inode): void {
    this.#erring.add(ino);
    if (this.#erring.size < ERRING_MIN) this.#flows();
    else this.pause(null);
  }

  #flows(): void {
    this.#failures = 0;
    this.#closedUntilMs = 0;
    this.#answers += 1;
    this.#heard();
  }

  /** The service is reachable, and the sign-in is valid. */
  #heard(): void {
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

  /** The service asked everybody for a pause: one that grows for as long as it does, and is as long as it says. */
  pause(afterMs: number | null): void {
    this.#heard();
    this.#close(OFFLINE_BACKOFF);
    if (afterMs === null) return;
    const untilMs = this.#clock.elapsedMs() + Math.min(afterMs, RETRY_AFTER_MAX_MS);
    this.#pausedUntilMs = Math.max(this.#pausedUntilMs, untilMs);
  }

  /** The service answers others: a try now, unless it asked for a pause. */
  reachable(): void {
    this.#closedUntilMs = 0;
  }

  /** Somebody asks for a try now, whatever the service asked for. */
  open(): void {
    this.#closedUntilMs = 0;
    this.#pausedUntilMs = 0;
  }

  #close(limits: { firstMs: number; maxMs: number }): void {
    const nowMs = this.#clock.elapsedMs();
    // Several pushes fail of one cause at the same moment: that is one failure.
    if (nowMs < this.#closedUntilMs) return;
    this.#failures++;
    this.#closedUntilMs = nowMs + backoffMs(this.#failures, this.#clock.random(), limits);
  }
}

/** Not longer: what waits is to leave soon after the train has left the tunnel. */
const OFFLINE_BACKOFF = { firstMs: 1_000, maxMs: 30_000 };
/** Nodes in a row that get an error, from which on it is the service's trouble. */
const ERRING_MIN = 3;
const SIGN_IN_BACKOFF = { firstMs: 30_000, maxMs: 300_000 };
