import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { TransportError } from '../../src/base/errors.ts';
import { NameLookup } from '../../src/remote/http/name-lookup.ts';
import { mayRepeat } from '../../src/remote/http/requests.ts';
import { Transport, type TransportOptions } from '../../src/remote/http/transport.ts';
import { proxyFailureOf } from '../../src/remote/proxy-failure.ts';
import { Authority } from '../cli/doctor-ground.ts';
import { ScriptedProxy, SILENT, saying, tunnelTo } from './scripted-proxy.ts';
import { ScriptedServer, until, xml } from './scripted-server.ts';

/** The way to the service through a proxy: a real one on loopback, that answers well or in every wrong way. */

const LONG_MS = 600_000;
const CREDENTIALS = { username: 'ann', password: 'p:w d' };

let directory: string;
let authority: Authority;
/** A service with https that the proxy alone can find. */
let service: Awaited<ReturnType<Authority['serve']>>;
let proxy: ScriptedProxy;
let transport: Transport;

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-proxy-'));
  authority = new Authority(join(directory, 'authority'));
  service = await authority.serve(undefined, 'DNS:service.invalid');
});

afterAll(() => {
  service?.close();
  rmSync(directory, { recursive: true });
});

beforeEach(async () => {
  proxy = await ScriptedProxy.start(tunnelTo(service.origin));
});

afterEach(async () => {
  await transport.close();
  await proxy.close();
});

function transportOf(options: Partial<TransportOptions> = {}): Transport {
  transport = new Transport({
    baseUrl: 'https://service.invalid',
    proxy: proxy.proxy,
    certificates: () => readFileSync(authority.certificateFile, 'utf8'),
    userAgent: 'test',
    clock: systemClock,
    ...options,
  });
  return transport;
}

function ask(path = '/user', signal?: AbortSignal) {
  return transport.exchange({ method: 'GET', url: transport.origin + path, headers: {}, body: null, signal });
}

async function failureOf(asked: Promise<unknown>): Promise<TransportError> {
  const failure = await asked.then(
    () => null,
    (error: unknown) => error,
  );
  expect(failure).toBeInstanceOf(TransportError);
  return failure as TransportError;
}

test('https goes through a tunnel, signed in at the proxy, and the service sees nothing of that', async () => {
  await proxy.close();
  proxy = await ScriptedProxy.start(tunnelTo(service.origin), CREDENTIALS);
  transportOf();

  expect((await ask()).status).toBe(401);

  expect(proxy.heads).toHaveLength(1);
  expect(proxy.heads[0]).toMatch(/^CONNECT service\.invalid:443 HTTP\/1\.1\r\n/);
  expect(proxy.heads[0]).toContain(`Proxy-Authorization: Basic ${Buffer.from('ann:p:w d').toString('base64')}\r\n`);
});

describe('a proxy that accepts and stays silent', () => {
  test('a silent proxy is abandoned at the connection deadline, for data too, and named in the error', async () => {
    proxy.act = SILENT;
    transportOf({ connections: 1, deadlines: { connectMs: 50 } });

    for (const path of ['/user', '/file/1/data']) {
      const failure = await failureOf(ask(path));
      expect(failure).toMatchObject({ timedOut: true, neverSent: true });
      expect(failure.message).toContain(`the proxy ${proxy.proxy.address} (HTTPS_PROXY) opened no connection`);
    }
    await until(() => proxy.open === 0, 'both connections to the proxy are closed');

    proxy.act = tunnelTo(service.origin);
    await transport.close();
    transportOf({ connections: 1 });
    expect((await ask('/file/1/data')).status).toBe(401);
  });

  /** With a deadline of ten minutes: only the place that was given back lets the last one through. */
  test('a silent proxy occupies no connection for abandoned exchanges', async () => {
    proxy.act = SILENT;
    transportOf({ connections: 1, deadlines: { connectMs: LONG_MS } });
    const abandoned = Array.from({ length: 20 }, () => new AbortController());
    const asked = abandoned.map(({ signal }) => ask('/file/1/data', signal));
    const outcomes = Promise.allSettled(asked);
    await until(() => proxy.heads.length === 1, 'one of them has the place');

    proxy.act = tunnelTo(service.origin);
    for (const each of abandoned) each.abort();

    expect((await outcomes).filter(({ status }) => status === 'rejected')).toHaveLength(20);
    expect((await ask('/file/1/data')).status).toBe(401);
    expect(proxy.accepted).toBe(2);
    await until(() => proxy.open <= 1, 'the silent connection is closed');
  });
});

test.each([
  ['refuses with 403', saying('HTTP/1.1 403 Forbidden\r\n\r\n'), /refuses the connection to service\.invalid:443: 403/],
  ['wants a sign-in', saying('HTTP/1.1 407 Sign in\r\n\r\n'), /wants a user name and password \(407\)/],
  ['speaks another protocol', saying('220 mail.example ESMTP ready\r\n'), /gave an answer that is not HTTP/],
  ['closes', (socket: { end(): void }) => socket.end(), /closed the connection/],
])('a proxy that %s is named; nothing was sent', async (_what, act, message) => {
  proxy.act = act as typeof proxy.act;
  transportOf();

  const failure = await failureOf(ask());

  expect(failure.message).toMatch(message);
  expect(failure.message).toContain(proxy.proxy.address);
  expect(failure.neverSent).toBe(true);
  expect(proxyFailureOf(failure)).not.toBeNull();
});

test('a proxy at which nobody listens is named', async () => {
  transportOf({ proxy: { ...proxy.proxy, address: 'http://127.0.0.1:9' } });

  expect((await failureOf(ask())).message).toMatch(
    /the proxy http:\/\/127\.0\.0\.1:\d+ \(HTTPS_PROXY\) cannot be reached: .*ECONNREFUSED/,
  );
});

test('a sign-in that a proxy refuses is not tried again: that would lock the account there', async () => {
  proxy.act = saying('HTTP/1.1 407 Sign in\r\n\r\n');
  transportOf();

  expect(mayRepeat(await failureOf(ask()), 'always')).toBe(false);
});

describe('plain http', () => {
  test('plain http through a proxy uses the absolute form and authenticates at the proxy', async () => {
    const plain = createHttpServer((request, response) => response.end(`${request.method} ${request.url}`));
    await new Promise<void>((resolve) => plain.listen(0, '127.0.0.1', resolve));
    const { port } = plain.address() as AddressInfo;
    const address = `http://127.0.0.1:${port}`;
    const seen: Record<string, string | string[] | undefined>[] = [];
    plain.on('request', ({ headers }) => seen.push(headers));
    transportOf({
      baseUrl: 'http://service.invalid:81',
      insecure: true,
      proxy: { address, credentials: CREDENTIALS, source: 'http_proxy' },
    });

    for (const path of ['/user', '/file/1/data'])
      expect(String(await (await ask(path)).bytes(100))).toBe(`GET http://service.invalid:81${path}`);

    expect(seen.map(({ host }) => host)).toEqual(['service.invalid:81', 'service.invalid:81']);
    expect(seen[0]?.['proxy-authorization']).toMatch(/^Basic /);
    plain.closeAllConnections();
    await new Promise((resolve) => plain.close(resolve));
  });

  test('a 407 is the proxy, never the service', async () => {
    proxy.act = saying('HTTP/1.1 407 Sign in\r\nContent-Length: 0\r\n\r\n');
    transportOf({ baseUrl: 'http://service.invalid:81', insecure: true });

    const failure = await failureOf(ask());

    expect(proxyFailureOf(failure)?.status).toBe(407);
    expect(failure.neverSent).toBe(true);
  });

  test('loopback is reached directly, whatever proxy there is', async () => {
    const near = await ScriptedServer.start();
    near.otherwise = xml('<a/>');
    transportOf({ baseUrl: near.baseUrl });

    expect((await ask()).status).toBe(200);

    expect(proxy.accepted).toBe(0);
    await near.close();
  });
});

describe('a SOCKS 5 proxy', () => {
  /** Each answer of the proxy, and what it was sent before. */
  async function socks(...answers: readonly Buffer[]): Promise<{ address: string; said: Buffer[]; close(): void }> {
    const said: Buffer[] = [];
    const server = createTcpServer((socket) => {
      const left = [...answers];
      socket.on('error', () => {});
      const hear = (bytes: Buffer): void => {
        said.push(bytes);
        const answer = left.shift();
        if (answer === undefined) return;
        if (left.length === 0) {
          socket.off('data', hear);
          tunnelTo(service.origin)(
            Object.assign(socket, {
              write: ((write) => (first: Buffer | string) => {
                socket.write = write;
                return write.call(socket, typeof first === 'string' ? answer : first);
              })(socket.write),
            }) as never,
            '',
          );
        } else socket.write(answer);
      };
      socket.on('data', hear);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const address = `socks5://127.0.0.1:${(server.address() as AddressInfo).port}`;
    return { address, said, close: () => void server.close() };
  }
  const CONNECTED = Buffer.from([5, 0, 0, 1, 127, 0, 0, 1, 0, 80]);

  test('connects to the service by name, signed in', async () => {
    const { address, said, close } = await socks(Buffer.from([5, 2]), Buffer.from([1, 0]), CONNECTED);
    transportOf({ proxy: { address, credentials: CREDENTIALS, source: 'all_proxy' } });

    expect((await ask()).status).toBe(401);

    expect(said.map((bytes) => bytes.toString('latin1'))).toEqual([
      '\x05\x01\x02',
      '\x01\x03ann\x05p:w d',
      '\x05\x01\x00\x03\x0fservice.invalid\x01\xbb',
    ]);
    close();
  });

  test('a SOCKS 5 proxy that refuses is named in the error', async () => {
    const refusing = createTcpServer((socket) => {
      socket.once('data', () => {
        socket.write(Buffer.from([5, 0]));
        socket.once('data', () => socket.write(Buffer.from([5, 2, 0, 1, 0, 0, 0, 0, 0, 0])));
      });
      socket.on('error', () => {});
    });
    await new Promise<void>((resolve) => refusing.listen(0, '127.0.0.1', resolve));
    const address = `socks5://127.0.0.1:${(refusing.address() as AddressInfo).port}`;
    transportOf({ proxy: { address, credentials: null, source: 'all_proxy' } });

    expect((await failureOf(ask())).message).toMatch(/refuses the connection to service\.invalid:443: forbidden/);
    refusing.close();
  });
});

/** Where nothing listens stands for where nothing answers: both are passed over for the next address. */
test('the address that accepted a connection is tried first for the next one', async () => {
  const [first, second] = [createHttpServer(), createHttpServer((_request, response) => response.end('second'))];
  await new Promise<void>((resolve) => second.listen(0, '127.0.0.1', resolve));
  const { port } = second.address() as AddressInfo;
  const names = new NameLookup((_name, _options, answer) =>
    answer(null, [
      { address: '127.0.0.2', family: 4 },
      { address: '127.0.0.1', family: 4 },
    ]),
  );
  transportOf({ baseUrl: `http://service.test:${port}`, insecure: true, proxy: null, names });
  expect(String(await (await ask()).bytes(100))).toBe('second');

  let taken = 0;
  first.on('connection', () => {
    taken++;
  });
  await new Promise<void>((resolve) => first.listen(port, '127.0.0.2', resolve));
  second.closeAllConnections();

  expect(String(await (await ask('/file/1/data')).bytes(100))).toBe('second');
  expect(taken).toBe(0);
  for (const server of [first, second]) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});
