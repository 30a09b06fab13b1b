import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import type { LookupFunction } from 'node:net';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { NameLookup } from '../../src/remote/http/name-lookup.ts';
import { Transport } from '../../src/remote/http/transport.ts';
import { missingAddon, testUnless } from '../harness/requirement.ts';
import { hasReceiver } from './client.ts';

/**
 * A service with two addresses, of which one answers and is far away, and the other does not. Far away is a server of which the queue is full
 * (listen(2)): the system drops what knocks, and knocks again after a second (RFC 6298).
 */

/** Takes no connection before it is told to. */
const BUSY_SERVER = `
  const { createServer } = require('node:http');
  const { parentPort, workerData } = require('node:worker_threads');
  const server = createServer((request, response) => {
    response.writeHead(200, { 'Content-Length': '5' });
    response.end('hello');
  });
  server.listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
    parentPort.postMessage(server.address().port);
    Atomics.wait(workerData, 0, 0);
  });
`;
/** As many as the queue takes, which is one more than the backlog, and some that wait before it. */
const IN_QUEUE = 2;
const BEFORE_QUEUE = 3;

let isFree: Int32Array;
let worker: Worker;
let port: number;
let others: Socket[];
let transport: Transport;
beforeEach(async () => {
  isFree = new Int32Array(new SharedArrayBuffer(4));
  worker = new Worker(BUSY_SERVER, { eval: true, workerData: isFree });
  port = await new Promise<number>((resolve) => worker.once('message', resolve));
  let taken = 0;
  others = Array.from({ length: IN_QUEUE + BEFORE_QUEUE }, () => {
    const socket = connect(port, '127.0.0.1', () => {
      taken += 1;
    });
    return socket.on('error', () => {});
  });
  await expect.poll(() => taken).toBeGreaterThanOrEqual(IN_QUEUE);
  transport = new Transport({
    baseUrl: `http://service.test:${port}`,
    insecure: true,
    names: new NameLookup(addresses),
    userAgent: 'test',
    clock: systemClock,
    // On a busy machine the queue is full still when it is knocked at again: time for that a few times.
    deadlines: { connectMs: 120_000 },
  });
}, 30_000);
afterEach(async () => {
  await transport.close();
  for (const socket of others) socket.destroy();
  await worker.terminate();
});

/** Nobody listens at the second one. When the first was knocked at in vain, the queue moves on. */
const addresses: LookupFunction = (_name, _options, answered) => {
  answered(
    null,
    ['127.0.0.1', '127.0.0.2'].map((address) => ({ address, family: 4 })),
  );
  setImmediate(() =>
    setImmediate(() => {
      Atomics.store(isFree, 0, 1);
      Atomics.notify(isFree, 0);
    }),
  );
};

describe('an address that is far away is not given up for one that does not answer:', () => {
  test('a document comes', async () => {
    const url = `${transport.origin}/folder/:sc:1:2`;
    const answer = await transport.exchange({ method: 'GET', url, headers: {}, body: null, signal: undefined });

    expect((await answer.bytes(100)).toString()).toBe('hello');
  });

  testUnless(hasReceiver() ? null : (missingAddon() ?? 'a processor with CRC32C'))('data come past V8', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'cfs-addresses-'));
    const fd = openSync(join(directory, 'file'), 'w+');
    const got = await transport.direct?.bring({
      path: '/file/:sc:1:2/data',
      headers: {},
      extent: { start: 0, end: 5 },
      isExpected: () => true,
      fd,
      asked: () => {},
      landed: () => {},
      signal: new AbortController().signal,
    });
    expect(got).toBe(5);
    expect(readFileSync(join(directory, 'file'), 'utf8')).toBe('hello');
    closeSync(fd);
    rmSync(directory, { recursive: true });
  });
});
