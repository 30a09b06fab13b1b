import { Socket } from 'node:net';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import type { VersionUrl } from '../../src/base/vocabulary.ts';
import type { HttpService } from '../../src/remote/http/http-service.ts';
import { ReusedReads } from '../../src/remote/http/reused-reads.ts';
import { ManualClock } from '../kernel/manual-clock.ts';
import { clientOf } from './client.ts';
import { answer, ScriptedServer, type Step, until } from './scripted-server.ts';

const READ_BYTES = 128 * 1024;
const KIB = 1024;

/** No two places within a few MiB look alike. */
function bytesOf(length: number): Buffer {
  const words = new Uint32Array(Math.ceil(length / 4));
  for (let at = 0; at < words.length; at++) words[at] = Math.imul(at + 1, 0x9e3779b1);
  return Buffer.from(words.buffer);
}

describe('a read into the shared buffer', () => {
  const bytes = bytesOf(READ_BYTES);
  let reads: ReusedReads;
  let shared: Buffer;
  let socket: Socket;

  /** As Node does it; what comes next overwrites the buffer. */
  function arrive(length: number): boolean {
    bytes.copy(shared, 0, 0, length);
    const goesOn = reads.onread.callback.call(socket, length, shared);
    shared.fill(0);
    return goesOn;
  }

  beforeEach(() => {
    reads = new ReusedReads({ clock: systemClock });
    shared = reads.onread.buffer as Buffer;
    socket = new Socket();
  });
  afterEach(() => socket.destroy());

  test('a long read is passed on within the callback, as a view of the shared buffer', () => {
    const seen: Uint8Array[] = [];
    socket.on('readable', () => {
      const chunk: Buffer | null = socket.read();
      if (chunk !== null) seen.push(reads.kept(chunk));
    });

    expect(arrive(READ_BYTES)).toBe(true);
    expect(seen.map((chunk) => bytes.equals(chunk))).toEqual([true]);
  });

  test.each([1, 20 * KIB, 64 * KIB - 1])('a read of %i bytes is passed on as a copy', async (length) => {
    const seen: Buffer[] = [];
    socket.on('readable', () => {
      const chunk: Buffer | null = socket.read();
      if (chunk !== null) seen.push(chunk);
    });

    arrive(length);
    await until(() => seen.length > 0, 'it is passed on');
    arrive(READ_BYTES);

    expect(seen[0]?.buffer === shared.buffer).toBe(false);
    expect(bytes.subarray(0, length).equals(seen[0] as Buffer)).toBe(true);
  });

  test.each([64 * KIB, READ_BYTES])('a read of %i bytes stays unchanged for a paused reader', (length) => {
    socket.on('readable', () => {});

    expect(arrive(length)).toBe(false);
    expect(arrive(10)).toBe(false);
    expect(arrive(length)).toBe(false);
    expect(
      Buffer.concat([bytes.subarray(0, length), bytes.subarray(0, 10), bytes.subarray(0, length)]).equals(
        socket.read(),
      ),
    ).toBe(true);
  });

  test('stays what it is where the reader pauses in the middle of it', () => {
    const seen: Buffer[] = [];
    socket.on('readable', () => {
      const chunk: Buffer | null = socket.read();
      if (chunk === null || seen.length > 0) return;
      seen.push(Buffer.from(chunk.subarray(0, 1000)));
      socket.unshift(chunk.subarray(1000));
    });

    arrive(READ_BYTES);

    expect(bytes.equals(Buffer.concat([...seen, socket.read()]))).toBe(true);
  });
});

describe('pieces', () => {
  const clock = new ManualClock();
  const reads = new ReusedReads({ clock });
  const shared = reads.onread.buffer as Buffer;

  test('go round when they are given back, and only then', () => {
    const first = reads.kept(shared.subarray(10));
    const second = reads.kept(shared.subarray(0, 64 * KIB));
    reads.takeBack(first.subarray(3));
    const third = reads.kept(shared);

    expect([second.buffer === first.buffer, third.buffer === first.buffer]).toEqual([false, true]);
    expect([first.byteLength, second.byteLength, third.byteLength]).toEqual([READ_BYTES - 10, 64 * KIB, READ_BYTES]);
  });

  test('a piece is filled once per return, and no other memory is written', () => {
    const mine = new Uint8Array(READ_BYTES);
    const piece = reads.kept(shared);
    for (const each of [piece, piece, mine, shared]) reads.takeBack(each);
    const later = [1, 2, 3].map(() => reads.kept(shared).buffer);

    expect(new Set(later).size).toBe(3);
    expect([later.includes(mine.buffer), later.includes(shared.buffer)]).toEqual([false, false]);
  });

  test.each([1, 64 * KIB - 1])('no piece is used for a chunk of %i bytes', (length) => {
    shared.fill('a');
    const kept = reads.kept(shared.subarray(0, length));
    shared.fill('b');

    expect(kept.buffer.byteLength).toBeLessThan(READ_BYTES);
    expect(Buffer.from(kept).equals(Buffer.alloc(length, 'a'))).toBe(true);
  });

  test('all go round that one fast download has in hand; when it is over most are left to the collector', () => {
    const inHand = (): Uint8Array[] => Array.from({ length: 150 }, () => reads.kept(shared));
    const again = (pieces: readonly Uint8Array[], before: readonly Uint8Array[]): number => {
      const memory = new Set(before.map(({ buffer }) => buffer));
      return pieces.filter(({ buffer }) => memory.has(buffer)).length;
    };
    const giveBack = (pieces: readonly Uint8Array[]): void => {
      for (const piece of pieces) reads.takeBack(piece);
    };
    const first = inHand();
    giveBack(first);
    clock.advance(9_000); // a line that pauses
    const second = inHand();
    expect(again(second, first)).toBe(150);

    giveBack(second);
    clock.advance(20_000);
    expect(again(inHand(), second)).toBe(32);
  });

  test('no piece is made of bytes from outside the shared buffer', () => {
    const chunk = new Uint8Array(10);

    expect(reads.kept(chunk) === chunk).toBe(true);
  });
});

describe('a download', () => {
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

  const open = (length: number) =>
    service.readVersion(server.url('/file/:sc:1:2/version/3') as VersionUrl, { start: 0, end: length }, length);

  test('a download is read into reused pieces', async () => {
    const bytes = bytesOf(4 * 1024 * KIB);
    const memory = new Set<ArrayBufferLike>();
    let took = 0;
    // How much one read brings is the kernel's affair: again until it has often brought much.
    for (let round = 0; round < 50 && took <= 100; round++) {
      server.steps = [{ act: (socket) => void socket.write(answer(200, {}, bytes)) }];
      const { chunks, takeBack } = await open(bytes.byteLength);
      for await (const chunk of chunks) {
        if (chunk.buffer.byteLength === READ_BYTES) {
          memory.add(chunk.buffer);
          took++;
        }
        takeBack?.(chunk);
      }
    }

    expect(took).toBeGreaterThan(100);
    expect(memory.size).toBeLessThan(20);
  });

  test('a download is complete for a slow reader that keeps all pieces', async () => {
    const bytes = bytesOf(12 * 1024 * KIB);
    let line: Socket | null = null;
    server.steps = [
      {
        act: (socket) => {
          socket.write(answer(200, {}, bytes));
          line = socket;
        },
      },
    ];
    const { chunks } = await open(bytes.byteLength);
    const kept: Uint8Array[] = [];
    for await (const chunk of chunks) {
      kept.push(chunk);
      // Nobody reads here, so the line comes to a stand, some time.
      if (kept.length === 3) await standing(line as unknown as Socket);
    }

    expect(bytes.equals(Buffer.concat(kept))).toBe(true);
  });

  test('a download is complete for any cuts, chunks and order of returned pieces', async () => {
    const bytes = bytesOf(1024 * KIB);
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: 1, max: 400 * KIB }), { minLength: 1, maxLength: 8 }),
        fc.boolean(),
        fc.array(fc.boolean(), { minLength: 1, maxLength: 8 }),
        async (cuts, isChunked, keeps) => {
          server.steps = [cut(bytes, cuts, isChunked)];
          const { chunks, takeBack } = await open(bytes.byteLength);
          const whole = Buffer.alloc(bytes.byteLength);
          const kept: [number, Uint8Array][] = [];
          let at = 0;
          let turn = 0;
          for await (const chunk of chunks) {
            if (keeps[turn++ % keeps.length]) kept.push([at, chunk]);
            else {
              whole.set(chunk, at);
              takeBack?.(chunk);
            }
            at += chunk.byteLength;
          }
          for (const [place, chunk] of kept) whole.set(chunk, place);
          expect(whole.equals(bytes)).toBe(true);
        },
      ),
      { numRuns: 25 },
    );
  });
});

/** Until its peer has not taken a byte for several turns of the loop. */
async function standing(socket: Socket): Promise<void> {
  let [last, still] = [-1, 0];
  await until(() => {
    still = socket.writableLength === last ? still + 1 : 0;
    last = socket.writableLength;
    return still > 50;
  }, 'the line comes to a stand');
}

/** An answer that is written in pieces of these lengths over and over, its head cut too; chunked, each is a chunk, with a trailer at last. */
function cut(bytes: Buffer, lengths: readonly number[], isChunked: boolean): Step {
  return {
    act: async (socket) => {
      const pieces: Buffer[] = [];
      for (let at = 0, i = 0; at < bytes.byteLength; i++) {
        const piece = bytes.subarray(at, at + (lengths[i % lengths.length] as number) + 500);
        at += piece.byteLength;
        pieces.push(
          isChunked
            ? Buffer.concat([Buffer.from(`${piece.byteLength.toString(16)}\r\n`), piece, Buffer.from('\r\n')])
            : piece,
        );
      }
      const framing = isChunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${bytes.byteLength}`;
      const head = Buffer.from(`HTTP/1.1 200 OK\r\nX-Long: ${'x'.repeat(9_000)}\r\n${framing}\r\n\r\n`);
      const end = isChunked ? [Buffer.from('0\r\nX-Trai'), Buffer.from('ler: 1\r\n\r\n')] : [];
      for (const piece of [head.subarray(0, 30), head.subarray(30, 8_000), head.subarray(8_000), ...pieces, ...end]) {
        socket.write(piece);
        await new Promise((resolve) => setImmediate(resolve));
      }
    },
  };
}
