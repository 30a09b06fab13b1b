import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { ProtocolError, TransportError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { FetchedRange, WrittenExtent } from '../../src/base/resources.ts';
import { BLOCK_BYTES, type Extent, type VersionUrl } from '../../src/base/vocabulary.ts';
import type { HttpService } from '../../src/remote/http/http-service.ts';
import { createTransfer, type Transfer } from '../../src/transfer/transfer.ts';
import { clientOf, HastyClock, hasReceiver } from '../remote/client.ts';
import {
  answer,
  hang,
  raw,
  reply,
  ScriptedServer,
  type SeenRequest,
  type Step,
  until,
} from '../remote/scripted-server.ts';

/** What a server with TLS has. */
export interface Certified {
  readonly key: Buffer;
  readonly cert: Buffer;
  /** Certificates of the authority. */
  readonly authority: string;
}

const BYTES = Buffer.from(Uint8Array.from({ length: 1_000_000 }, (_, i) => (i * 7 + (i >> 8)) & 0xff));

/**
 * What the addon's receiver brings from the socket into the file is what the ordinary way brings, whatever happens on the line; and what it cannot
 * bring, the ordinary way does.
 *
 * @param certified null: without TLS
 */
export function directDownloads(certified: Certified | null): void {
  let server: ScriptedServer;
  let service: HttpService;
  let transfer: Transfer;
  let clock: HastyClock;
  let folder: string;
  let path: string;
  let told: WrittenExtent[];
  const never = new AbortController().signal;

  beforeEach(async ({ skip }) => {
    server = await ScriptedServer.start(certified);
    begin({});
    folder = await mkdtemp(join(tmpdir(), 'cfs-direct-'));
    path = join(folder, 'content');
    await writeFile(path, '');
    if (!hasReceiver()) skip();
  });

  afterEach(async () => {
    await service.close();
    await server.close();
    await rm(folder, { recursive: true });
  });

  function begin(deadlines: { answerMs?: number; bodyMs?: number }): void {
    clock = new HastyClock();
    const certificates = certified === null ? {} : { certificates: () => certified.authority };
    service = clientOf(server.baseUrl, { clock, deadlines, ...certificates });
    transfer = createTransfer({ service, clock, log: silentLogger });
  }

  function fetch(extent: Extent, signal: AbortSignal = never): Promise<FetchedRange> {
    told = [];
    const url = server.url('/file/:sc:1:2/version/3') as VersionUrl;
    const target = { kind: 'file', path } as const;
    return transfer.versions.readVersion(url, extent, BYTES.byteLength, target, (there) => told.push(there), signal);
  }

  function rangeOf(request: SeenRequest): Extent {
    const [, start = '0', last = String(BYTES.byteLength - 1)] =
      /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '') ?? [];
    return { start: Number(start), end: Number(last) + 1 };
  }

  function answerOf(request: SeenRequest, headers: Readonly<Record<string, string>> = {}): Buffer {
    const { start, end } = rangeOf(request);
    const range = { 'Content-Range': `bytes ${start}-${end - 1}/${BYTES.byteLength}` };
    return answer(206, { ...range, ...headers }, BYTES.subarray(start, end));
  }

  const honest: Step = { act: (socket, request) => void socket.write(answerOf(request)) };

  /** Ends the connection after so many bytes of an honest answer. */
  function cutAfter(bytes: number, how: 'end' | 'reset'): Step {
    return { act: (socket, request) => raw(answerOf(request).subarray(0, bytes), how).act(socket, request) };
  }

  /** In pieces of these lengths, each sent when the one before has left. */
  function inPieces(lengths: readonly number[]): Step {
    const send = (socket: Socket, bytes: Buffer, [length, ...others]: readonly number[]): void => {
      if (bytes.byteLength === 0) return;
      const piece = bytes.subarray(0, length ?? bytes.byteLength);
      socket.write(piece, () => setImmediate(send, socket, bytes.subarray(piece.byteLength), others));
    };
    return { act: (socket, request) => send(socket, answerOf(request), lengths) };
  }

  async function expectLanded(extent: Extent): Promise<void> {
    const file = await readFile(path);
    expect(file.byteLength).toBe(extent.end);
    expect(Buffer.compare(file.subarray(extent.start), BYTES.subarray(extent.start, extent.end))).toBe(0);
    expect(told.at(-1)).toMatchObject(extent);
    expect(told.every(({ start, end }, at) => start === extent.start && end >= (told[at - 1]?.end ?? 0))).toBe(true);
    for (const { checksums } of told) {
      for (const [at, checksum] of (checksums?.values ?? []).entries()) {
        const start = ((checksums?.first ?? 0) + at) * BLOCK_BYTES;
        expect(checksum).toBe(crc32(BYTES.subarray(start, Math.min(start + BLOCK_BYTES, extent.end))));
      }
    }
  }

  describe('a range lands as it was sent', () => {
    test('a range arrives as it was sent, whatever its pieces are', async () => {
      const ranges = fc.tuple(fc.nat({ max: 7 }), fc.integer({ min: 1, max: 500_000 })).map(([block, length]) => ({
        start: block * BLOCK_BYTES,
        end: Math.min(block * BLOCK_BYTES + length, 1_000_000),
      }));
      const pieces = fc.array(fc.oneof(fc.integer({ min: 1, max: 400 }), fc.integer({ min: 1, max: 300_000 })), {
        maxLength: 8,
      });

      await fc.assert(
        fc.asyncProperty(ranges, pieces, async (extent, lengths) => {
          await writeFile(path, '');
          server.steps = [inPieces(lengths)];

          expect(await fetch(extent)).toEqual({ extent, bytes: null });

          await expectLanded(extent);
          const checksums = told.flatMap(({ checksums }) => checksums?.values ?? []);
          expect(checksums).toHaveLength(Math.ceil((extent.end - extent.start) / BLOCK_BYTES));
        }),
        { numRuns: 60 },
      );
      // One after the other, over the connection that was there.
      expect(new Set(server.requests.map(({ connection }) => connection)).size).toBe(1);
    });

    test('received parts of a range are reported before the rest is sent', async () => {
      const extent = { start: 0, end: 1_000_000 };
      let rest = (): void => {};
      server.steps = [
        {
          act: (socket) => {
            const whole = answer(200, {}, BYTES);
            const half = whole.byteLength - 500_000;
            socket.write(whole.subarray(0, half));
            rest = () => void socket.write(whole.subarray(half));
          },
        },
      ];

      const fetched = fetch(extent);
      await until(() => (told.at(-1)?.end ?? 0) >= 3 * BLOCK_BYTES, 'the first half is told');
      rest();

      await fetched;
      await expectLanded(extent);
    });
  });

  describe('a connection that is cut', () => {
    const extent: Extent = { start: 2 * BLOCK_BYTES, end: 2 * BLOCK_BYTES + 40 };
    const length = answerOf({ headers: { range: `bytes=${extent.start}-${extent.end - 1}` } } as never).byteLength;

    test.each(['end', 'reset'] as const)(
      'by %s at each byte of the answer costs another request, and nothing else',
      async (how) => {
        for (let bytes = 0; bytes < length; bytes++) {
          await writeFile(path, '');
          clock.aheadMs += 60_000; // It has rested since the last one.
          const before = server.requests.length;
          server.steps = [cutAfter(bytes, how), honest];

          expect(await fetch(extent)).toEqual({ extent, bytes: null });

          await expectLanded(extent);
          expect(server.requests.length - before).toBe(2);
          // What has come is not asked for again; a reset may take with it what had come.
          const again = rangeOf(server.requests.at(-1) as SeenRequest);
          const came = Math.max(0, bytes - (length - 40));
          if (how === 'end') expect(again).toEqual({ start: extent.start + came, end: extent.end });
          else expect(again.end).toBe(extent.end);
        }
      },
    );

    test('a connection that was cut while idle is replaced without an error', async () => {
      const own = { start: 0, end: 10 };
      server.otherwise = {
        act: (socket, request) => {
          honest.act(socket, request);
          socket.end();
        },
      };

      for (let time = 0; time < 20; time++) await fetch(own);

      expect(server.requests).toHaveLength(20);
    });
  });

  describe('an answer that does not fit is not believed, and writes nothing:', () => {
    const extent: Extent = { start: 0, end: 1000 };
    const other = (headers: Readonly<Record<string, string>>): Step => ({
      act: (socket, request) => void socket.write(answerOf(request, headers)),
    });

    test.each<[string, Step, (typeof ProtocolError | typeof TransportError)?]>([
      ['another range', other({ 'Content-Range': 'bytes 1-1000/1000000' })],
      ['another total', other({ 'Content-Range': 'bytes 0-999/1000001' })],
      ['no range', reply(206, {}, BYTES.subarray(0, 1000))],
      ['a whole of another length', reply(200, {}, BYTES.subarray(1))],
      ['a login page', reply(200, { 'Content-Type': 'text/html' }, BYTES.subarray(0, 1000))],
      ['no HTTP', raw('SSH-2.0-x\r\n\r\n', 'stay'), TransportError],
    ])('%s', async (_what, step, failure = ProtocolError) => {
      server.otherwise = step;

      await expect(fetch(extent)).rejects.toBeInstanceOf(failure);

      expect((await readFile(path)).byteLength).toBe(0);
      expect(server.requests).toHaveLength(2);
    });

    test('a head without an end is rejected, and nothing is written', async () => {
      server.otherwise = raw(`HTTP/1.1 206 OK\r\nX: ${'x'.repeat(40_000)}`, 'stay');

      await expect(fetch(extent)).rejects.toBeInstanceOf(ProtocolError);

      expect(server.requests).toHaveLength(2);
    });

    test('bytes beyond the announced length are dropped, and the connection is closed', async () => {
      server.steps = [
        { act: (socket, request) => void socket.write(Buffer.concat([answerOf(request), Buffer.from('more')])) },
      ];

      await fetch(extent);

      await expectLanded(extent);
      await until(() => !server.isOpen(server.requests[0]?.connection ?? 0), 'its connection ends');
    });
  });

  describe('what is no plain answer of the expected kind is asked for again in the ordinary way:', () => {
    const extent: Extent = { start: 0, end: 1000 };

    test('a chunked body is requested again in the ordinary way', async () => {
      const head = `HTTP/1.1 206 OK\r\nContent-Range: bytes 0-999/${BYTES.byteLength}\r\nTransfer-Encoding: chunked\r\n\r\n`;
      server.otherwise = raw(
        Buffer.concat([Buffer.from(`${head}3e8\r\n`), BYTES.subarray(0, 1000), Buffer.from('\r\n0\r\n\r\n')]),
        'stay',
      );

      await fetch(extent);

      await expectLanded(extent);
      expect(server.requests).toHaveLength(2);
    });

    test('a whole file from a service that ignores Range is requested again in the ordinary way, and kept', async () => {
      server.otherwise = reply(200, {}, BYTES);

      expect(await fetch(extent)).toEqual({ extent: { start: 0, end: BYTES.byteLength }, bytes: null });

      await expectLanded({ start: 0, end: BYTES.byteLength });
      expect(server.requests).toHaveLength(2);
    });

    test('a refusal is requested again in the ordinary way, and its message is reported', async () => {
      server.otherwise = reply(404, {}, '<h3>gone</h3>');

      await expect(fetch(extent)).rejects.toMatchObject({
        name: 'ApiError',
        status: 404,
        message: expect.stringContaining('404'),
      });
      expect(server.requests).toHaveLength(2);
    });

    test('a refused token is renewed in the ordinary way', async () => {
      server.steps = [reply(401), reply(401), honest];

      await fetch(extent);

      await expectLanded(extent);
      expect(server.tokenRequests).toHaveLength(2);
    });

    test('a redirect is followed in the ordinary way', async () => {
      server.steps = [reply(302, { Location: server.url('/x') }), reply(302, { Location: server.url('/y') }), honest];

      await fetch(extent);

      await expectLanded(extent);
      expect(server.requests.map(({ path }) => path.replace(/.*\//, ''))).toEqual(['data', 'data', 'y']);
    });

    test.each<[string, Step]>([
      ['was refused', reply(503)],
      ['was cut', cutAfter(300, 'end')],
    ])('after an answer that %s, all downloads take the ordinary way for a minute', async (_what, step) => {
      server.steps = [step];
      server.otherwise = honest;
      await fetch(extent);
      expect(server.requests).toHaveLength(2);

      clock.aheadMs += 59_000;
      await fetch(extent);
      const [, ordinary, third] = server.requests.map(({ connection }) => connection);
      expect(third).toBe(ordinary);

      clock.aheadMs += 1_000;
      await fetch(extent);
      expect(server.requests.at(-1)?.connection).not.toBe(ordinary);
      await fetch(extent);
      expect(server.requests.at(-1)?.connection).toBe(server.requests.at(-2)?.connection);
    });

    test('a token that cannot be renewed does not end direct downloads', async () => {
      server.tokens = reply(503);

      await expect(fetch(extent)).rejects.toMatchObject({ status: 503 });

      expect(server.tokenRequests).toHaveLength(4);
      expect(server.requests).toHaveLength(0);
    });

    test('an empty range causes no request', async () => {
      const empty = { start: 1000, end: 1000 };

      expect(await fetch(empty)).toEqual({ extent: empty, bytes: null });

      expect(server.requests).toHaveLength(0);
    });

    test('a full disk ends the download and is not repeated in the ordinary way', async () => {
      server.otherwise = honest;
      const url = server.url('/file/:sc:1:2/version/3') as VersionUrl;
      const refuses = (): void => {
        throw new Error('no room on the map');
      };

      const fetched = transfer.versions.readVersion(
        url,
        extent,
        BYTES.byteLength,
        { kind: 'file', path },
        refuses,
        never,
      );

      await expect(fetched).rejects.toThrow('no room on the map');
    });
  });

  describe('a connection is used again', () => {
    const extent: Extent = { start: 0, end: 1000 };
    const connections = (): number => new Set(server.requests.map(({ connection }) => connection)).size;
    const saying = (headers: Readonly<Record<string, string>>): Step => ({
      act: (socket, request) => void socket.write(answerOf(request, headers)),
    });

    test.each<[string, Step, number]>([
      ['where nothing is said about it', honest, 1],
      ['for as long as the other side keeps it', saying({ 'Keep-Alive': 'timeout=5' }), 1],
      ['not where that is over by then', saying({ 'Keep-Alive': 'timeout=1' }), 2],
      ['not where it is to be closed', saying({ Connection: 'close' }), 2],
    ])('%s', async (_what, step, expected) => {
      server.otherwise = step;

      await fetch(extent);
      await fetch(extent);

      expect(connections()).toBe(expected);
    });

    test('a connection is never used by two downloads at the same time', async () => {
      // Nothing is answered before all of it is asked for: a download that is over may give its connection to the next.
      const all: (() => void)[] = [];
      server.otherwise = {
        act: (socket, request) => {
          all.push(() => socket.write(answerOf(request)));
          if (all.length === 8) for (const each of all) each();
        },
      };

      await Promise.all(Array.from({ length: 8 }, () => fetch(extent)));

      expect(connections()).toBe(8);
    });
  });

  describe('who gives up', () => {
    const extent: Extent = { start: 0, end: 1_000_000 };

    test.each([0, 60, 400_000])(
      'a download that is aborted after %i bytes rejects, and nothing is written afterwards',
      async (bytes) => {
        let line: Socket | null = null;
        server.steps = [
          {
            act: (socket, request) => {
              line = socket;
              socket.write(answerOf(request).subarray(0, bytes));
            },
          },
        ];
        const controller = new AbortController();
        const fetched = fetch(extent, controller.signal);
        fetched.catch(() => {});
        await until(() => server.requests.length === 1, 'the request arrives');
        if (bytes > BLOCK_BYTES) await until(() => told.length > 0, 'the first bytes land');
        controller.abort(new DOMException('enough', 'AbortError'));

        await expect(fetched).rejects.toMatchObject({ name: 'AbortError' });

        await writeFile(path, '');
        (line as Socket | null)?.write(BYTES);
        await until(() => !server.isOpen(server.requests[0]?.connection ?? 0), 'its connection ends');
        expect((await readFile(path)).byteLength).toBe(0);
      },
    );

    test.each<[string, Step]>([
      ['before the answer', hang],
      ['in its body', cutAfterAndStay(300_000)],
    ])('a download without progress %s is requested again', async (_where, step) => {
      await service.close();
      begin({ answerMs: 200, bodyMs: 200 });
      server.steps = [step];
      server.otherwise = honest;

      await fetch(extent);

      await expectLanded(extent);
      // At least: a machine that is busy may be too late for the second, too, which is asked again like any.
      expect(server.requests.length).toBeGreaterThanOrEqual(2);
      expect(new Set(server.requests.map(({ connection }) => connection)).size).toBeGreaterThanOrEqual(2);
    });

    test('a download ends immediately when the service object is closed', async () => {
      server.otherwise = cutAfterAndStay(300_000);
      const fetched = fetch(extent);
      fetched.catch(() => {});
      await until(() => told.length > 0, 'the first bytes land');

      await service.close();

      await expect(fetched).rejects.toBeInstanceOf(TransportError);
    });
  });

  /** The line stays, and says nothing more. */
  function cutAfterAndStay(bytes: number): Step {
    return { act: (socket, request) => void socket.write(answerOf(request).subarray(0, bytes)) };
  }

  /** [S-read-3] */
  test.each([
    { way: 'into a file, past us', limits: {}, target: 'file' },
    { way: 'into a file, through us', limits: { downBytesPerSecond: 1e9 }, target: 'file' },
    { way: 'into memory', limits: {}, target: 'memory' },
  ] as const)(
    'a waiting reader gets a progress report every second, also for an incomplete block ($way)',
    async (how) => {
      const { limits, target } = how;
      transfer = createTransfer({
        service,
        clock: systemClock,
        log: silentLogger,
        limits: { upBytesPerSecond: null, downBytesPerSecond: null, ...limits },
      });
      const whole = { start: 0, end: BLOCK_BYTES };
      server.steps = [
        {
          act: async (socket, request) => {
            const bytes = answerOf(request);
            for (let at = 0; at < 20_000; at += 1_000) {
              socket.write(bytes.subarray(at, at + 1_000));
              await sleep(150);
            }
            socket.write(bytes.subarray(20_000));
          },
        },
      ];
      told = [];
      const url = server.url('/file/:sc:1:2/version/3') as VersionUrl;
      const into = target === 'file' ? ({ kind: 'file', path } as const) : ({ kind: 'memory' } as const);
      await transfer.versions.readVersion(url, whole, BYTES.byteLength, into, (there) => told.push(there), never);

      expect(told.filter(({ end }) => end < BLOCK_BYTES).length).toBeGreaterThanOrEqual(2);
    },
  );
}
