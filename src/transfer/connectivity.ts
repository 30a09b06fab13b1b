import { unlessAborted } from '../base/abort.ts';
import type { Clock } from '../base/clock.ts';
import { ApiError, isPassing, ProtocolError, SignInError, TransportError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import { StrangeNetworkError } from '../remote/strange-network.ts';

/** Whether the service can be reached, as of the last request. */
export interface ConnectivityState {
  /** Null: not known, because no request has ended yet. */
  readonly online: boolean | null;
  /** When the service last answered any request (wall, ms); null before the first answer. */
  readonly lastAnswerMs: number | null;
  /** Start of the outage (wall, ms); null while there is none. */
  readonly offlineSinceMs: number | null;
  /** The failure of the last request; null while there is no outage. */
  readonly failure: TransportError | null;
}

/** A service that answers no request for this long counts as unreachable before any request has failed: the server hangs. */
const SILENCE_MS_MAX = 8_000;
/** Shortest interval of probes, except urgent ones. */
const PROBE_EVERY_MS = 10_000;

/**
 * Detects from the end of each request whether the service is reachable: any answer, also a refusal, means that it is. `ServiceHealth` of the
 * Worker learns each change through the port.
 *
 * A refusal may come from a proxy, a gateway or a captive portal that refuses every request. Before a refusal has an effect that only a person
 * can undo, `confirmed` requires the answer to a probe. Without it the network counts as down until a request succeeds, and refusals count as
 * no answer.
 */
export class Connectivity {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #probe: (signal: AbortSignal) => Promise<unknown>;
  readonly #listeners = new Set<(state: ConnectivityState) => void>();
  /** When the last byte or answer arrived, by `elapsedMs`. */
  #heardMs = Number.NEGATIVE_INFINITY;
  #state: ConnectivityState = { online: null, lastAnswerMs: null, offlineSinceMs: null, failure: null };
  /** Why refusals count as no answer; null while they come from the service. */
  #foreign: TransportError | null = null;
  /** Callers that wait for an answer to a request that was sent after their call. */
  #doubts: Doubt[] = [];
  /** Cancels the timer of the next probe; null while there is none. */
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

  /** Calls back at every change of `online`; returns a function that ends it. */
  onChange(listener: (state: ConnectivityState) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Runs a request and records how it ended.
   *
   * @param kind a `document` without an answer for `SILENCE_MS_MAX`, while no other request is answered, means that the service hangs; a slow
   * transfer of `data` means nothing
   * @param request resolves with null for what the service does not have
   * @throws the request's error · TransportError for a refusal while every request is refused
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
   * Resolves once the service has answered a request that was sent after this call: any request, or a probe.
   *
   * @param urgency callers that can wait share one probe in `PROBE_EVERY_MS`
   * @throws TransportError when the probe is refused too, or gets no answer: the origin of the refusal is not the service, or not known ·
   * SignInError · the signal's reason
   */
  confirmed(urgency: 'now' | 'can wait', signal: AbortSignal): Promise<void> {
    const sinceMs = this.#clock.elapsedMs();
    const doubt = new Promise<void>((resolve, reject) => {
      this.#doubts.push({ sinceMs, isUrgent: urgency === 'now', resolve, reject });
    });
    this.#probeWhenDue();
    return unlessAborted(doubt, signal);
  }

  /** @throws TransportError for a refusal while every request is refused */
  #mustBeOurs(): void {
    if (this.#foreign === null) return;
    // The network may have recovered, and this may be the service's refusal: the next request will know.
    this.confirmed('can wait', NEVER).catch(() => {});
    throw this.#foreign;
  }

  /** Bytes arrived: the service is reachable, even if other requests are slow. */
  heard(): void {
    this.#heardMs = this.#clock.elapsedMs();
  }

  /** Starts the silence limit of a document. @returns a function that ends it */
  #listen(): () => void {
    let cancel = () => {};
    const again = (sinceMs: number): void => {
      cancel = this.#clock.after(sinceMs + SILENCE_MS_MAX - this.#clock.elapsedMs(), () => {
        if (this.#heardMs > sinceMs) again(this.#heardMs);
        else this.#unanswered(new TransportError('no answer within the time limit', { timedOut: true }));
      });
    };
    again(this.#clock.elapsedMs());
    return () => cancel();
  }

  #answered(): void {
    this.heard();
    const { online } = this.#state;
    this.#state = { online: true, lastAnswerMs: this.#clock.nowMs(), offlineSinceMs: null, failure: null };
    if (online === true) return;
    if (online === false) this.#log.info('the service answers again');
    this.#tell();
  }

  #unanswered(error: TransportError): void {
    if (this.#state.online === false) {
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
    // A success is no answer for calls that arrive during the probe; a failure is one.
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
    // Temporarily out of order: the origin of the earlier refusal is not known.
    if (!isRefusal(error)) return new TransportError(`the service could not be asked: ${why}`, { cause: error });
    this.#foreign = new StrangeNetworkError(why, 'this network refuses every request; the service does not', {
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

/** A refusal, or an answer that the service does not give. */
function isRefusal(error: unknown): boolean {
  return (error instanceof ApiError && !isPassing(error)) || error instanceof ProtocolError;
}

/** Failures that contain an answer. An abort or a full disk proves nothing about the service. */
const ANSWERS: ReadonlySet<string> = new Set(['ApiError', 'ProtocolError', 'SignInError']);
/** A probe serves all callers: none of them aborts it. It has the deadlines of a document. */
const NEVER = new AbortController().signal;
