import type { Clock } from '../base/clock.ts';
import { TransportError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';

/** Whether the service can be reached, as of the last request. */
export interface ConnectivityState {
  readonly online: boolean;
  /** When the service last answered anything, by the wall; null while it has not. */
  readonly lastAnswerMs: number | null;
  /** Since when no request got through, by the wall; null while online. */
  readonly offlineSinceMs: number | null;
  /** How the last request failed; null while online. */
  readonly failure: TransportError | null;
}

/** A service that answers nobody for so long is taken to be away, though nothing has failed yet: a server that hangs. */
const SILENCE_MS_MAX = 8_000;

/**
 * Watches requests end: any answer, also a refusal, means that the service is there. Until the first request ended it is
 * taken to be there. Nothing is sent to find out: whoever has something to ask finds out by asking.
 */
export class Connectivity {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #listeners = new Set<(state: ConnectivityState) => void>();
  /** When the service was last heard of, by `elapsedMs`. */
  #heardMs = Number.NEGATIVE_INFINITY;
  #state: ConnectivityState = { online: true, lastAnswerMs: null, offlineSinceMs: null, failure: null };

  constructor(options: { clock: Clock; log: Logger }) {
    this.#clock = options.clock;
    this.#log = options.log;
  }

  get state(): ConnectivityState {
    return this.#state;
  }

  /** Calls back at every change between online and offline; returns what ends it. */
  onChange(listener: (state: ConnectivityState) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Runs a request and takes note of how it ended.
   *
   * @param kind of a small document, one that takes long without any other being answered says that the service hangs; of data
   * it says nothing
   */
  async watched<T>(request: () => Promise<T>, kind: 'document' | 'data' = 'document'): Promise<T> {
    const cancel = kind === 'document' ? this.#listen() : () => {};
    try {
      const value = await request();
      this.#answered();
      return value;
    } catch (error) {
      if (error instanceof TransportError) this.#unanswered(error);
      else if (error instanceof Error && ANSWERS.has(error.name)) this.#answered();
      throw error;
    } finally {
      cancel();
    }
  }

  /** Bytes arrived: the service is there, whatever else takes its time. */
  heard(): void {
    this.#heardMs = this.#clock.elapsedMs();
  }

  /** @returns what ends it */
  #listen(): () => void {
    let cancel = () => {};
    const again = (sinceMs: number): void => {
      cancel = this.#clock.after(sinceMs + SILENCE_MS_MAX - this.#clock.elapsedMs(), () => {
        if (this.#heardMs > sinceMs) again(this.#heardMs);
        else this.#unanswered(new TransportError('no answer for long', { timedOut: true }));
      });
    };
    again(this.#clock.elapsedMs());
    return () => cancel();
  }

  #answered(): void {
    this.heard();
    const wasOffline = !this.#state.online;
    this.#state = { online: true, lastAnswerMs: this.#clock.nowMs(), offlineSinceMs: null, failure: null };
    if (!wasOffline) return;
    this.#log.info('the service answers again');
    this.#tell();
  }

  #unanswered(error: TransportError): void {
    if (!this.#state.online) {
      this.#state = { ...this.#state, failure: error };
      return;
    }
    this.#state = { ...this.#state, online: false, offlineSinceMs: this.#clock.nowMs(), failure: error };
    this.#log.warn({ err: error }, 'the service does not answer');
    this.#tell();
  }

  #tell(): void {
    for (const listener of this.#listeners) listener(this.#state);
  }
}

/** Failures that an answer of the service brought; an abort or a full disk says nothing about the service. */
const ANSWERS: ReadonlySet<string> = new Set(['ApiError', 'ProtocolError', 'SignInError']);
