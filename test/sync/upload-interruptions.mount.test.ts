import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import type { Fault, FaultRule } from '../../src/server/fault-plan.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { ServedSide } from '../harness/served-side.ts';
import { digest, filesIn } from '../harness/service-history.ts';
import { accessToken, type RawClient, signUp, type TestUser } from '../server/raw-client.ts';

/**
 * What interrupts an upload, a row each, against the reference server over HTTP: at every request of it, and at several bytes of
 * its body. Whatever happens, the service ends with the bytes that were written, once; and all that it took is the file, a
 * mebibyte for each interruption, and what the interruption itself threw away. All that came to it, kept or not, is a socket's buffer
 * more for each.
 */

const MIB = 1024 * 1024;
/** More than goes in one plain PUT; and sent twice it is more than itself and the mebibyte. */
const SIZE_BYTES = 1.25 * MIB + 17;
/** Goes in one plain PUT, of which the service keeps nothing when it is interrupted. */
const PLAIN_BYTES = MIB - 65_537;
const HOUR_MS = 3600_000;
/** What a line holds at most between the two programs: a socket's buffer at each end (tcp(7): the last numbers). */
const LINE_BYTES = ['tcp_wmem', 'tcp_rmem']
  .map((name) => Number(readFileSync(`/proc/sys/net/ipv4/${name}`, 'utf8').trim().split(/\s+/).at(-1)))
  .reduce((one, other) => one + other);
/** Sent twice it is more than is allowed, whatever the system's buffers. */
const LARGE_BYTES = 2 * MIB + 1.5 * LINE_BYTES;
const HEAD_BYTES_MAX = 1024;
/** A bandwidth of which each byte takes so long fence the body in which the server stops (`Gate`). */
const HELD_MS_PER_BYTE = 1e6;
const HELD: Fault = { bandwidthBytesPerSecond: 1000 / HELD_MS_PER_BYTE };

/** The server's time, which stops in the body of a request when so many bytes of it have come. */
class Gate {
  aheadMs = 0;
  #atBytes = Number.POSITIVE_INFINITY;
  #seenBytes = 0;
  #isHeld = false;
  #release: () => void = () => {};

  readonly clock: Clock = {
    ...systemClock,
    nowMs: () => systemClock.nowMs() + this.aheadMs,
    sleep: (ms, signal) => (ms >= HELD_MS_PER_BYTE ? this.#pass(ms / HELD_MS_PER_BYTE) : systemClock.sleep(ms, signal)),
  };

  arm(atBytes: number): void {
    this.#atBytes = atBytes;
    this.#seenBytes = 0;
  }

  get isHeld(): boolean {
    return this.#isHeld;
  }

  release(): void {
    this.#atBytes = Number.POSITIVE_INFINITY;
    this.#isHeld = false;
    this.#release();
  }

  #pass(bytes: number): Promise<void> {
    this.#seenBytes += bytes;
    if (this.#seenBytes < this.#atBytes) return Promise.resolve();
    this.#isHeld = true;
    return new Promise((resolve) => {
      this.#release = resolve;
    });
  }
}

let directory: string;
let server: ReferenceServer;
let user: TestUser;
let served: ServedSide;
const gate = new Gate();
const body = randomBytes(SIZE_BYTES);
let cases = 0;
let tokenAheadMs = 0;
/** Of servers that ended. */
const former = { bytesTaken: 0, bytesArrived: 0, requests: 0 };

/** Of all bodies, as the server took them; and all that came over its lines, what it threw away included. */
const bytesTaken = (): number => former.bytesTaken + server.requests.bytesIn;
const bytesArrived = (): number => former.bytesArrived + server.bytesArrived;
const requestsSent = (): number => former.requests + server.requests.total;
const openServer = () => ReferenceServer.open({ dataDirectory: directory, clock: gate.clock });

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-interruptions-'));
  server = await openServer();
  user = await signUp(server, 'a@example.com');
  served = await ServedSide.build(user);
});

afterAll(async () => {
  await served.close();
  await server.close();
  rmSync(directory, { recursive: true, force: true });
});

/** Bytes of their own. */
function bytesOf(seed: number, sizeBytes = SIZE_BYTES): Buffer {
  const bytes = Buffer.alloc(sizeBytes, body);
  bytes.writeUInt32LE(seed, 0);
  return bytes;
}

/** Another client of the same user. Its token is good for an hour. */
async function elsewhere(): Promise<RawClient> {
  const { client } = user;
  if (gate.aheadMs !== tokenAheadMs) client.token = await accessToken(server.origin, user, user.refreshToken);
  tokenAheadMs = gate.aheadMs;
  return client;
}

/** Another version of a file, one that was never there, and one whose first bytes are few. */
type Upload = 'changed' | 'made' | 'made in one PUT' | 'large';

interface Row {
  readonly name: string;
  /** What is ordered, for a byte of the body (of the requests that `put` names) or the n-th request. */
  readonly rules: (at: number, put: typeof VERSION_DATA | typeof FILE_DATA) => readonly FaultRule[];
  /** Done while the server stands still at that byte. `next`: other bytes for the file. */
  readonly meanwhile?: (name: string, next: Buffer) => Promise<void>;
  /** How often the upload is interrupted; once. */
  readonly interruptions?: number;
  /** What of the bytes sent till then the service does not keep, so that they have to be sent again. */
  readonly lost?: (at: number) => number;
  /** Whether one more version is to be sent. */
  readonly isTwo?: boolean;
  /** What is to be there in the end, newest first; the new bytes over the old ones without. */
  readonly expected?: (made: { bytes: Buffer; next: Buffer; old: readonly Buffer[] }) => readonly Buffer[];
}

const VERSION_DATA = { on: 'PUT', path: 'fileVersionData' } as const;
const FILE_DATA = { on: 'PUT', path: 'fileData' } as const;
const OLD = Buffer.from('before');
/** Behind what is sent when the server stops at the first byte, from the end. */
const PATCH_AT = -10;
const PATCH = Buffer.from('patch');

/** Writes a file under the row's trouble, and looks at what comes of it. */
async function upload(row: Row, at: number, how: Upload): Promise<void> {
  const name = `f${++cases}`;
  const sizeBytes = how === 'made in one PUT' ? PLAIN_BYTES : how === 'large' ? LARGE_BYTES : SIZE_BYTES;
  const bytes = bytesOf(cases, sizeBytes);
  const next = bytesOf(cases + 1_000_000, sizeBytes);
  if (how === 'changed') {
    await served.mount.writeFile(name, OLD);
    await served.converge();
  }
  server.faults = row.rules(at, how === 'made in one PUT' ? FILE_DATA : VERSION_DATA);
  const before = {
    taken: bytesTaken(),
    arrived: bytesArrived(),
    requests: requestsSent(),
    refused: server.requests.count({ status: 416 }),
  };
  if (row.meanwhile !== undefined) gate.arm(at);
  await served.mount.writeFile(name, bytes);
  if (row.meanwhile !== undefined) {
    await served.until(() => gate.isHeld, `the server has ${at} bytes`);
    await row.meanwhile(name, next);
    gate.release();
  }
  await served.until(() => {
    if (served.sync.status().parked.length > 0) served.sync.retry();
    return served.isSynced;
  }, 'everything is pushed');
  const sent = bytesTaken() - before.taken;
  const arrived = bytesArrived() - before.arrived - (requestsSent() - before.requests) * HEAD_BYTES_MAX;
  server.faults = [];

  const where = `${row.name}, ${how}, at ${at}`;
  const old = how === 'changed' ? [OLD] : [];
  const expected = row.expected?.({ bytes, next, old }) ?? [bytes, ...old];
  const files = await filesIn(await elsewhere(), user.folder('2'), name);
  expect(
    files.map(({ versions }) => versions),
    where,
  ).toEqual([expected.map(digest)]);
  const lost = row.lost?.(Math.min(at, sizeBytes)) ?? 0;
  const interruptions = row.interruptions ?? 1;
  const allowed = sizeBytes * (row.isTwo ? 2 : 1) + interruptions * MIB + lost;
  expect(sent, `bytes that the server took: ${where}`).toBeLessThanOrEqual(allowed);
  expect(sent, `bytes that the server took: ${where}`).toBeGreaterThanOrEqual(sizeBytes);
  // A 416 is one more: the old transfer was still being served when the rest began to be sent.
  const refused = server.requests.count({ status: 416 }) - before.refused;
  const thrownAway = (interruptions + Math.max(0, refused)) * LINE_BYTES + Math.max(0, refused) * MIB;
  expect(arrived, `bytes that arrived: ${where}`).toBeLessThanOrEqual(allowed + thrownAway);
}

describe('at several bytes of the body', () => {
  const rows: readonly Row[] = [
    {
      name: 'an upload whose connection is cut in the body is completed',
      rules: (at, put) => [{ ...put, then: { hangUpAfterBytes: at } }],
    },
    {
      name: 'an upload whose connection is cut in the body three times in a row is completed',
      interruptions: 3,
      rules: (at, put) => [{ ...put, times: 3, then: { hangUpAfterBytes: Math.ceil(at / 4) } }],
    },
    {
      name: 'an honest incomplete with fewer bytes',
      rules: (at, put) => [{ ...put, then: { acceptBytes: at } }],
    },
    {
      name: 'cut, then 416',
      interruptions: 2,
      rules: (at, put) => [
        { ...put, then: { hangUpAfterBytes: at } },
        { ...put, nth: 2, then: { status: 416 } },
      ],
    },
    {
      name: 'cut, then 404 of the version, which takes its bytes along',
      interruptions: 2,
      lost: (at) => at,
      rules: (at, put) => [
        { ...put, then: { hangUpAfterBytes: at } },
        { ...put, nth: 2, then: { status: 404 } },
      ],
    },
    {
      name: 'cut, then the token is refused with 401 in mid-body',
      interruptions: 2,
      rules: (at, put) => [
        { ...put, then: { hangUpAfterBytes: at } },
        { ...put, nth: 2, then: { expireToken: true, delayMs: 5 } },
      ],
    },
    ...[401, 413, 500, 503, 429].map(
      (status): Row => ({
        name: `${status} in mid-body`,
        rules: (at, put) => [{ ...put, then: { acceptBytes: at, status } }],
      }),
    ),
    ...[413, 500, 503, 429].map(
      (status): Row => ({
        name: `cut, then ${status}`,
        interruptions: 2,
        rules: (at, put) => [
          { ...put, then: { hangUpAfterBytes: at } },
          { ...put, nth: 2, then: { status } },
        ],
      }),
    ),
    {
      name: 'the server is restarted',
      rules: (_at, put) => [{ ...put, then: HELD }],
      meanwhile: async () => {
        const closing = server.close();
        gate.release();
        await closing;
        former.bytesTaken += server.requests.bytesIn;
        former.bytesArrived += server.bytesArrived;
        former.requests += server.requests.total;
        server = await openServer();
      },
    },
    {
      name: 'SIGKILL: another process goes on with the disk as it is',
      rules: (_at, put) => [{ ...put, then: HELD }],
      meanwhile: async () => {
        const left = await served.killed();
        const asked = () => server.requests.count({ method: 'GET' });
        const sent = () => server.requests.count({ method: 'PUT' });
        const [askedBefore, sentBefore] = [asked(), sent()];
        served = await ServedSide.build(user, { directory: left });
        // It asks while the old transfer is still being served, and that one comes to its end after the answer.
        await served.until(() => asked() > askedBefore, 'the new process has asked');
        gate.release();
        await vi.waitUntil(() => sent() > sentBefore, { timeout: 100_000, interval: 1 });
      },
    },
    {
      name: 'the machine sleeps for two hours, its line and its token die',
      rules: (at, put) => [{ ...put, then: { ...HELD, hangUpAfterBytes: at } }],
      meanwhile: async () => {
        gate.aheadMs += 2 * HOUR_MS;
        served.lineClock.aheadMs += 2 * HOUR_MS;
        served.clock.advance(2 * HOUR_MS);
      },
    },
    {
      name: 'the file is changed here meanwhile: two versions, one after the other',
      rules: (_at, put) => [{ ...put, then: HELD }],
      isTwo: true,
      meanwhile: (name, next) => served.mount.writeFile(name, next),
      expected: ({ bytes, next, old }) => [next, bytes, ...old],
    },
    {
      name: 'changed in place meanwhile: the version that is being sent has none of it',
      rules: (_at, put) => [{ ...put, then: HELD }],
      isTwo: true,
      meanwhile: async (name, { byteLength }) => {
        const file = await served.mount.open(name, 'r+');
        await served.mount.write(file, byteLength + PATCH_AT, PATCH);
        await served.mount.close(file);
      },
      expected: ({ bytes, old }) => {
        const patched = Buffer.from(bytes);
        PATCH.copy(patched, bytes.byteLength + PATCH_AT);
        return [patched, bytes, ...old];
      },
    },
    {
      name: 'the file is deleted elsewhere meanwhile: what was changed here is made anew',
      rules: (_at, put) => [{ ...put, then: HELD }],
      lost: () => SIZE_BYTES,
      meanwhile: async (name) => {
        const client = await elsewhere();
        const [file] = await filesIn(client, user.folder('2'), name);
        expect((await client.send('DELETE', file?.url ?? 'none')).status).toBeLessThan(300);
      },
      expected: ({ bytes }) => [bytes],
    },
  ];

  test.each(rows)('$name', async (row) => {
    for (const at of [1, MIB, SIZE_BYTES - 1, SIZE_BYTES]) await upload(row, at, 'changed');
    for (const at of [1, MIB / 2, PLAIN_BYTES]) await upload(row, at, 'made in one PUT');
  });
});

describe('at every request of an upload', () => {
  const rows: readonly Row[] = [
    { name: 'lost on its way', rules: (nth) => [{ on: '*', nth, then: { hangUpBefore: true } }] },
    {
      name: 'answer lost, that of POST version too',
      rules: (nth) => [{ on: '*', nth, then: { actButNeverAnswer: true } }],
    },
    { name: '401', rules: (nth) => [{ on: '*', nth, then: { expireToken: true } }] },
    { name: '500', rules: (nth) => [{ on: '*', nth, then: { status: 500 } }] },
    { name: '503', rules: (nth) => [{ on: '*', nth, then: { status: 503 } }] },
    { name: '413', rules: (nth) => [{ on: '*', nth, then: { status: 413 } }] },
  ];

  test.each(rows)('$name', async (row) => {
    // Make the file, POST version, PUT its data, GET the history; and one more, for what a repetition asks in addition.
    for (let nth = 1; nth <= 5; nth++) await upload(row, nth, 'made');
    for (let nth = 1; nth <= 4; nth++) await upload(row, nth, 'changed');
  });
});

describe('a file of which sending it twice is far more than what may be sent twice', () => {
  const at = LARGE_BYTES - MIB;
  const rows: readonly Row[] = [
    { name: 'cut near its end', rules: () => [{ ...VERSION_DATA, then: { hangUpAfterBytes: at } }] },
    { name: 'an honest incomplete near its beginning', rules: () => [{ ...VERSION_DATA, then: { acceptBytes: MIB } }] },
    { name: '503 in the middle', rules: () => [{ ...VERSION_DATA, then: { acceptBytes: at / 2, status: 503 } }] },
    { name: '413 before anything was taken', rules: () => [{ ...VERSION_DATA, then: { status: 413 } }] },
  ];

  test.each(rows)('$name', (row) => upload(row, at, 'large'));
});
