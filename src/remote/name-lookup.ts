import { type LookupAddress, type LookupOptions, lookup } from 'node:dns';
import type { LookupFunction } from 'node:net';

type Asked = Parameters<LookupFunction>[2];

/**
 * Addresses of names as everything else on this machine finds them: getaddrinfo(3), with the hosts file, the resolver and whatever
 * nsswitch.conf(5) names.
 *
 * getaddrinfo(3) waits in a thread of libuv's pool, for up to half a minute where a resolver is silent, and cannot be called back. libuv
 * gives lookups at most half of the pool, so file I/O goes on; but sixteen connections that each try again every ten seconds would line
 * up more lookups than end. So a name is asked for once at a time, and whoever asks meanwhile gets the same answer.
 */
export class NameLookup {
  readonly #ask: LookupFunction;
  /** Who waits for the answer, by name and options. */
  readonly #underWay = new Map<string, Asked[]>();
  /** The address that took the last connection, by name. */
  readonly #connected = new Map<string, string>();

  /** @param ask getaddrinfo(3) unless told */
  constructor(ask: LookupFunction = lookup) {
    this.#ask = ask;
  }

  /** As net.connect wants it. */
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
   * The next connection to `name` tries `address` first: each silent address in front of it costs `attemptMs`, and that is paid once,
   * not with every connection.
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
 * How long the connection to one of several addresses may take before it is given up for the next (not the last: that has all of `connectMs`).
 * Node allows 250 ms, as RFC 8305 does, which however goes on with the first one meanwhile: a service that is 300 ms away, and has an IPv6
 * address that this machine cannot reach, would never be reached (nodejs/node #54359). Long enough for a lost SYN to be sent again, after a
 * second (RFC 6298), and answered.
 */
export function attemptMs(connectMs: number): number {
  return Math.ceil(connectMs / 6);
}
