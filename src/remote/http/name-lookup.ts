import { type LookupAddress, type LookupOptions, lookup } from 'node:dns';
import type { LookupFunction } from 'node:net';

type Asked = Parameters<LookupFunction>[2];

/**
 * Name lookups by getaddrinfo(3), as in other programs: the hosts file, the resolver and the sources in
 * nsswitch.conf(5) apply.
 *
 * A lookup blocks a thread of libuv's pool, for up to half a minute if a resolver is silent, and cannot be cancelled.
 * libuv limits lookups to half of the pool, so file I/O continues. But sixteen connections that each retry every ten
 * seconds would queue lookups faster than they end. So there is one lookup per name at a time, and concurrent callers
 * share its result.
 */
export class NameLookup {
  readonly #ask: LookupFunction;
  /** Callbacks that wait for a lookup, by name and options. */
  readonly #underWay = new Map<string, Asked[]>();
  /** The address of the last successful connection, by name. */
  readonly #connected = new Map<string, string>();

  /** @param ask the lookup function; getaddrinfo(3) by default */
  constructor(ask: LookupFunction = lookup) {
    this.#ask = ask;
  }

  /** In the form that net.connect expects. */
  readonly lookup: LookupFunction = (name: string, options: LookupOptions, answer: Asked): void => {
    const { family = 0, hints = 0, all = false, order, verbatim } = options;
    const question = JSON.stringify([name, family, hints, all, order, verbatim]);
    const waiting = this.#underWay.get(question);
    if (waiting !== undefined) {
      waiting.push(answer);
      return;
    }
    const askers = [answer];
    this.#underWay.set(question, askers);
    this.#ask(name, options, (error: NodeJS.ErrnoException | null, address: string | LookupAddress[], of?: number) => {
      this.#underWay.delete(question);
      const sorted = Array.isArray(address) ? this.#lastFirst(name, address) : address;
      for (const each of askers) each(error, sorted, of);
    });
  };

  /**
   * Makes the next connection to `name` try `address` first. Each silent address before it costs `attemptMs`; that is
   * paid once, not by every connection.
   */
  connected(name: string, address: string | undefined): void {
    if (address !== undefined) this.#connected.set(name, address);
  }

  #lastFirst(name: string, addresses: LookupAddress[]): LookupAddress[] {
    const last = this.#connected.get(name);
    const isLast = ({ address }: LookupAddress): boolean => address === last;
    return [...addresses.filter(isLast), ...addresses.filter((each) => !isLast(each))];
  }
}

/**
 * Time limit for each of several addresses, except the last one, which has all of `connectMs`. Node's 250 ms, from RFC
 * 8305, abandons the first attempt instead of continuing it in parallel. A service 300 ms away with an unreachable IPv6
 * address could never be reached (nodejs/node #54359). This limit leaves time for one retransmitted SYN (after one
 * second, RFC 6298) and its reply.
 */
export function attemptMs(connectMs: number): number {
  return Math.ceil(connectMs / 6);
}
