import type { Dispatcher } from 'undici';
import type { Clock } from '../../base/clock.ts';
import { ProtocolError, TransportError } from '../../base/errors.ts';
import { certificateFault, systemCode } from '../certificate-failure.ts';
import { StrangeNetworkError } from '../strange-network.ts';
import { Answer } from './answer.ts';
import type { AnswerHeaders } from './answer-head.ts';
import type { ReusedReads } from './reused-reads.ts';
import type { TransportRequest } from './transport-request.ts';

/** Turns undici's events of one exchange into an Answer. */
export class AnswerHandler implements Dispatcher.DispatchHandler {
  readonly #request: TransportRequest;
  readonly #reads: ReusedReads;
  readonly #resolve: (answer: Answer) => void;
  readonly #reject: (error: unknown) => void;
  readonly #aborted = () => this.#abort();
  #controller: Dispatcher.DispatchController | null = null;
  #answer: Answer | null = null;
  #sent = false;
  /** Set if this side ended the exchange: by its signal or its deadline. */
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
   * The chunks of a request body, until the response begins. A service that responds before it has the whole body needs
   * no more of it (an honest *incomplete*, a refusal). undici, however, sends until the response has ended, and a
   * response without a length ends when the peer decides. The body is held back for a limited time only: a service may
   * also begin its response early.
   */
  async *whileWanted(chunks: AsyncIterable<Uint8Array>, clock: Clock): AsyncGenerator<Uint8Array, void, undefined> {
    let hasWaited = false;
    for await (const chunk of chunks) {
      if (this.#answer !== null && !hasWaited) {
        hasWaited = true;
        await this.#overWithin(ANSWER_ENDS_MS, clock);
      }
      // undici would wait permanently for room on a closed connection.
      if (this.#isOver) throw new TransportError('the exchange is over');
      yield chunk;
    }
  }

  /** Whether it has ended, well or not. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /**
   * @param giveBack frees the connection slot or queue place if the exchange is abandoned before its request is sent
   */
  waitsWith(giveBack: () => void): void {
    this.#giveBack = giveBack;
  }

  /** Ends the exchange after `ms`, in whatever phase it is, unless it has ended before. */
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

/** Time for an early response to end before the rest of the request is sent; the reference server needs up to 2 s. */
const ANSWER_ENDS_MS = 5000;

const TIMED_OUT: ReadonlySet<string> = new Set([
  'UND_ERR_CONNECT_TIMEOUT',
  'UND_ERR_HEADERS_TIMEOUT',
  'UND_ERR_BODY_TIMEOUT',
  'ETIMEDOUT',
]);

/** Converts an error of undici, or of the body's source, to an error of this project. */
function failureOf(error: Error, request: TransportRequest, sent: boolean): Error {
  const code = systemCode(error);
  const what = `${request.method} ${request.url.slice(originOf(request.url).length)}`;
  const isNoHttp = error.name === 'HTTPParserError';
  // The connection ended inside a body that was to be closed by it: treated like any other cut.
  if (isNoHttp && error.message.includes('Invalid EOF state'))
    return new TransportError(`${what}: cut`, { cause: error });
  // The service speaks HTTP: bytes of another protocol come from the network, mostly in place of a tunnel.
  if (isNoHttp)
    return new StrangeNetworkError(`${what}: the answer is not HTTP: ${error.message}`, 'it is not from the service', {
      neverSent: !sent,
      cause: error,
    });
  if (code === 'UND_ERR_HEADERS_OVERFLOW')
    return new ProtocolError(`${what}: the head of the answer is too long`, { cause: error });
  // After the request was sent, the same code means a connection that corrupts data.
  if (!sent && certificateFault(code) !== null) {
    const message = `${what}: no trusted connection: ${error.message}`;
    return new TransportError(message, { neverSent: true, cause: error });
  }
  // Errors of undici and of the system have a code. An error without one came from the body's source, not from the
  // connection.
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
