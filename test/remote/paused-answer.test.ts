import type { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { TransportError } from '../../src/base/errors.ts';
import type { VersionUrl } from '../../src/base/vocabulary.ts';
import type { HttpService } from '../../src/remote/http/http-service.ts';
import { clientOf } from './client.ts';
import { ScriptedServer, type Step } from './scripted-server.ts';

/**
 * A service that ends the connection while a slow reader has made the answer wait: undici 7 asserts there that its parser is not paused
 * (undici #5360), in the socket's own event, where nobody catches it.
 */

const KIB = 1024;
/** The last read of each of these is what makes the answer wait, or leaves something behind it. */
const LENGTHS = [512 * KIB + 1, 576 * KIB, 1024 * KIB];

let server: ScriptedServer;
let service: HttpService;

beforeEach(async () => {
  server = await ScriptedServer.start();
  service = clientOf(server.baseUrl);
});

afterEach(async () => {
  await service.close();
  await server.close();
});

type Framing = 'length' | 'chunks' | 'until the end';
const FRAMINGS: readonly Framing[] = ['length', 'chunks', 'until the end'];

function framed(framing: Framing, announced: number, bytes: Buffer): Buffer {
  const head = (more: string): Buffer => Buffer.from(`HTTP/1.1 200 OK\r\nConnection: close\r\n${more}\r\n`);
  if (framing === 'length') return Buffer.concat([head(`Content-Length: ${announced}\r\n`), bytes]);
  if (framing === 'until the end') return Buffer.concat([head(''), bytes]);
  const start = Buffer.from(`${announced.toString(16)}\r\n`);
  const end = Buffer.from(bytes.byteLength === announced ? '\r\n0\r\n\r\n' : '');
  return Buffer.concat([head('Transfer-Encoding: chunked\r\n'), start, bytes, end]);
}

/** As long as it takes for what is on its way to arrive here and there: nothing tells of a connection that waits. */
async function turns(): Promise<void> {
  for (let turn = 0; turn < 1_000; turn++) await new Promise((resolve) => setImmediate(resolve));
}

function sent(bytes: Buffer, then: (socket: Socket) => void): Step {
  return { act: (socket) => void socket.write(bytes, () => void turns().then(() => then(socket))) };
}

async function readSlowly(length: number, byteAt: (at: number) => number): Promise<void> {
  const incoming = await service.readVersion(server.url('/v') as VersionUrl, { start: 0, end: length }, length);
  // Unread so far: it waits, and the other side is gone.
  await turns();
  await turns();
  let at = 0;
  for await (const chunk of incoming.chunks) {
    expect(chunk[0]).toBe(byteAt(at));
    at += chunk.byteLength;
  }
  expect(at).toBe(length);
}

const pattern = (length: number): Buffer => Buffer.from(Array.from({ length }, (_, at) => at % 251));

describe.each(FRAMINGS)('a body delimited by: %s', (framing) => {
  test.each(LENGTHS)('%i bytes, whole, and the end of the connection', async (length) => {
    server.steps = [sent(framed(framing, length, pattern(length)), (socket) => socket.end())];

    await readSlowly(length, (at) => at % 251);

    expect(server.requests).toHaveLength(1);
  });

  test.each(LENGTHS)('%i bytes of twice as many: the rest is asked for', async (length) => {
    const whole = pattern(2 * length);
    const ends: readonly ((socket: Socket) => void)[] = [
      (socket) => socket.end(),
      (socket) => socket.resetAndDestroy(),
    ];
    for (const end of ends) {
      server.steps = [
        sent(framed(framing, 2 * length, whole.subarray(0, length)), end),
        {
          act: (socket, { headers }) => {
            const start = Number(/^bytes=(\d+)-/.exec(headers.range ?? 'bytes=0-')?.[1]);
            const rest = whole.subarray(start);
            socket.end(
              Buffer.concat([
                Buffer.from(
                  `HTTP/1.1 ${start === 0 ? '200' : '206'} OK\r\nContent-Range: bytes ${start}-${2 * length - 1}/${2 * length}\r\n` +
                    `Connection: close\r\nContent-Length: ${rest.byteLength}\r\n\r\n`,
                ),
                rest,
              ]),
            );
          },
        },
      ];

      await readSlowly(2 * length, (at) => at % 251);

      expect(server.steps).toEqual([]);
    }
  });
});

test('an answer that nobody reads any more is let go', async () => {
  const length = 1024 * KIB;
  server.steps = [sent(framed('length', length, pattern(length)), (socket) => socket.end())];
  const incoming = await service.readVersion(server.url('/v') as VersionUrl, { start: 0, end: length }, length);
  await turns();
  await turns();

  const iterator = incoming.chunks[Symbol.asyncIterator]();
  await iterator.next();
  await service.close();

  await expect(
    (async () => {
      for (;;) if ((await iterator.next()).done === true) return;
    })(),
  ).rejects.toBeInstanceOf(TransportError);
});
