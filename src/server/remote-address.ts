import type { IncomingMessage } from 'node:http';
import { BlockList, isIP } from 'node:net';
import { UsageError } from '../base/errors.ts';

/** The proxies whose X-Forwarded-For names the client. */
export class TrustedProxies {
  readonly #list = new BlockList();

  /** @param entries addresses, or networks such as `10.0.0.0/8` @throws UsageError for anything else */
  constructor(entries: readonly string[]) {
    for (const entry of entries) {
      const [, address = '', bits] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(entry) ?? [];
      const version = isIP(address);
      const bitsMax = version === 6 ? 128 : 32;
      if (version === 0 || Number(bits ?? 0) > bitsMax)
        throw new UsageError(`not an address or a network: "${entry}" (such as 127.0.0.1 or 10.0.0.0/8)`);
      this.#list.addSubnet(address, Number(bits ?? bitsMax), version === 6 ? 'ipv6' : 'ipv4');
    }
  }

  has(address: string): boolean {
    const plain = plainAddress(address);
    const version = isIP(plain);
    return version !== 0 && this.#list.check(plain, version === 6 ? 'ipv6' : 'ipv4');
  }

  /**
   * The network of the client: of the connection, or behind trusted proxies that of the last address in X-Forwarded-For
   * that is no trusted proxy. Addresses before that one come from the client and prove nothing.
   */
  clientNetwork(request: IncomingMessage): string {
    const peer = request.socket.remoteAddress ?? '';
    if (!this.has(peer)) return networkOf(peer);
    const header = request.headers['x-forwarded-for'];
    const named = (Array.isArray(header) ? header.join(',') : (header ?? '')).split(',').map(withoutPort).reverse();
    return networkOf(named.find((address) => address !== '' && !this.has(address)) ?? peer);
  }
}

/** An IPv4 address, or the first 64 bits of an IPv6 address: one customer of a provider has at least those. */
export function networkOf(address: string): string {
  const plain = plainAddress(address);
  if (isIP(plain) !== 6) return plain.slice(0, ADDRESS_CHARS_MAX);
  const [head = '', tail] = plain.split('%', 1)[0]?.split('::') ?? [];
  const front = head === '' ? [] : head.split(':');
  const back = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = tail === undefined ? 0 : 8 - front.length - back.length;
  const groups = [...front, ...Array.from({ length: Math.max(0, zeros) }, () => '0'), ...back];
  return `${groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')}::/64`;
}

/** IPv4 in IPv6 form is the same address. */
function plainAddress(address: string): string {
  return /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1] ?? address;
}

function withoutPort(entry: string): string {
  const text = entry.trim();
  return /^\[([^\]]*)\]/.exec(text)?.[1] ?? (/^[\d.]+:\d+$/.test(text) ? (text.split(':', 1)[0] as string) : text);
}

const ADDRESS_CHARS_MAX = 64;
