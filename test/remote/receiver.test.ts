import { closeSync, openSync, readFileSync, rmSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { BLOCK_BYTES, type Extent } from '../../src/base/vocabulary.ts';
import { DirectDownloads, type Download } from '../../src/remote/http/direct-downloads.ts';
import { NameLookup } from '../../src/remote/http/name-lookup.ts';
import { GONE, HEAD_READ, IDLE, type LineNews, OVER, Receiver } from '../../src/remote/http/receiver.ts';
import { missingAddon, titled } from '../harness/requirement.ts';
import { hasReceiver } from './client.ts';
import { until } from './scripted-server.ts';

/** The receiver by itself, and what becomes of a download where it cannot go on. Only where the processor has what checksums need. */

const BYTES = Buffer.from(Uint8Array.from({ length: 2000 }, (_, i) => i % 251));
const path = join(tmpdir(), `cfs-receiver-${process.pid}`);
const never = new AbortController().signal;

let server: Server;
let peers: Socket[];
let receiver: Receiver;
let file: number;

beforeEach(async () => {
  peers = [];
  server = createServer((socket) => peers.push(socket.on('error', () => {})));
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  receiver = Receiver.open() as Receiver;
  file = openSync(path, 'w');
});

afterEach(async () => {
  (receiver as Receiver | null)?.close();
  for (const peer of peers) peer.destroy();
  await new Promise((resolve) => server.close(resolve));
  closeSync(file);
  rmSync(path);
});

/** A line, its other end, and what was heard of it. */
async function line(): Promise<{ id: number; peer: Socket; heard: LineNews[] }> {
  const { port } = server.address() as AddressInfo;
  const socket = connect(port, '127.0.0.1');
  socket.pause();
  const before = peers.length;
  await new Promise((resolve) => socket.on('connect', resolve));
  await until(() => peers.length > before, 'the other end');
  const heard: LineNews[] = [];
  const { fd } = (socket as unknown as { _handle: { fd: number } })._handle;
  const id = receiver.adopt(fd, null, (news) => heard.push(news));
  socket.destroy();
  return { id, peer: peers.at(-1) as Socket, heard };
}

function phases(heard: readonly LineNews[]): number[] {
  return heard.map(({ phase }) => phase);
}

const request = Buffer.from('GET / HTTP/1.1\r\n\r\n');

function answerTo({ start, end }: Extent): string {
  return `HTTP/1.1 206 x\r\nContent-Range: bytes ${start}-${end - 1}/2000\r\nContent-Length: ${end - start}\r\n\r\n`;
}

test('without descriptors or threads there is no receiver, which is no error', () => {
  expect(Receiver.open(() => ({ openReceiver: () => -constants.errno.EMFILE }))).toBeNull();
});

const missing = hasReceiver() ? null : (missingAddon() ?? 'a processor with CRC32C');

describe.skipIf(missing !== null)(titled('a line', missing), () => {
  test('a connection with unrequested bytes takes no request', async () => {
    for (let time = 0; time < 20; time++) {
      const { id, peer, heard } = await line();
      peer.write('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil');

      // The bytes may or may not have been noticed by then.
      expect(() => receiver.ask(id, request)).toThrow('ECONNRESET');

      receiver.drop(id);
      await until(() => phases(heard).includes(GONE), 'it is gone');
      expect(phases(heard)).not.toContain(HEAD_READ);
    }
  });

  test('a connection that cannot be written to is closed', async () => {
    const { id, peer, heard } = await line();
    peer.pause();

    expect(() => receiver.ask(id, Buffer.alloc(64 * 1024 * 1024))).toThrow('EAGAIN');
    receiver.drop(id);

    await until(() => phases(heard).includes(GONE), 'it is gone');
  });

  test.each([
    ['a line that is not there', (id: number) => receiver.land(id + 2 ** 32, file, 0, 10)],
    ['no number', () => receiver.land(Number.NaN, file, 0, 10)],
    ['a place before the file', (id: number) => receiver.land(id, file, -1, 10)],
    ['a place behind all files', (id: number) => receiver.land(id, file, 2 ** 63, 10)],
    ['an end behind all files', (id: number) => receiver.land(id, file, 2 ** 62, 2 ** 62)],
    ['no length', (id: number) => receiver.land(id, file, 0, 0)],
    ['an endless length', (id: number) => receiver.land(id, file, 0, Number.POSITIVE_INFINITY)],
    ['another descriptor that is cut off to this one', (id: number) => receiver.land(id, file + 2 ** 32, 0, 10)],
  ])('receives nothing into %s', async (_what, land) => {
    const { id, peer, heard } = await line();
    receiver.ask(id, request);
    peer.write(`HTTP/1.1 200 OK\r\n\r\n0123456789`);
    await until(() => phases(heard).includes(HEAD_READ), 'the head is here');

    expect(() => land(id)).toThrow();

    receiver.land(id, file, 0, 10);
    await until(() => phases(heard).includes(IDLE), 'the body is here');
    expect(readFileSync(path, 'latin1')).toBe('0123456789');
  });

  test('a connection reports a complete block even if another one is busy', async () => {
    const MIB = 1024 * 1024;
    const head = 'HTTP/1.1 200 OK\r\n\r\n';
    const [busy, slow] = [await line(), await line()];
    for (const { id, peer, heard } of [busy, slow]) {
      receiver.ask(id, request);
      peer.write(head);
      await until(() => phases(heard).includes(HEAD_READ), 'the head is here');
    }
    const nowhere = openSync('/dev/null', 'w');
    receiver.land(busy.id, nowhere, 0, 2 ** 36);
    closeSync(nowhere);
    const piece = Buffer.alloc(4 * MIB);
    const pump = (): void => {
      while (busy.peer.writable && busy.peer.write(piece));
    };
    busy.peer.on('drain', pump);
    pump();
    await until(() => (busy.heard.at(-1)?.at ?? 0) > 64 * MIB, 'one is busy');

    receiver.land(slow.id, file, 0, MIB);
    slow.peer.write(Buffer.alloc(3 * BLOCK_BYTES));

    await until(
      () => slow.heard.at(-1)?.at === 3 * BLOCK_BYTES,
      'the third block, of which the step has one more, is told of',
    );
  });

  test('a connection that ends with less than a block delivers it', async () => {
    const { id, peer, heard } = await line();
    receiver.ask(id, request);
    peer.write('HTTP/1.1 200 OK\r\n\r\n');
    await until(() => phases(heard).includes(HEAD_READ), 'the head is here');

    receiver.land(id, file, 0, 1_000_000);
    peer.end(BYTES);

    await until(() => phases(heard).includes(OVER), 'it has ended');
    expect(heard.at(-1)?.at).toBe(2000);
    expect(readFileSync(path)).toEqual(BYTES);
  });
});

describe.skipIf(missing !== null)(titled('a download', missing), () => {
  const extent: Extent = { start: 0, end: 2000 };
  let landed: number[];
  let asked: number;

  beforeEach(() => {
    landed = [];
    asked = 0;
  });

  function direct(lookup?: never): DirectDownloads {
    const { port } = server.address() as AddressInfo;
    const deadlines = { connectMs: 60_000, answerMs: 60_000, bodyMs: 60_000 };
    const origin = lookup === undefined ? `http://127.0.0.1:${port}` : 'http://the-service.invalid';
    const names = new NameLookup(lookup);
    return new DirectDownloads({ receiver, clock: systemClock, origin, trust: null, deadlines, names });
  }

  function download(other: Partial<Download> = {}): Download {
    return {
      path: '/data',
      headers: {},
      extent,
      isExpected: () => true,
      fd: file,
      asked: () => void asked++,
      landed: (at) => void landed.push(at),
      signal: never,
      ...other,
    };
  }

  function answering(): void {
    server.on('connection', (socket) => {
      socket.on('data', () => void socket.write(Buffer.concat([Buffer.from(answerTo(extent)), BYTES])));
    });
  }

  test('a download does not inherit the progress of the previous one on its connection', async () => {
    answering();
    const downloads = direct();
    expect(await downloads.bring(download())).toBe(2000);
    landed = [];

    // As when there are no more descriptors for its file.
    expect(await downloads.bring(download({ fd: -1 }))).toBe(0);

    expect(landed).toEqual([]);
    expect(peers).toHaveLength(1);
  });

  test('a download that was aborted at its head leaves no progress to the next one', async () => {
    answering();
    const downloads = direct();
    expect(await downloads.bring(download())).toBe(2000);
    landed = [];
    const controller = new AbortController();
    const isExpected = (): boolean => {
      controller.abort();
      return true;
    };

    expect(await downloads.bring(download({ signal: controller.signal, isExpected }))).toBe(0);

    expect(landed).toEqual([]);
  });

  test('counts what was asked: once more where the line had ended', async () => {
    answering();
    const downloads = direct();
    await downloads.bring(download());
    expect(asked).toBe(1);
    server.removeAllListeners('connection');
    peers[0]?.removeAllListeners('data');
    peers[0]?.on('data', () => peers[0]?.destroy());
    answering();

    expect(await downloads.bring(download())).toBe(2000);

    expect(asked).toBe(3);
  });

  test('a download that waits for a connection ends with the others', async () => {
    const downloads = direct((() => {}) as never);
    const brought = downloads.bring(download());

    downloads.close();

    expect(await brought).toBe(0);
    expect(asked).toBe(0);
  });
});
