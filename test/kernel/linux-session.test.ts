import { expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import { type ContentId, type HandleId, type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import type { FileSystemOps } from '../../src/kernel/binding.ts';
import { HANDOVER_BYTES, HandoverState } from '../../src/kernel/handover-state.ts';
import { KernelInvalidator } from '../../src/kernel/invalidate.ts';
import {
  type AddonConnection,
  ITEM_ERRNO,
  ITEM_OUT,
  ITEM_REQUEST,
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

test.each([
  { what: 'a lookup', opcode: Opcode.LOOKUP, then: (at: number, wire: Wire) => wire.bytes.write('file\0', at) },
  { what: 'a listing', opcode: Opcode.READDIRPLUS, then: (at: number, wire: Wire) => wire.setU32(at + 16, 4096) },
])('a number that $what gave out and the kernel did not hear of is let go of', async ({ opcode, then }) => {
  const region = new ArrayBuffer(2 * SLOT + SCRATCH_BYTES);
  const connection = { region, scratchStart: 2 * SLOT, notify: () => 1, send: () => 0 } as unknown as AddonConnection;
  const [wire, clock, nodeIds] = [new Wire(region), new ManualClock(), new NodeIds()];
  const boundary = new OpBoundary({ log: silentLogger, clock, deadlineMs: 30_000 });
  const ops = new MemoryFileSystem();
  const file = ops.plant(ROOT_INODE, 'file', Buffer.from('x')) as Inode;
  const session = new LinuxSession({
    ...{ ops, boundary, connection, wire, nodeIds, smallSlots: 32, largeSlots: 2 },
    invalidator: new KernelInvalidator({
      ...{ connection, wire, nodeIds, clock, messageStart: 2048, hasEpoch: () => false, placeOf: () => null },
    }),
    callerState: () => 'running' as never,
    agree: () => 0,
  });
  // Somebody reads it as it was; its name leads to another number.
  let isOpen = true;
  nodeIds.replace(file, () => (isOpen ? ({} as never) : null));
  const successor = nodeIds.currentOf(file);
  wire.setU32(SLOT, IN_HEADER_BYTES + (opcode === Opcode.LOOKUP ? 5 : 40));
  wire.setU32(SLOT + IN_OPCODE, opcode);
  wire.setU64(SLOT + IN_NODEID, ROOT_INODE);
  then(SLOT + IN_HEADER_BYTES, wire);
  for (const word of [ITEM_REQUEST, ITEM_OUT]) wire.setU32(word * 4, SLOT);

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
    dead.begin({ opcode: Opcode.OPEN, uniqueLow: unique, uniqueTop: 0, unique, nodeId: 5 });
    dead.opened({
      ...{ handle: 7 as HandleId, ino: 5 as Inode, kind: 'file', flags: 0, content: 3 as ContentId },
      ...{ hasChanged: false, isUnstored: false },
    });
    const region = new ArrayBuffer(2 * SLOT + SCRATCH_BYTES);
    const connection = { region, scratchStart: 2 * SLOT, notify: () => 1, send: () => 0 } as unknown as AddonConnection;
    const [wire, clock, nodeIds] = [new Wire(region), new ManualClock(), new NodeIds()];
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
    const session = new LinuxSession({
      ...{ ops, connection, wire, nodeIds, smallSlots: 32, largeSlots: 2 },
      boundary: new OpBoundary({ log: silentLogger, clock, deadlineMs: 30_000 }),
      invalidator: new KernelInvalidator({
        ...{ connection, wire, nodeIds, clock, messageStart: 2048, hasEpoch: () => false, placeOf: () => null },
      }),
      callerState: () => 'running' as never,
      agree: () => 0,
      handover: new HandoverState(state, 0, 1),
    });
    wire.setU32(SLOT, IN_HEADER_BYTES + 8);
    wire.setU32(SLOT + IN_OPCODE, Opcode.OPEN);
    wire.setU32(SLOT + IN_UNIQUE, unique);
    wire.setU32(SLOT + IN_UNIQUE + 4, 0x8000_0000);
    wire.setU64(SLOT + IN_NODEID, 5);
    for (const word of [ITEM_REQUEST, ITEM_OUT]) wire.setU32(word * 4, SLOT);
    session.batch(1);

    expect(done).toEqual(calls);
    expect(wire.u64(SLOT + OUT_HEADER_BYTES)).toBe(isLost ? 8 : 7);
  },
);
