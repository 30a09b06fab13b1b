import { type ErrorRecord, errorOfRecord, errorToRecord } from './errors.ts';

/**
 * Typed RPC between the two threads: calls with a result, cancellation, and one-way messages.
 *
 * Only small byte arrays cross it: a call names files and extents, and the other thread reads or writes the file.
 * `ArrayBuffer`s of returned `Uint8Array`s are copied; none is detached from its owner.
 */

/** The used part of a MessagePort (or Worker); the same on both sides. */
export interface Channel {
  postMessage(message: unknown): void;
  on(event: 'message', listener: (message: unknown) => void): unknown;
}

/**
 * Methods offered to the other side; arguments and results are plain data. The last argument may be an AbortSignal.
 * Before it there may be a callback that receives plain data during the call; all its calls arrive before the result.
 */
export type Service = object;

type Message =
  | {
      readonly type: 'call';
      readonly id: number;
      readonly service: string;
      readonly method: string;
      readonly args: readonly unknown[];
      readonly hears: boolean;
      readonly cancellable: boolean;
    }
  | { readonly type: 'event'; readonly id: number; readonly value: unknown }
  | { readonly type: 'cancel'; readonly id: number }
  | { readonly type: 'result'; readonly id: number; readonly value: unknown }
  | { readonly type: 'failure'; readonly id: number; readonly error: ErrorRecord };

interface Waiting {
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
  readonly hear: ((value: unknown) => void) | null;
}

/** One end of the port. Both ends may offer and use services. */
export class Port {
  readonly #channel: Channel;
  readonly #services = new Map<string, Service>();
  readonly #waiting = new Map<number, Waiting>();
  readonly #underWay = new Map<number, AbortController>();
  #nextId = 1;
  #closed: Error | null = null;

  constructor(channel: Channel) {
    this.#channel = channel;
    channel.on('message', (message) => this.#receive(message as Message));
  }

  /** Offers the methods of `service` to the other side under `name`. */
  offer(name: string, service: Service): void {
    this.#services.set(name, service);
  }

  /**
   * A proxy for the other side's service `name`: every method returns a promise; an AbortSignal as the last argument
   * cancels the call there.
   */
  remote<T extends object>(name: string): T {
    const methods = new Map<string, unknown>();
    return new Proxy({} as T, {
      get: (_target, method) => {
        if (typeof method !== 'string' || method === 'then') return undefined;
        let call = methods.get(method);
        if (call === undefined) {
          call = (...args: unknown[]) => this.#call(name, method, args);
          methods.set(method, call);
        }
        return call;
      },
    });
  }

  /** Fails all pending and future calls: the other thread has ended. */
  close(reason: Error): void {
    this.#closed = reason;
    for (const waiting of this.#waiting.values()) waiting.reject(reason);
    this.#waiting.clear();
    for (const controller of this.#underWay.values()) controller.abort(reason);
    this.#underWay.clear();
  }

  #call(service: string, method: string, args: unknown[]): Promise<unknown> {
    if (this.#closed !== null) return Promise.reject(this.#closed);
    const last = args.at(-1);
    const signal = last instanceof AbortSignal ? last : undefined;
    if (signal?.aborted) return Promise.reject(signal.reason);
    const id = this.#nextId++;
    const given = signal === undefined ? args : args.slice(0, -1);
    const listener = given.at(-1);
    const hear = typeof listener === 'function' ? (listener as (value: unknown) => void) : null;
    const plain = hear === null ? given : given.slice(0, -1);
    return new Promise((resolve, reject) => {
      const aborted = () => {
        if (!this.#waiting.delete(id)) return;
        this.#channel.postMessage({ type: 'cancel', id } satisfies Message);
        reject(signal?.reason);
      };
      const settle = (): void => signal?.removeEventListener('abort', aborted);
      this.#waiting.set(id, {
        resolve: (value) => {
          settle();
          resolve(value);
        },
        reject: (error) => {
          settle();
          reject(error);
        },
        hear,
      });
      signal?.addEventListener('abort', aborted, { once: true });
      try {
        this.#channel.postMessage({
          type: 'call',
          id,
          service,
          method,
          args: plain,
          hears: hear !== null,
          cancellable: signal !== undefined,
        } satisfies Message);
      } catch (error) {
        this.#waiting.get(id)?.reject(error);
        this.#waiting.delete(id);
      }
    });
  }

  #receive(message: Message): void {
    switch (message.type) {
      case 'call':
        void this.#serve(message);
        return;
      case 'cancel':
        this.#underWay.get(message.id)?.abort(new DOMException('cancelled by the caller', 'AbortError'));
        return;
      case 'event':
        this.#waiting.get(message.id)?.hear?.(message.value);
        return;
      case 'result':
        this.#waiting.get(message.id)?.resolve(message.value);
        this.#waiting.delete(message.id);
        return;
      case 'failure':
        this.#waiting.get(message.id)?.reject(errorOfRecord(message.error));
        this.#waiting.delete(message.id);
        return;
      default:
        message satisfies never;
    }
  }

  async #serve(call: Extract<Message, { type: 'call' }>): Promise<void> {
    const { id } = call;
    const controller = new AbortController();
    this.#underWay.set(id, controller);
    try {
      const service = this.#services.get(call.service) as Record<string, unknown> | undefined;
      const method = service?.[call.method];
      if (typeof method !== 'function')
        throw new TypeError(`no ${call.service}.${call.method} on this side of the port`);
      const report = (value: unknown) => this.#channel.postMessage({ type: 'event', id, value } satisfies Message);
      const args = [...call.args, ...(call.hears ? [report] : []), ...(call.cancellable ? [controller.signal] : [])];
      const value: unknown = await method.apply(service, args);
      this.#channel.postMessage({ type: 'result', id, value } satisfies Message);
    } catch (error) {
      this.#channel.postMessage({ type: 'failure', id, error: errorToRecord(error) } satisfies Message);
    } finally {
      this.#underWay.delete(id);
    }
  }
}
