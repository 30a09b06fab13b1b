import { connect, isIP, type LookupFunction, type OnReadOpts, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { SecureContext, TLSSocket } from 'node:tls';
import { type ServiceProxy, unbracketed } from '../../base/proxy.ts';
import { certificateFault, systemCode } from '../certificate-failure.ts';
import { ProxyFailure } from '../proxy-failure.ts';
import type { TrustStore } from '../trust-store.ts';
import { attemptMs, type NameLookup } from './name-lookup.ts';
import { connectBySocks } from './socks5.ts';
import { openTunnel } from './tunnel.ts';

/** The size that undici uses for its own connections. */
const READ_BYTES = 64 * 1024;
const TLS_READ_BYTES = 16 * 1024;
const KEEP_ALIVE_PROBE_MS = 60_000;

interface Parts {
  /** The service. */
  readonly origin: string;
  readonly proxy: ServiceProxy | null;
  /** null: neither the service nor the proxy uses TLS. */
  readonly trust: TrustStore | null;
  readonly names: NameLookup;
  /** Deadline in milliseconds for name lookup, connection, tunnel and TLS together. */
  readonly connectMs: number;
  /** Read buffer of the socket; for unencrypted connections. */
  readonly onread?: OnReadOpts;
}

interface Place {
  readonly host: string;
  readonly port: number;
}

/** Connections to the service, directly or through a proxy, within one deadline. */
export class Connector {
  readonly #parts: Parts;
  readonly #service: Place & { readonly isTls: boolean };
  /** The last TLS session, to be resumed. */
  #session: Buffer | undefined;

  constructor(parts: Parts) {
    this.#parts = parts;
    const { protocol, hostname, port } = new URL(parts.origin);
    const isTls = protocol === 'https:';
    this.#service = { host: unbracketed(hostname), port: portOf(port, isTls), isTls };
  }

  /** @throws ProxyFailure · an error of the system or of TLS, with its code · the signal's reason */
  async open(signal: AbortSignal): Promise<Socket> {
    const attempt = new AbortController();
    const stop = (): void => attempt.abort(signal.reason);
    signal.addEventListener('abort', stop, { once: true });
    if (signal.aborted) stop();
    const timer = setTimeout(() => attempt.abort(this.#late()), this.#parts.connectMs);
    try {
      return await this.#connected(attempt.signal);
    } catch (error) {
      // The authority may have been renewed: the new bundle may be on disk by now.
      const failed = error instanceof ProxyFailure ? error.cause : error;
      if (certificateFault(systemCode(failed)) === null || this.#parts.trust?.refresh() !== true) throw error;
      this.#session = undefined;
      return await this.#connected(attempt.signal);
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', stop);
    }
  }

  async #connected(signal: AbortSignal): Promise<Socket> {
    const sockets: Socket[] = [];
    const destroy = (): void => {
      for (const socket of sockets.toReversed()) socket.destroy();
    };
    signal.addEventListener('abort', destroy, { once: true });
    try {
      signal.throwIfAborted();
      await this.#openInto(sockets);
      signal.throwIfAborted();
      return sockets.at(-1) as Socket;
    } catch (error) {
      destroy();
      signal.throwIfAborted(); // The abort caused the failure.
      throw error;
    } finally {
      signal.removeEventListener('abort', destroy);
    }
  }

  /** Each socket is pushed as soon as it exists; the last one is the connection. */
  async #openInto(sockets: Socket[]): Promise<void> {
    const { proxy, trust } = this.#parts;
    const service = this.#service;
    const secured = async (host: string, session?: Buffer): Promise<TLSSocket> => {
      const socket = encrypt(sockets.at(-1) as Socket, host, (trust as TrustStore).context, session);
      sockets.push(socket);
      await opened(socket, 'secureConnect');
      return socket;
    };
    if (proxy === null) await this.#tcp(service, sockets);
    else {
      const { protocol, hostname, port } = new URL(proxy.address);
      const there = { host: unbracketed(hostname), port: portOf(port, protocol === 'https:') };
      try {
        await this.#tcp(there, sockets);
        if (protocol === 'https:') await secured(there.host);
      } catch (cause) {
        throw new ProxyFailure(proxy, `cannot be reached: ${messageOf(cause)}`, { cause });
      }
      const socket = sockets.at(-1) as Socket;
      if (protocol === 'socks5:') await connectBySocks(socket, service.host, service.port, proxy);
      else if (service.isTls) await openTunnel(socket, authorityOf(service), proxy);
    }
    if (!service.isTls) return;
    const socket = await secured(service.host, this.#session);
    socket.on('session', (session) => {
      this.#session = session;
    });
  }

  async #tcp(to: Place, sockets: Socket[]): Promise<void> {
    const { names, connectMs, onread, proxy } = this.#parts;
    const isReadElsewhere = onread !== undefined && (proxy === null || proxy.address.startsWith('http:'));
    const socket = connect({
      ...to,
      lookup: names.lookup as LookupFunction,
      autoSelectFamilyAttemptTimeout: attemptMs(connectMs),
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: KEEP_ALIVE_PROBE_MS,
      ...{ highWaterMark: READ_BYTES }, // Node knows it, its types do not say so.
      ...(isReadElsewhere && { onread }),
    });
    sockets.push(socket);
    await opened(socket, 'connect');
    names.connected(to.host, socket.remoteAddress);
  }

  #late(): Error {
    const { proxy, connectMs } = this.#parts;
    const within = `within ${connectMs / 1000} s`;
    if (proxy !== null)
      return new ProxyFailure(proxy, `opened no connection to the service ${within}`, { timedOut: true });
    const message = `no connection to ${authorityOf(this.#service)} ${within}`;
    return Object.assign(new Error(message), { code: 'ETIMEDOUT' });
  }
}

/** The one place that says what is verified: the authority and the name of the certificate. */
export function encrypt(
  socket: Duplex,
  host: string,
  secureContext: SecureContext,
  session: Buffer | undefined,
): TLSSocket {
  return process.getBuiltinModule('node:tls').connect({
    socket,
    host,
    // SNI carries host names only, not addresses (RFC 6066, 3).
    ...(isIP(host) === 0 && { servername: host }),
    secureContext,
    ...(session !== undefined && { session }),
    ALPNProtocols: ['http/1.1'],
    ...{ highWaterMark: TLS_READ_BYTES },
  });
}

/** The error listener stays: an error event without a listener ends the process. */
function opened(socket: Socket, event: 'connect' | 'secureConnect'): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.once(event, resolve);
    socket.on('error', reject);
    socket.once('close', () => reject(Object.assign(new Error('the connection was closed'), { code: 'ECONNRESET' })));
  });
}

function authorityOf({ host, port }: Place): string {
  return `${isIP(host) === 6 ? `[${host}]` : host}:${port}`;
}

function portOf(port: string, isTls: boolean): number {
  return port === '' ? (isTls ? 443 : 80) : Number(port);
}

/** An AggregateError of several addresses has no message of its own. */
function messageOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return messageOf(error.errors[0]);
  return error instanceof Error ? error.message : String(error);
}
