import { unlessAborted } from '../base/abort.ts';
import type { Clock } from '../base/clock.ts';
import { ApiError, isPassing, ProtocolError, SignInError, TransportError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { StrangeNetworkError } from '../remote/strange-network.ts';

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
/** The request with a known answer is sent at most so often, for what can wait. */
const PROBE_EVERY_MS = 10_000;

/**
 * Watches requests end: any answer, also a refusal, means that the service is there. Until the first request ended it is
 * taken to be there.
 *
 * A refusal need not be the service's: a proxy, a gateway or a hotel refuses everything. Before one is believed that only a person can undo,
 * `confirmed` demands an answer that only the service gives. Without it the network counts as down until some request succeeds, and
 * refusals count as no answer.
 */
export class Connectivity {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #probe: (signal: AbortSignal) => Promise<unknown>;
  readonly #listeners = new Set<(state: ConnectivityState) => void>();
  /** When the service was last heard of, by `elapsedMs`. */
  #heardMs = Number.NEGATIVE_INFINITY;
  #state: ConnectivityState = { online: true, lastAnswerMs: null, offlineSinceMs: null, failure: null };
  /** Why refusals count as no answer; null while they are the service's. */
  #foreign: TransportError | null = null;
  /** Those who wait until the service has answered a request that was sent after they asked. */
  #doubts: Doubt[] = [];
  /** What ends the wait for the next probe; null while none is due. */
  #cancelProbe: (() => void) | null = null;
  #isProbing = false;
  /** When the last probe was sent, by `elapsedMs`. */
  #probedMs = Number.NEGATIVE_INFINITY;

  /** `probe`: a cheap request that the service always answers with success. */
  constructor(options: { clock: Clock; log: Logger; probe: (signal: AbortSignal) => Promise<unknown> }) {
    this.#clock = options.clock;
    this.#log = options.log;
    this.#probe = options.probe;
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
   * @param request resolves with null for what the service does not have
   * @throws what the request throws · TransportError for a refusal while everything is refused
   */
  async watched<T>(request: () => Promise<T>, kind: 'document' | 'data' = 'document'): Promise<T> {
    const begunMs = this.#clock.elapsedMs();
    const cancel = kind === 'document' ? this.#listen() : () => {};
    try {
      const value = await request();
      // A 404, as a value.
      if (value === null) this.#mustBeOurs();
      else this.#confirm(begunMs);
      this.#answered();
      return value;
    } catch (error) {
      if (error instanceof TransportError) this.#unanswered(error);
      else if (isRefusal(error)) this.#mustBeOurs();
      if (error instanceof Error && ANSWERS.has(error.name)) this.#answered();
      throw error;
    } finally {
      cancel();
    }
  }

  /**
   * Resolves once the service has answered a request that was sent after this call: another's, or one with a known answer that is sent for this.
   *
   * @param urgency what can wait shares one such request in `PROBE_EVERY_MS`
   * @throws TransportError when that request is refused too, or gets no answer: who refused is not the service, or not known · SignInError ·
   * the signal's reason
   */
  confirmed(urgency: 'now' | 'can wait', signal: AbortSignal): Promise<void> {
    const sinceMs = this.#clock.elapsedMs();
    const doubt = new Promise<void>((resolve, reject) => {
      this.#doubts.push({ sinceMs, isUrgent: urgency === 'now', resolve, reject });
    });
    this.#probeWhenDue();
    return unlessAborted(doubt, signal);
  }

  /** @throws TransportError for a refusal while everything is refused */
  #mustBeOurs(): void {
    if (this.#foreign === null) return;
    // The network may be well again, and this the service's own word: found out for the next one.
    this.confirmed('can wait', NEVER).catch(() => {});
    throw this.#foreign;
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

  /** The service answered a request that was sent at `sentMs`. */
  #confirm(sentMs: number): void {
    this.#foreign = null;
    const doubts = this.#doubts;
    if (doubts.length === 0) return;
    this.#doubts = doubts.filter(({ sinceMs }) => sinceMs >= sentMs);
    for (const { sinceMs, resolve } of doubts) if (sinceMs < sentMs) resolve();
    if (this.#doubts.length > 0) return;
    this.#cancelProbe?.();
    this.#cancelProbe = null;
  }

  #probeWhenDue(): void {
    this.#cancelProbe?.();
    this.#cancelProbe = null;
    if (this.#isProbing || this.#doubts.length === 0) return;
    const isUrgent = this.#doubts.some((doubt) => doubt.isUrgent);
    const waitMs = isUrgent ? 0 : this.#probedMs + PROBE_EVERY_MS - this.#clock.elapsedMs();
    if (waitMs <= 0) void this.#probeNow();
    else this.#cancelProbe = this.#clock.after(waitMs, () => void this.#probeNow());
  }

  /** Never rejects. */
  async #probeNow(): Promise<void> {
    this.#cancelProbe = null;
    this.#isProbing = true;
    this.#probedMs = this.#clock.elapsedMs();
    // A success says nothing of those who begin to doubt while it is under way; a failure does.
    const doubts = this.#doubts.splice(0);
    try {
      await this.#probe(NEVER);
      for (const { resolve } of doubts) resolve();
      this.#confirm(this.#probedMs);
      this.#answered();
    } catch (error) {
      const failure = this.#notConfirmed(error);
      for (const { reject } of [...doubts, ...this.#doubts.splice(0)]) reject(failure);
    }
    this.#isProbing = false;
    this.#probeWhenDue();
  }

  #notConfirmed(error: unknown): Error {
    if (error instanceof SignInError) return error;
    if (error instanceof TransportError) {
      this.#unanswered(error);
      return error;
    }
    const why = error instanceof Error ? error.message : String(error);
    // Out of order for the moment: who refused before is not known.
    if (!isRefusal(error)) return new TransportError(`the service could not be asked: ${why}`, { cause: error });
    this.#foreign = new StrangeNetworkError(why, 'every request is refused here, and not by the service', {
      cause: error,
    });
    this.#unanswered(this.#foreign);
    return this.#foreign;
  }
}

interface Doubt {
  readonly sinceMs: number;
  readonly isUrgent: boolean;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/** An answer that is no, or none that the service gives. */
function isRefusal(error: unknown): boolean {
  return (error instanceof ApiError && !isPassing(error)) || error instanceof ProtocolError;
}

/** Failures that an answer of the service brought; an abort or a full disk says nothing about the service. */
const ANSWERS: ReadonlySet<string> = new Set(['ApiError', 'ProtocolError', 'SignInError']);
/** A probe is for all who wait: none of them ends it. It has the deadlines of a document. */
const NEVER = new AbortController().signal;
