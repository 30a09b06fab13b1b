import type { Dispatcher } from 'undici';
import type { Clock } from '../base/clock.ts';
import { ProtocolError, TransportError } from '../base/errors.ts';
import { Answer } from './answer.ts';
import type { AnswerHeaders } from './answer-head.ts';
import { certificateFault, systemCode } from './certificate-failure.ts';
import type { ReusedReads } from './reused-reads.ts';
import { StrangeNetworkError } from './strange-network.ts';
import type { TransportRequest } from './transport-request.ts';

/** undici's events of one exchange, as an Answer. */
export class Exchange implements Dispatcher.DispatchHandler {
  readonly #request: TransportRequest;
  readonly #reads: ReusedReads;
  readonly #resolve: (answer: Answer) => void;
  readonly #reject: (error: unknown) => void;
  readonly #aborted = () => this.#abort();
  #controller: Dispatcher.DispatchController | null = null;
  #answer: Answer | null = null;
  #sent = false;
  /** Why it was ended from here: by its signal, or its deadline. */
  #ended: Error | null = null;
  #cancelExpiry: () => void = () => {};
  #isOver = false;
  #giveBack: () => void = () => {};
  #resume: () => void = () => {};

  constructor(
    request: TransportRequest,
    reads: ReusedReads,
    resolve: (answer: Answer) => void,
    reject: (error: unknown) => void,
  ) {
    this.#request = request;
    this.#reads = reads;
    this.#resolve = resolve;
    this.#reject = reject;
    request.signal?.addEventListener('abort', this.#aborted, { once: true });
  }

  /**
   * A body's chunks, until the answer begins: who answers before he has all of it wants no more (an honest *incomplete*, a refusal), but
   * undici sends on until the answer has ended, and one without a length ends when the other side likes. It is not held back for ever:
   * a service may also begin its answer first.
   */
  async *whileWanted(chunks: AsyncIterable<Uint8Array>, clock: Clock): AsyncGenerator<Uint8Array, void, undefined> {
    let hasWaited = false;
    for await (const chunk of chunks) {
      if (this.#answer !== null && !hasWaited) {
        hasWaited = true;
        await this.#overWithin(ANSWER_ENDS_MS, clock);
      }
      // undici would wait for ever for room on a line that is gone.
      if (this.#isOver) throw new TransportError('the exchange is over');
      yield chunk;
    }
  }

  /** Whether it has ended, well or not. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** @param giveBack frees what the exchange waits with, if it is abandoned before its request is sent */
  waitsWith(giveBack: () => void): void {
    this.#giveBack = giveBack;
  }

  /** Ends the exchange, wherever it is, unless it has ended by then. */
  expireAfter(ms: number, clock: Clock): void {
    this.#cancelExpiry = clock.after(ms, () => {
      const { method, url } = this.#request;
      const message = `${method} ${url.slice(originOf(url).length)}: not done after ${ms} ms`;
      this.#end(new TransportError(message, { timedOut: true, neverSent: !this.#sent }));
    });
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#ended !== null) controller.abort(this.#ended);
    else this.#sent = true;
  }

  onResponseStart(controller: Dispatcher.DispatchController, status: number, headers: AnswerHeaders): void {
    if (status < 200) return;
    this.#answer = new Answer(status, headers, controller, this.#reads);
    this.#resolve(this.#answer);
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Uint8Array): void {
    this.#answer?.arrived(chunk);
  }

  onResponseEnd(): void {
    this.#settle();
    this.#answer?.finished(null);
  }

  onResponseError(_controller: Dispatcher.DispatchController | null, error: Error): void {
    this.#settle();
    const failure = this.#ended ?? failureOf(error, this.#request, this.#sent);
    if (this.#answer === null) this.#reject(failure);
    else this.#answer.finished(failure);
  }

  /** A request that waits for a connection has no controller yet. */
  #abort(): void {
    this.#end(this.#reason());
  }

  #end(reason: Error): void {
    this.#settle();
    this.#ended = reason;
    if (this.#answer === null) this.#reject(reason);
    else this.#answer.finished(reason);
    if (this.#controller !== null) this.#controller.abort(reason);
    else this.#giveBack();
  }

  /** Resolves when the exchange is over, or after `ms`. */
  #overWithin(ms: number, clock: Clock): Promise<void> {
    if (this.#isOver) return Promise.resolve();
    return new Promise((resolve) => {
      const cancel = clock.after(ms, resolve);
      this.#resume = () => {
        cancel();
        resolve();
      };
    });
  }

  #settle(): void {
    this.#isOver = true;
    this.#resume();
    this.#cancelExpiry();
    this.#request.signal?.removeEventListener('abort', this.#aborted);
  }

  #reason(): Error {
    const reason: unknown = this.#request.signal?.reason;
    return reason instanceof Error ? reason : new DOMException(String(reason), 'AbortError');
  }
}

/** An answer that began before its request had ended and takes longer waits for the rest of it; the reference server's takes 2 s. */
const ANSWER_ENDS_MS = 5000;

const TIMED_OUT: ReadonlySet<string> = new Set([
  'UND_ERR_CONNECT_TIMEOUT',
  'UND_ERR_HEADERS_TIMEOUT',
  'UND_ERR_BODY_TIMEOUT',
  'ETIMEDOUT',
]);

/** An error of undici, or of the body's source, as one of ours. */
function failureOf(error: Error, request: TransportRequest, sent: boolean): Error {
  const code = systemCode(error);
  const what = `${request.method} ${request.url.slice(originOf(request.url).length)}`;
  const isNoHttp = error.name === 'HTTPParserError';
  // The connection ended within a body that was to end before it: cut, like any other.
  if (isNoHttp && error.message.includes('Invalid EOF state'))
    return new TransportError(`${what}: cut`, { cause: error });
  // The service speaks HTTP: another protocol's bytes come from the network, mostly instead of a tunnel.
  if (isNoHttp)
    return new StrangeNetworkError(`${what}: the answer is not HTTP: ${error.message}`, 'it is not from the service', {
      neverSent: !sent,
      cause: error,
    });
  if (code === 'UND_ERR_HEADERS_OVERFLOW')
    return new ProtocolError(`${what}: the head of the answer is too long`, { cause: error });
  // Later than that it is a line that garbles what it carries.
  if (!sent && certificateFault(code) !== null) {
    const message = `${what}: no trusted connection: ${error.message}`;
    return new TransportError(message, { neverSent: true, cause: error });
  }
  // undici's errors and the system's have a code; what has none came from the body's source and is not about the line.
  if (code === '') return error;
  return new TransportError(`${what}: ${error.message === '' ? code : error.message}`, {
    timedOut: TIMED_OUT.has(code),
    neverSent: !sent,
    cause: error,
  });
}

export function originOf(url: string): string {
  return /^[a-z]+:\/\/[^/?#]*/i.exec(url)?.[0] ?? '';
}
