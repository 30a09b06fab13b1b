import { expect, test, vi } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import { type ContentId, type HandleId, type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import type { FileSystemOps } from '../../src/kernel/binding.ts';
import { HANDOVER_BYTES, HandoverState } from '../../src/kernel/handover-state.ts';
import { KernelInvalidator } from '../../src/kernel/invalidate.ts';
import {
  type AddonConnection,
  ITEM_ERRNO,
  ITEM_HELD,
  ITEM_INHERITED,
  ITEM_OUT,
  ITEM_REQUEST,
  ITEM_SLOT,
  SCRATCH_BYTES,
} from '../../src/kernel/kernel-addon.ts';
import { LinuxSession } from '../../src/kernel/linux-session.ts';
import { NodeIds } from '../../src/kernel/node-ids.ts';
import { OpBoundary } from '../../src/kernel/op-boundary.ts';
import {
  IN_HEADER_BYTES,
  IN_NODEID,
  IN_OPCODE,
  IN_UNIQUE,
  Opcode,
  OUT_HEADER_BYTES,
} from '../../src/kernel/protocol.ts';
import { Wire } from '../../src/kernel/wire.ts';
import { ManualClock } from './manual-clock.ts';
import { MemoryFileSystem } from './memory-file-system.ts';

/** Behind the control words. */
const SLOT = 4096;
const ENOENT = 2;
const DEADLINE_MS = 30_000;

/** A session on a region with one request, without a kernel. */
function sessionOf(
  ops: FileSystemOps,
  { nodeIds = new NodeIds(), handover = null }: { nodeIds?: NodeIds; handover?: HandoverState | null } = {},
) {
  const region = new ArrayBuffer(2 * SLOT + SCRATCH_BYTES);
  const [wire, clock] = [new Wire(region), new ManualClock()];
  const done: string[] = [];
  /** Where the addon writes that a notification is written. */
  const unwritten: number[] = [];
  const connection = {
    ...{ region, scratchStart: 2 * SLOT },
    notify: (at: number, _length: number, _max: number, row: number) => {
      const [offset, length] = [wire.i64(at + OUT_HEADER_BYTES + 8), wire.i64(at + OUT_HEADER_BYTES + 16)];
      unwritten.push(row);
      return done.push(`invalidate ${offset} ${length}`);
    },
    send: () => done.push('send') - 1,
    release: (slot: number, large: number) => void done.push(`release ${slot} ${large}`),
    answered: (slot: number) => void done.push(`answered ${slot}`),
    // The bytes of the file are not in the page cache: the pool answers.
    sendPieces: (_low: number, _high: number, _pieces: unknown, sent: (errno: number) => void) => {
      setImmediate(() => {
        done.push('pool');
        sent(0);
      });
      return 1;
    },
  } as unknown as AddonConnection;
  const session = new LinuxSession({
    ...{ ops, connection, wire, nodeIds, smallSlots: 32, largeSlots: 2, handover },
    boundary: new OpBoundary({ log: silentLogger, clock, deadlineMs: DEADLINE_MS }),
    invalidator: new KernelInvalidator({
      ...{ connection, wire, nodeIds, clock, messageStart: 2048, canExpire: () => true },
    }),
    callerState: () => 'running' as never,
    agree: () => 0,
  });
  for (const word of [ITEM_REQUEST, ITEM_OUT]) wire.setU32(word * 4, SLOT);
  /** @param bytes of the request behind its header */
  const request = (opcode: number, nodeId: number, bytes: number): void => {
    wire.setU32(SLOT, IN_HEADER_BYTES + bytes);
    wire.setU32(SLOT + IN_OPCODE, opcode);
    wire.setU64(SLOT + IN_NODEID, nodeId);
  };
  return { session, wire, clock, done, unwritten, request };
}

test.each([
  { what: 'a lookup', opcode: Opcode.LOOKUP, then: (at: number, wire: Wire) => wire.bytes.write('file\0', at) },
  { what: 'a listing', opcode: Opcode.READDIRPLUS, then: (at: number, wire: Wire) => wire.setU32(at + 16, 4096) },
])('a number that $what gave out and the kernel did not hear of is let go of', async ({ opcode, then }) => {
  const nodeIds = new NodeIds();
  const ops = new MemoryFileSystem();
  const file = ops.plant(ROOT_INODE, 'file', Buffer.from('x')) as Inode;
  const { session, wire, request } = sessionOf(ops, { nodeIds });
  // Somebody reads it as it was; its name leads to another number.
  let isOpen = true;
  nodeIds.replace(file, () => (isOpen ? ({} as never) : null));
  const successor = nodeIds.currentOf(file);
  request(opcode, ROOT_INODE, opcode === Opcode.LOOKUP ? 5 : 40);
  then(SLOT + IN_HEADER_BYTES, wire);

  session.batch(1);
  wire.setU32(ITEM_ERRNO * 4, ENOENT);
  session.unsent(1);
  isOpen = false;
  nodeIds.forgotten(file, 1);

  expect(ops.lookups).toBe(0);
  expect([nodeIds.currentOf(file), nodeIds.inodeOf(successor)]).toEqual([file, successor]);
});

// OPEN with O_TRUNC: carried out again, it would store the emptied file of the handle that is released.
test.each([
  { what: 'has', isLost: false, calls: [] },
  { what: 'has lost', isLost: true, calls: ['release 7', 'open'] },
])(
  'a resent OPEN gets the handle that a predecessor opened for it, if the file system $what it',
  ({ isLost, calls }) => {
    const unique = 4712;
    const state = new ArrayBuffer(HANDOVER_BYTES);
    const dead = new HandoverState(state, 0, 0);
    dead.begin({ opcode: Opcode.OPEN, unique, nodeId: 5 });
    dead.opened({
      ...{ handle: 7 as HandleId, ino: 5 as Inode, kind: 'file', flags: 0, content: 3 as ContentId },
      ...{ hasChanged: false, isUnstored: false },
    });
    const done: string[] = [];
    const reply = (handle: number) => ({ handle: handle as HandleId, keepCache: false, directIo: false });
    const ops = {
      reopened: (_ino: Inode, handle: HandleId) => (isLost ? null : reply(handle)),
      release: (_ino: Inode, handle: HandleId) => void done.push(`release ${handle}`),
      open: () => {
        done.push('open');
        return reply(8);
      },
    } as unknown as FileSystemOps;
    const { session, wire, request } = sessionOf(ops, { handover: new HandoverState(state, 0, 1) });
    request(Opcode.OPEN, 5, 8);
    wire.setU32(SLOT + IN_UNIQUE, unique);
    wire.setU32(SLOT + IN_UNIQUE + 4, 0x8000_0000);
    session.batch(1);

    expect(done).toEqual(calls);
    expect(wire.u64(SLOT + OUT_HEADER_BYTES)).toBe(isLost ? 8 : 7);
  },
);

test.each([
  { what: 'a lookup of this process', opcode: Opcode.LOOKUP, isInherited: 0, lookups: 0 },
  { what: 'a listing of this process', opcode: Opcode.READDIRPLUS, isInherited: 0, lookups: 0 },
  // The earlier process may have answered it: then the kernel has the number.
  { what: 'a lookup of an earlier process', opcode: Opcode.LOOKUP, isInherited: 1, lookups: 1 },
  { what: 'a listing of an earlier process', opcode: Opcode.READDIRPLUS, isInherited: 1, lookups: 1 },
])('$what is taken back only if no other process can have answered it', ({ opcode, isInherited, lookups }) => {
  const ops = new MemoryFileSystem();
  ops.plant(ROOT_INODE, 'file', Buffer.from('x'));
  const { session, wire, request } = sessionOf(ops);
  request(opcode, ROOT_INODE, opcode === Opcode.LOOKUP ? 5 : 40);
  if (opcode === Opcode.LOOKUP) wire.bytes.write('file\0', SLOT + IN_HEADER_BYTES);
  else wire.setU32(SLOT + IN_HEADER_BYTES + 16, 4096);
  wire.setU32(ITEM_INHERITED * 4, isInherited);

  session.batch(1);
  wire.setU32(ITEM_ERRNO * 4, ENOENT);
  session.unsent(1);

  expect(ops.lookups).toBe(lookups);
});

test.each([
  { how: 'resends', keepsRequests: false, held: 0, done: ['send'] },
  { how: 'does not resend', keepsRequests: true, held: 1, done: ['send', 'release 3 0'] },
])('a request that waits keeps its slot until it is answered if the kernel $how requests', async (expected) => {
  const { keepsRequests, held } = expected;
  const handover = new HandoverState(new ArrayBuffer(HANDOVER_BYTES), 0, 0);
  handover.keepsRequests = keepsRequests;
  let answer = (_text: string): void => {};
  const readlink = () =>
    new Promise<string>((resolve) => {
      answer = resolve;
    });
  const { session, wire, request, done } = sessionOf({ readlink } as unknown as FileSystemOps, { handover });
  request(Opcode.READLINK, 5, 0);
  wire.setU32(ITEM_SLOT * 4, 3);

  session.batch(1);
  expect([wire.u32(ITEM_HELD * 4), done]).toEqual([held, []]);
  answer('target');
  await vi.waitUntil(() => done.length > 0);

  expect(done).toEqual(expected.done);
});

test.each([
  { how: 'resends', keepsRequests: false, held: 0, done: ['pool'] },
  { how: 'does not resend', keepsRequests: true, held: 1, done: ['pool', 'release 3 0'] },
])(
  'a read that a thread of the pool answers keeps its slot until then if the kernel $how requests',
  async (expected) => {
    const { keepsRequests, held } = expected;
    const handover = new HandoverState(new ArrayBuffer(HANDOVER_BYTES), 0, 0);
    handover.keepsRequests = keepsRequests;
    const read = () => [{ fd: 0, position: 0, length: 4096 }];
    const { session, wire, request, done } = sessionOf({ read } as unknown as FileSystemOps, { handover });
    request(Opcode.READ, 5, 40);
    wire.setU32(SLOT + IN_HEADER_BYTES + 16, 4096);
    wire.setU32(ITEM_SLOT * 4, 3);

    session.batch(1);
    expect([wire.u32(ITEM_HELD * 4), done]).toEqual([held, []]);
    await vi.waitUntil(() => done.length > 0);

    expect(done).toEqual(expected.done);
  },
);

test('a successor does not repeat a write that timed out, although its slot still has the bytes', async () => {
  const handover = new HandoverState(new ArrayBuffer(HANDOVER_BYTES), 0, 0);
  handover.keepsRequests = true;
  let end = (): void => {};
  const write = () =>
    new Promise<number>((resolve) => {
      end = () => resolve(1);
    });
  const { session, wire, clock, request, done } = sessionOf({ write } as unknown as FileSystemOps, { handover });
  request(Opcode.WRITE, 5, 40);
  wire.setU32(ITEM_SLOT * 4, 3);

  session.batch(1);
  clock.advance(DEADLINE_MS + 1);
  await vi.waitUntil(() => done.length > 0);
  expect(done).toEqual(['send', 'answered 3']);
  end();
  await vi.waitUntil(() => done.length > 2);

  expect(done).toEqual(['send', 'answered 3', 'release 3 0']);
});

/** A program opens the file to write, and another one opens it and reads the third page; then a write to that page arrives. */
function writeAfterRead(expected: { keepCache: boolean; isWriter: boolean; isLater: boolean; isCrowded?: boolean }) {
  const ops = {
    open: () => ({ handle: 7, keepCache: expected.keepCache, directIo: false }),
    read: () => Buffer.from('b'),
    write: () => (expected.isLater ? Promise.resolve() : undefined),
    release: () => undefined,
  } as unknown as FileSystemOps;
  const of = sessionOf(ops);
  const { session, wire, request, done } = of;
  // As if the addon had not written many notifications of this kind yet.
  if (expected.isCrowded === true) for (let at = 3072; at < SLOT; at += 8) wire.setU64(at, 1);
  const body = SLOT + IN_HEADER_BYTES;
  const send = (opcode: number, ...numbers: readonly [place: number, value: number][]) => {
    request(opcode, 5, 40 + 12);
    for (const [place, value] of numbers) wire.setU32(body + place, value);
    session.batch(1);
  };
  const [O_RDONLY, O_WRONLY] = [0, 1];
  send(Opcode.OPEN, [0, O_WRONLY]);
  if (!expected.isWriter) send(Opcode.RELEASE, [8, O_WRONLY]);
  send(Opcode.OPEN, [0, O_RDONLY]);
  send(Opcode.READ, [8, 8192], [12, 0], [16, 4096]);
  expect(done).toEqual([]);
  send(Opcode.WRITE, [8, 8193], [12, 0], [16, 12]);
  return of;
}

test.each([
  { what: 'dropped', keepCache: false, isWriter: true, isLater: false, drops: true },
  { what: 'dropped, with a write that takes longer', keepCache: false, isWriter: true, isLater: true, drops: true },
  { what: 'kept', keepCache: true, isWriter: true, isLater: false, drops: false },
  { what: 'dropped while nobody could write', keepCache: false, isWriter: false, isLater: false, drops: false },
])(
  'pages that another program reads before a write arrives are dropped once more before the reply if they were $what: $drops',
  async (expected) => {
    const { wire, clock, done, unwritten } = writeAfterRead(expected);
    if (!expected.drops) {
      expect(done).toEqual([]);
      return;
    }
    await vi.waitUntil(() => done.length > 0);
    clock.advance(100);
    await new Promise((resolve) => setImmediate(resolve));
    expect(done).toEqual(['invalidate 8192 4096']);
    for (const row of unwritten) wire.setU64(row, 0);
    clock.advance(1);
    await vi.waitUntil(() => done.includes('send'));
  },
);

test('a reply to a write does not wait for a page longer than a second', async () => {
  const { clock, done } = writeAfterRead({ keepCache: false, isWriter: true, isLater: false });
  for (let ms = 0; ms < 1_100; ms += 100) {
    expect(done).toEqual(['invalidate 8192 4096']);
    clock.advance(100);
    await new Promise((resolve) => setImmediate(resolve));
    if (done.includes('send')) break;
  }
  expect(done[1]).toBe('send');
});

test('a reply to a write does not wait for a notification of which the addon cannot say when it is written', async () => {
  const { done } = writeAfterRead({ keepCache: false, isWriter: true, isLater: false, isCrowded: true });
  await vi.waitUntil(() => done.includes('send'));

  expect(done.slice(0, 2)).toEqual(['invalidate 8192 4096', 'send']);
});
