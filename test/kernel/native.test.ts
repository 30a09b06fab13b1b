import { spawnSync } from 'node:child_process';
import { pbkdf2 } from 'node:crypto';
import {
  closeSync,
  fstatSync,
  ftruncateSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import * as N from '../../src/kernel/kernel-addon.ts';
import { Opcode } from '../../src/kernel/protocol.ts';
import { runCommand } from '../harness/command.ts';
import { missingAddon, testUnless } from '../harness/requirement.ts';

const missing = missingAddon();

/** open(2), as fdinfo shows it (proc(5)). */
const O_CLOEXEC = 0o2000000;
/** It is in no page cache, so that the pool has to read it; and no other test of this process reads it. */
const UNCACHED = `/proc/${process.pid}/limits`;
/** More than the pool has threads. */
const BUSY = 16;

/** The flags of each descriptor of a file that this process has. */
function flagsOf(path: string): number[] {
  return readdirSync('/proc/self/fd').flatMap((fd) => {
    try {
      if (readlinkSync(`/proc/self/fd/${fd}`) !== path) return [];
      const flags = /^flags:\s*([0-7]+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, 'latin1'))?.[1] ?? '0';
      return [Number.parseInt(flags, 8)];
    } catch {
      return []; // closed meanwhile
    }
  });
}

test('the layout of the region is what connection.c says', () => {
  const source = readFileSync(new URL('../../native-deps/fuse-kernel/connection.c', import.meta.url), 'utf8');
  const number = (name: string): number => {
    const factors = new RegExp(`#define ${name} \\(?([\\du* ]+)`).exec(source)?.[1] ?? '';
    return factors.split('*').reduce((product, each) => product * Number.parseInt(each, 10), 1);
  };
  const words = [...(/enum \{([^}]+)\}/.exec(source)?.[1] ?? '').matchAll(/^ +(ITEM_\w+)/gm)].map(
    ([, name = '']) => name,
  );

  expect(Object.entries(N).filter(([name]) => name.startsWith('ITEM_'))).toEqual(
    expect.arrayContaining(words.map((name, i) => [name, i])),
  );
  expect(words).toHaveLength(N.ITEM_WORDS + 1);
  expect(Number(/#define TAKEN (0x\w+)u/.exec(source)?.[1])).toBe(N.TAKEN);
  expect(['BATCH_MAX', 'SMALL_BYTES', 'PAYLOAD_MAX', 'PIECES_MAX'].map(number)).toEqual([
    ...[N.BATCH_MAX, N.SMALL_SLOT_BYTES, N.PAYLOAD_BYTES_MAX, N.PIECES_MAX],
  ]);
  expect(number('PAGE') + number('PAYLOAD_MAX')).toBe(N.SCRATCH_BYTES);
});

testUnless(missing)(
  "a connection that cannot be opened leaves the descriptor to whoever has it, and closes nobody else's",
  async () => {
    const addon = N.loadKernelAddon();
    const nothing = (): void => {};

    /** Whether a file that took the number of the device is still there; null where another thread's took it. */
    async function inItsPlace(): Promise<boolean | null> {
      const [device = -1, peer = -1] = addon.socketPair();
      // What is no function cannot be kept: it is seen when everything else is there.
      const result = addon.openConnection(device, 32, 2, 0xffffffff, nothing, nothing, 0 as never);
      expect(result).toBe(-constants.errno.ENOMEM);
      addon.closeDescriptor(device);
      const file = openSync(UNCACHED, 'r');
      await new Promise((resume) => setTimeout(resume, 50));
      const isThere = file === device ? fstatSync(file).isFile() : null;
      closeSync(file);
      addon.closeDescriptor(peer);
      return isThere;
    }

    let isThere: boolean | null = null;
    for (let tries = 0; tries < 100 && isThere === null; tries++) isThere = await inItsPlace();
    expect(isThere).toBe(true);
  },
);

testUnless(missing)(
  'what the pool is to read is no descriptor of the programs that are started meanwhile',
  async () => {
    const addon = N.loadKernelAddon();
    // In the place of the kernel's device: it takes any reply.
    const [device = -1, peer = -1] = addon.socketPair();
    const nothing = (): void => {};
    const connection = addon.openConnection(device, 32, 2, 0xffffffff, nothing, nothing, nothing) as N.AddonConnection;
    const file = openSync(UNCACHED, 'r');
    const busy = Array.from({ length: BUSY }, () => new Promise((done) => pbkdf2('', '', 50_000, 64, 'sha512', done)));

    const sent = new Promise((done) => {
      expect(connection.sendPieces(2, 0, [Float64Array.of(file, 0, 16)], done)).toBe(1);
    });
    const flags = flagsOf(UNCACHED);

    expect(flags).toHaveLength(2);
    for (const each of flags) expect(each & O_CLOEXEC).toBe(O_CLOEXEC);
    expect(await sent).toBe(0);
    await Promise.all(busy);
    expect(flagsOf(UNCACHED)).toHaveLength(1);
    connection.close();
    closeSync(file);
    addon.closeDescriptor(peer);
  },
);

testUnless(missing)(
  'a reading that fails is tried once more, and what it says then is how the connection ended',
  async () => {
    const addon = N.loadKernelAddon();
    // In the place of the kernel's device. Closed with a reply that it has not read, it says ECONNRESET once and then that there is no more: unix(7).
    const [device = -1, peer = -1] = addon.socketPair();
    const nothing = (): void => {};
    let connection: N.AddonConnection | null = null;
    const ended = new Promise((resolve) => {
      connection = addon.openConnection(device, 32, 2, 0xffffffff, nothing, nothing, resolve) as N.AddonConnection;
    });
    const file = openSync(UNCACHED, 'r');
    const sent = new Promise((done) => connection?.sendPieces(2, 0, [Float64Array.of(file, 0, 16)], done));
    expect(await sent).toBe(0);

    addon.closeDescriptor(peer);

    expect(await ended).toBe(constants.errno.EIO);
    closeSync(file);
  },
);

testUnless(missing)(
  'a connection that another thread gives up ends in order where its own thread is back and asks for more',
  async () => {
    const addon = N.loadKernelAddon();
    const [device = -1, peer = -1] = addon.socketPair();
    const nothing = (): void => {};
    const request = new Uint32Array(N.SMALL_SLOT_BYTES / 4 + 1); // long: there are two large slots
    request.set([request.byteLength, 1]); // fuse_in_header: length, FUSE_LOOKUP
    const [held, said]: [number[], number[]] = [[], []];

    const ended = new Promise((resolve) => {
      const hold = (): void => {
        const item = new Uint32Array(connection.region, 0, N.ITEM_WORDS);
        [item[N.ITEM_REPLY], item[N.ITEM_HELD]] = [N.TAKEN, 1];
        held.push(item[N.ITEM_SLOT] ?? 0);
        writeSync(peer, request);
        // The third finds no slot. It is seen in this turn or in the next: only then does it not read until a slot is given back, and polls anew.
        if (held.length === 2) setImmediate(() => setImmediate(askForMore));
      };
      const askForMore = (): void => {
        said.push(addon.abandonDescriptor(device), connection.send(connection.scratchStart, 16));
        for (const [large, slot] of held.entries()) connection.release(slot, large + 1);
      };
      const connection = addon.openConnection(device, 32, 2, 0xffffffff, hold, nothing, resolve) as N.AddonConnection;
      writeSync(peer, request);
    });

    expect(await ended).toBe(constants.errno.EINVAL);
    expect(said).toEqual([0, -constants.errno.ENOTCONN]);
    addon.closeDescriptor(peer);
  },
);

testUnless(missing)('a notification sets its row in the region to 0 when it is written', async () => {
  const addon = N.loadKernelAddon();
  const memory = openSync(join(mkdtempSync(join(tmpdir(), 'cfs-memory-')), 'memory'), 'w+');
  ftruncateSync(memory, 4096);
  // In the place of the kernel's device: it takes any notification.
  const [device = -1, peer = -1] = addon.socketPair();
  const nothing = (): void => {};
  const connection = addon.openConnection(device, 64, 2, 0xffffffff, nothing, nothing, nothing, memory, 4096);
  if (typeof connection === 'number') throw new Error(`errno ${connection}`);
  const { recordsStart, scratchStart, region } = connection;
  const rows = new Float64Array(region, recordsStart, 3).fill(7);
  const notify = (row: number): number => connection.notify(scratchStart, 16, 10, row);

  expect([notify(0), notify(recordsStart + 8)]).toEqual([1, 1]);
  await vi.waitUntil(() => connection.counts()[0] === 2, { timeout: 30_000, interval: 5 });

  expect([...rows]).toEqual([7, 0, 7]);
  expect([recordsStart + 4, region.byteLength].map(notify), 'no place for a number').toEqual([0, 0]);
  connection.close();
  closeSync(memory);
  addon.closeDescriptor(peer);
});

const INHERITED = [
  {
    isResent: false,
    inherited: [
      [10, true, 4980, 1],
      [20, true, 10, 1],
      [50, true, 0, 1],
    ],
    free: [61, 1],
  },
  { isResent: true, inherited: [[50, true, 0, 1]], free: [63, 2] },
];

test.skipIf(missing !== null).each(INHERITED)(
  'requests without a reply are inherited in the order of the kernel, with their bytes (sent again: $isResent)',
  async ({ isResent, inherited, free }) => {
    const addon = N.loadKernelAddon();
    const memory = openSync(join(mkdtempSync(join(tmpdir(), 'cfs-memory-')), 'memory'), 'w+');
    ftruncateSync(memory, 4096);
    const nothing = (): void => {};
    const opened = (fd: number, onBatch: (count: number) => void): N.AddonConnection =>
      addon.openConnection(fd, 64, 2, 0xffffffff, onBatch, nothing, nothing, memory, 4096) as N.AddonConnection;
    const [device = -1, peer = -1] = addon.socketPair();
    /** fuse_in_header: length, opcode, unique; and a text. */
    const request = (unique: number, bytes: number, opcode: number = Opcode.LOOKUP): Uint32Array => {
      const words = new Uint32Array(bytes / 4).fill(unique);
      words.set([bytes, opcode, unique, 0]);
      return words;
    };
    const itemsOf = (region: ArrayBuffer, count: number): Uint32Array[] =>
      Array.from({ length: count }, (_, i) => new Uint32Array(region, i * N.ITEM_WORDS * 4, N.ITEM_WORDS));

    // Served: 30 and 60 are answered, and so is 40, whose slot is still in use. 50 takes none: the kernel never sends it again. 10 and 20 wait, of which 10 is long.
    const [small, long, answered] = [request(20, 120), request(10, 20_000), request(30, 80)];
    const more = [long, answered, request(40, 80), request(50, 80, Opcode.FORGET), request(60, 80)];
    /** From where the reply is encoded to where the request is. */
    const distances: number[] = [];
    let seen = 0;
    const first = await new Promise<N.AddonConnection>((resume) => {
      const connection = opened(device, (count) => {
        for (const item of itemsOf(connection.region, count)) {
          const [, , unique] = new Uint32Array(connection.region, item[N.ITEM_REQUEST], 3);
          [item[N.ITEM_REPLY], item[N.ITEM_HELD]] = [N.TAKEN, unique === 30 || unique === 60 ? 0 : 1];
          distances.push((item[N.ITEM_REQUEST] as number) - (item[N.ITEM_OUT] as number));
          if (unique === 40) connection.answered(item[N.ITEM_SLOT] as number);
          const next = more[seen++];
          if (next === undefined) setImmediate(() => resume(connection));
          else writeSync(peer, next);
        }
      });
      writeSync(peer, small);
    });
    expect(Math.min(...distances), 'no reply is encoded over a request').toBeGreaterThanOrEqual(N.SMALL_SLOT_BYTES);
    // A process that is killed while the kernel copies gets no new pages.
    expect(fstatSync(memory).blocks * 512, 'both slots were mapped before the read').toBeGreaterThan(
      N.PAYLOAD_BYTES_MAX,
    );
    first.close();
    addon.closeDescriptor(peer);

    const [device2 = -1, peer2 = -1] = addon.socketPair();
    const found: unknown[] = [];
    const second = opened(device2, (count) => {
      for (const item of itemsOf(second.region, count)) {
        const words = new Uint32Array(second.region, item[N.ITEM_REQUEST], 20);
        const rest = new Uint32Array(second.region, item[N.ITEM_DATA], ((words[0] as number) - 80) / 4);
        found.push([words[2], rest.every((word) => word === words[2]), rest.length, item[N.ITEM_INHERITED]]);
        [item[N.ITEM_REPLY], item[N.ITEM_HELD]] = [N.TAKEN, 1];
      }
    });
    expect(second.inherit(isResent)).toBe(inherited.length);
    expect(found).toEqual(inherited);
    expect(second.counts().slice(4, 6), 'their slots are in use').toEqual(free);
    second.close();
    addon.closeDescriptor(peer2);
    closeSync(memory);
  },
);

testUnless(missing)('a slot that is released twice is given back once', async () => {
  const addon = N.loadKernelAddon();
  const [device = -1, peer = -1] = addon.socketPair();
  const nothing = (): void => {};
  const request = new Uint32Array(N.SMALL_SLOT_BYTES / 4 + 1); // more than a small slot holds
  request.set([request.byteLength, 1]); // fuse_in_header: length, FUSE_LOOKUP
  const held: [slot: number, large: number][] = [];
  const free = (): number[] => connection.counts().slice(4, 6);

  let connection!: N.AddonConnection;
  await new Promise<void>((resume) => {
    const hold = (): void => {
      const item = new Uint32Array(connection.region, 0, N.ITEM_WORDS);
      [item[N.ITEM_REPLY], item[N.ITEM_HELD]] = [N.TAKEN, 1];
      held.push([item[N.ITEM_SLOT] ?? 0, item[N.ITEM_LARGE] ?? 0]);
      if (held.length === 1)
        writeSync(peer, request.subarray(0, 20).fill(80, 0, 1)); // a small one
      else setImmediate(resume);
    };
    connection = addon.openConnection(device, 32, 2, 0xffffffff, hold, nothing, nothing) as N.AddonConnection;
    writeSync(peer, request);
  });
  const [[slot, large], [other]] = held as [[number, number], [number, number]];
  expect([large > 0, held[1]?.[1], free()]).toEqual([true, 0, [30, 1]]);

  connection.release(slot, 0);
  connection.release(other, large);
  expect(free(), 'slots of two requests are no pair').toEqual([30, 1]);
  connection.release(slot, large);
  connection.release(slot, large);
  expect(free(), 'the small slot of the other request is still out').toEqual([31, 2]);
  connection.release(other, 0);
  expect(free()).toEqual([32, 2]);
  connection.close();
  addon.closeDescriptor(peer);
});

testUnless(missing)('a slice of a file with a number that is none, or of no file, is refused', () => {
  const addon = N.loadKernelAddon();
  const [device = -1, peer = -1] = addon.socketPair();
  const nothing = (): void => {};
  const connection = addon.openConnection(device, 32, 2, 0xffffffff, nothing, nothing, nothing) as N.AddonConnection;
  const file = openSync(UNCACHED, 'r');
  const refusal = (...pieces: Float64Array[]): number => connection.sendPieces(2, 0, pieces, nothing);

  const bad = [Number.NaN, -1, Number.POSITIVE_INFINITY, 2 ** 53];
  for (const number of bad) {
    expect(refusal(Float64Array.of(number, 0, 16)), `descriptor ${number}`).toBe(-constants.errno.EINVAL);
    expect(refusal(Float64Array.of(file, number, 16)), `position ${number}`).toBe(-constants.errno.EINVAL);
    // Two of them: as integers, their sum may be a length that is allowed.
    const piece = Float64Array.of(file, 0, number);
    expect(refusal(piece, piece), `length ${number}`).toBe(-constants.errno.EINVAL);
  }
  connection.close();
  closeSync(file);
  addon.closeDescriptor(peer);
});

testUnless(missing)('a message with two descriptors in place of one is refused, and both are closed', async () => {
  const addon = N.loadKernelAddon();
  const folder = mkdtempSync(join(tmpdir(), 'cfs-descriptors-'));
  const sender = join(folder, 'send-descriptors');
  await runCommand([
    process.env.CC ?? 'cc',
    '-Wall',
    '-o',
    sender,
    new URL('./send-descriptors.c', import.meta.url).pathname,
  ]);
  const given = join(folder, 'given');
  writeFileSync(given, '');

  /** What arrives when so many descriptors of `given` are sent. */
  async function received(count: number): Promise<number> {
    const [here = -1, there = -1] = addon.socketPair();
    const { status } = spawnSync(sender, [String(count), given], { stdio: ['ignore', 'inherit', 'inherit', there] });
    expect(status).toBe(0);
    addon.closeDescriptor(there);
    const result = addon.receiveDescriptor(here);
    addon.closeDescriptor(here);
    return result;
  }

  const one = await received(1);
  expect(one).toBeGreaterThan(2);
  expect(flagsOf(given)).toHaveLength(1);
  addon.closeDescriptor(one);
  expect(await received(2)).toBe(-constants.errno.ENOTCONN);
  expect(await received(0), 'a byte without a descriptor').toBe(-constants.errno.ENOTCONN);
  expect(flagsOf(given), 'nothing of it stays open').toEqual([]);
  rmSync(folder, { recursive: true });
});
