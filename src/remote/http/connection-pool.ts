import type { Socket } from 'node:net';
import type undici from 'undici';
import type { Dispatcher } from 'undici';
import { commonJs } from '../../base/common-js.ts';
import type { AnswerHandler } from './answer-handler.ts';

// Only the client: loading all of undici adds a tenth of a second to every start.
const Client = commonJs('undici/lib/dispatcher/client.js') as typeof undici.Client;

interface PoolOptions {
  readonly origin: string;
  /** Maximum number of open connections. */
  readonly places: number;
  /** Opens a connection; the signal ends the attempt. */
  readonly open: (signal: AbortSignal) => Promise<Socket>;
  readonly client: Omit<undici.Client.Options, 'connect' | 'pipelining'>;
}

interface Waiting {
  readonly options: Dispatcher.DispatchOptions;
  readonly exchange: AnswerHandler;
}

/**
 * A bounded number of connections with one exchange at a time each; further exchanges are queued. An exchange that is
 * abandoned before its request was sent frees its connection slot immediately, queued or connecting. Otherwise a peer
 * that accepts connections and stays silent would hold every slot until its deadline, one after another.
 */
export class ConnectionPool {
  readonly #options: PoolOptions;
  /** No Set: it keeps what went through it alive until a full garbage collection (its outgrown tables are chained to the next one). */
  readonly #line: Waiting[] = [];
  readonly #places: Place[] = [];
  /** Most recently used at the end: its connection is most likely still open. */
  readonly #free: Place[] = [];
  #destroyed: Error | null = null;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  dispatch(options: Dispatcher.DispatchOptions, exchange: AnswerHandler): void {
    if (this.#destroyed !== null) {
      exchange.onResponseError(null, this.#destroyed);
      return;
    }
    const place = this.#free.pop() ?? this.#another();
    if (place !== null) {
      place.run({ options, exchange });
      return;
    }
    const waiting = { options, exchange };
    this.#line.push(waiting);
    exchange.waitsWith(() => {
      const at = this.#line.indexOf(waiting);
      if (at >= 0) this.#line.splice(at, 1);
    });
  }

  /** Ends all exchanges with `reason`, those under way too. */
  async destroy(reason: Error): Promise<void> {
    this.#destroyed = reason;
    for (const { exchange } of this.#line.splice(0)) exchange.onResponseError(null, reason);
    await Promise.all(this.#places.map((place) => place.destroy(reason)));
  }

  #another(): Place | null {
    if (this.#places.length >= this.#options.places) return null;
    const place: Place = new Place(this.#options, () => this.#freed(place));
    this.#places.push(place);
    return place;
  }

  #freed(place: Place): void {
    if (this.#destroyed !== null) return;
    const next = this.#line.shift();
    if (next === undefined) this.#free.push(place);
    else place.run(next);
  }
}

/** One connection, opened when it is needed. */
class Place {
  readonly #options: PoolOptions;
  readonly #freed: () => void;
  #client: undici.Client;
  /** The exchange that has the place. */
  #exchange: AnswerHandler | null = null;
  /** The attempt to connect that is under way. */
  #attempt: AbortController | null = null;
  readonly #giveUp = (): void => this.#attempt?.abort();

  constructor(options: PoolOptions, freed: () => void) {
    this.#options = options;
    this.#freed = freed;
    this.#client = this.#newClient();
  }

  run({ options, exchange }: Waiting): void {
    this.#exchange = exchange;
    exchange.waitsWith(this.#giveUp);
    this.#client.dispatch(options, exchange);
    // undici rejected the request without queueing it: no drain event follows.
    if (exchange.isOver) this.#free();
  }

  async destroy(reason: Error): Promise<void> {
    this.#attempt?.abort(reason);
    await this.#client.destroy(reason);
  }

  #newClient(): undici.Client {
    const { origin, client: options } = this.#options;
    const client = new Client(origin, {
      ...options,
      pipelining: 1,
      connect: (_to, connected) => this.#connect(connected),
    });
    // Emitted when the client accepts a request again.
    client.on('drain', () => this.#free());
    client.on('disconnect', () => {
      if (this.#exchange?.isOver !== true || client !== this.#client) return;
      // An aborted exchange: the old client would reconnect, only to find the request aborted.
      this.#client = this.#newClient();
      client.destroy().catch(() => {});
      this.#free();
    });
    return client;
  }

  #connect(connected: (...outcome: [null, Socket] | [Error, null]) => void): void {
    const attempt = new AbortController();
    this.#attempt = attempt;
    const settle = (): void => {
      if (this.#attempt === attempt) this.#attempt = null;
    };
    this.#options.open(attempt.signal).then(
      (socket) => {
        settle();
        connected(null, socket);
      },
      (error: Error) => {
        settle();
        connected(error, null);
      },
    );
  }

  #free(): void {
    if (this.#exchange === null) return;
    this.#exchange = null;
    this.#freed();
  }
}
