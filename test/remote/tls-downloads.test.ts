import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { createServer, type Server as WebServer } from 'node:https';
import { type AddressInfo, connect, createServer as createRelay, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createServer as createTunnelEnd, type TlsOptions } from 'node:tls';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { crc32 } from '../../src/base/checksum.ts';
import { systemClock } from '../../src/base/clock.ts';
import { BLOCK_BYTES, type Extent, type VersionUrl } from '../../src/base/vocabulary.ts';
import { DirectDownloads, type Download } from '../../src/remote/http/direct-downloads.ts';
import { NameLookup } from '../../src/remote/http/name-lookup.ts';
import { Receiver } from '../../src/remote/http/receiver.ts';
import { TrustStore } from '../../src/remote/trust-store.ts';
import { Authority } from '../cli/doctor-ground.ts';
import { missingAddon, missingPrograms, titled } from '../harness/requirement.ts';
import { clientOf, hasReceiver } from './client.ts';
import { reply, ScriptedServer, until } from './scripted-server.ts';

/** Bodies that the receiver decrypts, and every connection that it must refuse. */

const missing =
  missingPrograms('openssl') ?? (hasReceiver() ? null : (missingAddon() ?? 'a processor with fast checksums'));
const SIZE = 5 * BLOCK_BYTES + 777;
const BYTES = Buffer.from(Uint8Array.from({ length: SIZE }, (_, i) => (i * i + (i >> 7)) % 251));
const WHOLE: Extent = { start: 0, end: SIZE };

let directory: string;
let authority: Authority;
let certified: { readonly key: Buffer; readonly cert: Buffer };
let file: number;
let path: string;
let web: WebServer;
/** Between client and server; it may change the bytes that the server sends. */
let relay: Server;
let downloads: DirectDownloads;
let connections: number;
let requests: number;
let checksums: number[];
let landed: number;

beforeAll(() => {
  if (missing !== null) return;
  directory = mkdtempSync(join(tmpdir(), 'cfs-tls-downloads-'));
  authority = new Authority(join(directory, 'authority'));
  certified = authority.certify();
});

afterAll(() => {
  if (missing === null) rmSync(directory, { recursive: true });
});

beforeEach(() => {
  if (missing !== null) return;
  path = join(directory, 'file');
  file = openSync(path, 'w');
  [connections, requests, checksums, landed] = [0, 0, [], 0];
});

afterEach(async () => {
  if (missing !== null) return;
  downloads?.close();
  web.closeAllConnections();
  await new Promise((resolve) => web.close(resolve));
  await new Promise((resolve) => relay.close(resolve));
  closeSync(file);
  rmSync(path);
});

interface Serving {
  readonly tls?: TlsOptions;
  /** Pieces in which the body is written, bytes. */
  readonly pieceBytes?: number;
  /** Changes what the server sends. @param from number of bytes sent before */
  readonly inTransit?: (bytes: Buffer, from: number, client: Socket) => void;
  /** What the client trusts. */
  readonly certificates?: string;
}

/** @returns the origin */
async function serve({ tls = {}, pieceBytes = SIZE, inTransit, certificates }: Serving = {}): Promise<string> {
  web = createServer({ ...certified, ...tls }, async (request, response) => {
    requests++;
    const [, first = '', last = ''] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '') ?? [];
    const [start, end] = first === '' ? [0, SIZE] : [Number(first), Number(last) + 1];
    const range = { 'Content-Range': `bytes ${start}-${end - 1}/${SIZE}`, 'Content-Length': end - start };
    response.writeHead(first === '' ? 200 : 206, first === '' ? { 'Content-Length': SIZE } : range);
    for (let at = start; at < end; at += pieceBytes) {
      const piece = BYTES.subarray(at, Math.min(end, at + pieceBytes));
      if (!response.write(piece)) await new Promise((resolve) => response.once('drain', resolve));
      if (response.destroyed) return;
    }
    response.end();
  });
  web.on('connection', () => connections++);
  web.on('tlsClientError', () => {});
  await new Promise<void>((resolve) => web.listen(0, '127.0.0.1', resolve));
  relay = createRelay((client) => {
    const server = connect((web.address() as AddressInfo).port, '127.0.0.1');
    let sent = 0;
    server.on('data', (bytes) => {
      const from = sent;
      sent += bytes.byteLength;
      inTransit?.(bytes, from, client);
      if (!client.destroyed) client.write(bytes);
    });
    for (const [one, other] of [
      [client, server],
      [server, client],
    ] as const)
      one.on('error', () => {}).on('close', () => other.destroy());
    client.on('data', (bytes) => server.write(bytes));
  });
  await new Promise<void>((resolve) => relay.listen(0, '127.0.0.1', resolve));
  const origin = `https://127.0.0.1:${(relay.address() as AddressInfo).port}`;
  downloads = new DirectDownloads({
    receiver: Receiver.open() as Receiver,
    clock: systemClock,
    origin,
    trust: new TrustStore(() => certificates ?? readFileSync(authority.certificateFile, 'utf8')),
    names: new NameLookup(),
    deadlines: { connectMs: 60_000, answerMs: 60_000, bodyMs: 60_000 },
  });
  return origin;
}

function download(extent: Extent, other: Partial<Download> = {}): Download {
  return {
    path: '/data',
    headers: { Range: `bytes=${extent.start}-${extent.end - 1}` },
    extent,
    isExpected: ({ status }) => status === 206,
    fd: file,
    asked: () => {},
    landed: (at, values) => {
      landed = at;
      checksums.push(...values);
    },
    signal: new AbortController().signal,
    ...other,
  };
}

const check = describe.skipIf(missing !== null);

check(titled('a download by TLS', missing), () => {
  test.each(['TLS_AES_128_GCM_SHA256', 'TLS_AES_256_GCM_SHA384', 'TLS_CHACHA20_POLY1305_SHA256'])(
    'arrives with its checksums, encrypted with %s',
    async (ciphers) => {
      await serve({ tls: { ciphers } });

      expect(await downloads.bring(download(WHOLE))).toBe(SIZE);

      expect(readFileSync(path).equals(BYTES)).toBe(true);
      expect(landed).toBe(SIZE);
      const blocks = Array.from({ length: 6 }, (_, i) =>
        crc32(BYTES.subarray(i * BLOCK_BYTES, (i + 1) * BLOCK_BYTES), 0),
      );
      expect(checksums).toEqual(blocks);
    },
  );

  test.each([1, 100, 1_000, 16_384, 16_385, 70_000])(
    'arrives in pieces of %i bytes, and its connection serves the next one',
    async (pieceBytes) => {
      await serve({ pieceBytes });
      const extents = [
        { start: 0, end: 3 },
        { start: BLOCK_BYTES - 5, end: BLOCK_BYTES + 2_000 },
        { start: 2 * BLOCK_BYTES, end: 2 * BLOCK_BYTES + (pieceBytes < 1_000 ? 9_000 : 2 * BLOCK_BYTES) },
      ];

      for (const extent of extents) expect(await downloads.bring(download(extent))).toBe(extent.end);

      const there = readFileSync(path);
      for (const { start, end } of extents)
        expect(there.subarray(start, end).equals(BYTES.subarray(start, end))).toBe(true);
      expect(connections).toBe(1);
    },
  );

  test('is what the client asks for, and Node gets no byte of it', async () => {
    await serve();
    const scripted = await ScriptedServer.start();
    const through = createTunnelEnd(certified, (socket) => {
      const plain = connect(Number(new URL(scripted.baseUrl).port), '127.0.0.1');
      socket
        .on('error', () => {})
        .pipe(plain)
        .on('error', () => {})
        .pipe(socket);
    });
    await new Promise<void>((resolve) => through.listen(0, '127.0.0.1', resolve));
    const origin = `https://127.0.0.1:${(through.address() as AddressInfo).port}`;
    const certificates = (): string => readFileSync(authority.certificateFile, 'utf8');
    const client = clientOf(origin, { certificates });
    const extent = { start: 100, end: 70_000 };
    const part = BYTES.subarray(extent.start, extent.end);
    scripted.steps = [reply(206, { 'Content-Range': `bytes 100-69999/${SIZE}` }, part)];
    const landing = { fd: file, landed: () => {}, came: () => {} };

    const signal = AbortSignal.timeout(10_000);
    const version = `${origin}/file/:sc:1:2/version/3` as VersionUrl;
    const brought = await client.downloads?.bringVersion(version, extent, SIZE, landing, signal);

    expect(brought).toBe(extent.end);
    expect(readFileSync(path).subarray(100).equals(part)).toBe(true);
    expect(scripted.requests[0]).toMatchObject({ headers: { range: 'bytes=100-69999' } });
    await client.close();
    await new Promise((resolve) => through.close(resolve));
    await scripted.close();
  });

  test('ends at the byte before a record that was changed in transit', async () => {
    const changed = 3 * BLOCK_BYTES;
    await serve({
      inTransit: (bytes, from) => {
        const at = changed - from;
        if (at >= 0 && at < bytes.byteLength) bytes[at] = (bytes[at] as number) ^ 1;
      },
    });

    const brought = await downloads.bring(download(WHOLE));

    expect(brought).toBeLessThan(changed);
    expect(readFileSync(path).equals(BYTES.subarray(0, brought))).toBe(true);
    expect(downloads.isWilling).toBe(false);
  });

  test('ends where the connection was cut', async () => {
    const cut = 3 * BLOCK_BYTES;
    await serve({ inTransit: (bytes, from, client) => void (from + bytes.byteLength > cut && client.destroy()) });

    const brought = await downloads.bring(download(WHOLE));

    expect(brought).toBeLessThan(cut);
    expect(readFileSync(path).equals(BYTES.subarray(0, brought))).toBe(true);
  });

  test('ends when it is aborted, in its handshake and in its body', async () => {
    let isHeld = true;
    const clients: Socket[] = [];
    await serve({
      inTransit: (_bytes, from, client) => {
        clients.push(client);
        if (isHeld || from > BLOCK_BYTES) client.pause();
      },
    });
    const controller = new AbortController();
    const first = downloads.bring(download(WHOLE, { signal: controller.signal }));
    await until(() => clients.length > 0, 'the handshake has begun');
    controller.abort();
    await first;
    isHeld = false;
    const other = new AbortController();

    const second = downloads.bring(
      download(WHOLE, {
        signal: other.signal,
        landed: () => other.abort(),
      }),
    );

    expect(await second).toBeLessThan(SIZE + 1);
    expect(downloads.isWilling).toBe(true);
  });
});

/** One byte of data, which is not for a handshake: more records arrive than are looked at. */
const SHORT_RECORD = Buffer.from([23, 3, 3, 0, 1, 0]);
/** The buffers of the two sockets may take some MiB. */
const TAKEN_BYTES_MAX = 16 * 1024 ** 2;

check(titled('no request goes by TLS', missing), () => {
  const EXPIRED = ['20200101000000Z', '20200201000000Z'] as const;

  test.each([
    ['whose certificate has expired', EXPIRED, undefined],
    ['whose certificate is for another host', undefined, 'DNS:other.example.com'],
  ] as const)('to a service %s', async (_what, life, name) => {
    await serve({ tls: authority.certify(life, name) });

    expect(await downloads.bring(download(WHOLE))).toBe(0);

    expect(connections).toBe(1);
    expect(requests).toBe(0);
    expect(downloads.isWilling).toBe(false);
  });

  test('to a service of an authority that is not trusted', async () => {
    const other = new Authority(join(directory, `other-${process.pid}`));
    await serve({ certificates: readFileSync(other.certificateFile, 'utf8') });

    expect(await downloads.bring(download(WHOLE))).toBe(0);

    expect(connections).toBe(1);
    expect(requests).toBe(0);
  });

  test('past Node to a service without TLS 1.3, and it is not tried again', async () => {
    await serve({ tls: { maxVersion: 'TLSv1.2' } });

    expect(await downloads.bring(download(WHOLE))).toBe(0);

    expect(requests).toBe(0);
    expect(downloads.isWilling).toBe(false);
  });

  test('to a peer that sends without end before it is verified, and little of it is taken', async () => {
    const records = Buffer.concat(Array.from({ length: 16_384 }, () => SHORT_RECORD));
    let taken = 0;
    await serve({
      inTransit: (_bytes, _from, client) => {
        const flood = (): void => {
          taken = client.bytesWritten - client.writableLength;
          if (!client.destroyed) client.write(records, flood);
        };
        client.removeAllListeners('data').resume(); // no alert reaches the service, which would close
        flood();
      },
    });

    expect(await downloads.bring(download(WHOLE))).toBe(0);

    expect(taken).toBeLessThan(TAKEN_BYTES_MAX);
    expect(requests).toBe(0);
  });

  test('on a connection that was closed during the handshake', async () => {
    await serve({ inTransit: (_bytes, _from, client) => client.destroy() });

    expect(await downloads.bring(download(WHOLE))).toBe(0);

    expect(requests).toBe(0);
  });
});
