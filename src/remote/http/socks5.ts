import { once } from 'node:events';
import type { Socket } from 'node:net';
import type { ServiceProxy } from '../../base/proxy.ts';
import { ProxyFailure } from '../proxy-failure.ts';

const VERSION = 5;
const NO_AUTHENTICATION = 0;
const PASSWORD = 2;
const CONNECT = 1;
const NAME = 3;
/** Address lengths in a reply, by address type; a name's length is in its first byte. */
const ADDRESS_BYTES: ReadonlyMap<number, number> = new Map([
  [1, 4],
  [4, 16],
]);
const REFUSALS = [
  'general failure',
  'forbidden by its rules',
  'network unreachable',
  'host unreachable',
  'connection refused',
  'time to live expired',
  'command not supported',
  'address type not supported',
];

/**
 * Asks the SOCKS 5 proxy at the other end of `socket` for a connection to `host` (RFC 1928, sign-in by RFC 1929). The proxy resolves the
 * name. The caller ends the wait by destroying the socket.
 *
 * @throws ProxyFailure where the proxy refuses, closes, or does not speak SOCKS 5
 */
export async function connectBySocks(socket: Socket, host: string, port: number, proxy: ServiceProxy): Promise<void> {
  const { credentials } = proxy;
  const fail = (what: string): never => {
    throw new ProxyFailure(proxy, what);
  };
  try {
    socket.write(Buffer.from([VERSION, 1, credentials === null ? NO_AUTHENTICATION : PASSWORD]));
    const [version, method] = await read(socket, 2);
    if (version !== VERSION) fail('does not speak SOCKS 5');
    if (method !== NO_AUTHENTICATION && method !== PASSWORD) fail('wants another kind of sign-in');
    if (method === PASSWORD) {
      if (credentials === null) throw new ProxyFailure(proxy, 'wants a user name and password', { status: 407 });
      socket.write(Buffer.concat([Buffer.from([1]), counted(credentials.username), counted(credentials.password)]));
      if ((await read(socket, 2))[1] !== 0)
        throw new ProxyFailure(proxy, 'refuses the user name and password', { status: 407 });
    }
    const target = Buffer.from([port >> 8, port & 0xff]);
    socket.write(Buffer.concat([Buffer.from([VERSION, CONNECT, 0, NAME]), counted(host), target]));
    const [, answer = 1, , type = 0] = await read(socket, 4);
    if (answer !== 0) fail(`refuses the connection to ${host}:${port}: ${REFUSALS[answer - 1] ?? answer}`);
    const length = ADDRESS_BYTES.get(type) ?? (await read(socket, 1))[0] ?? 0;
    await read(socket, length + 2);
  } catch (error) {
    if (error instanceof ProxyFailure) throw error;
    throw new ProxyFailure(proxy, `closed the connection: ${(error as Error).message}`, { cause: error });
  }
}

/** A byte sequence of at most 255 bytes, prefixed with its length. */
function counted(text: string): Buffer {
  const bytes = Buffer.from(text).subarray(0, 255);
  return Buffer.concat([Buffer.from([bytes.byteLength]), bytes]);
}

/** @throws Error if the connection ends earlier */
async function read(socket: Socket, length: number): Promise<Buffer> {
  for (;;) {
    const bytes = socket.read(length) as Buffer | null;
    if (bytes !== null) return bytes;
    if (socket.readableEnded || socket.destroyed) throw new Error('it ended during the negotiation');
    const done = new AbortController();
    const { signal } = done;
    try {
      await Promise.race([
        once(socket, 'readable', { signal }),
        once(socket, 'end', { signal }),
        once(socket, 'close', { signal }),
      ]);
    } finally {
      done.abort();
    }
  }
}
