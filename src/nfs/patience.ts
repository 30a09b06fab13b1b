import type { Clock } from '../base/clock.ts';
import type { Answer } from '../kernel/binding.ts';
import type { RpcBody } from './rpc-server.ts';

/** Below the time after which a client reports that the server does not respond. */
const REPLY_MS_MAX = 8_000;
/** How long the outcome of a slow call waits for the client to ask again. Clients pause up to 30 s. */
const UNCLAIMED_MS_MAX = 120_000;
const SLOW_CALLS_MAX = 1_000;

/**
 * Replies in time. A call that takes longer than the client waits gets JUKEBOX ("try again later") and continues. The client's next attempt
 * joins it. So it ends with the outcome of the call itself: success, or the error at the deadline of the file system.
 */
export class Patience {
  readonly #clock: Clock;
  readonly #slow = new Map<string, Promise<RpcBody>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * @param keyOf identifies the call: procedure, caller and arguments
   * @param later makes the reply that asks the client to try again
   */
  within(keyOf: () => string, run: () => Answer<RpcBody>, later: () => RpcBody): Answer<RpcBody> {
    const joined = this.#slow.size === 0 ? undefined : this.#slow.get(keyOf());
    const reply = joined ?? run();
    return reply instanceof Promise ? this.#within(keyOf, reply, joined !== undefined, later) : reply;
  }

  async #within(
    keyOf: () => string,
    reply: Promise<RpcBody>,
    isJoined: boolean,
    later: () => RpcBody,
  ): Promise<RpcBody> {
    let cancel = (): void => {};
    const late = new Promise<null>((resolve) => {
      cancel = this.#clock.after(REPLY_MS_MAX, () => resolve(null));
    });
    const first = await Promise.race([reply, late]);
    cancel();
    if (first !== null) {
      if (isJoined) this.#slow.delete(keyOf());
      return first;
    }
    if (!isJoined) this.#remember(keyOf(), reply);
    return later();
  }

  #remember(key: string, reply: Promise<RpcBody>): void {
    if (this.#slow.size >= SLOW_CALLS_MAX) return;
    this.#slow.set(key, reply);
    const forget = (): void => {
      this.#clock.after(UNCLAIMED_MS_MAX, () => {
        if (this.#slow.get(key) === reply) this.#slow.delete(key);
      });
    };
    void reply.then(forget, forget);
  }
}
