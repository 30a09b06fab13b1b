import { constants } from 'node:fs';
import { expect, test } from 'vitest';
import type { FileSystemOps, WritePlace } from '../../src/kernel/binding.ts';
import { NodeIds } from '../../src/kernel/node-ids.ts';
import { IN_HEADER_BYTES, IN_NODEID, IN_OPCODE, Opcode } from '../../src/kernel/protocol.ts';
import { Request } from '../../src/kernel/request.ts';
import { RequestReader } from '../../src/kernel/request-reader.ts';
import { Wire } from '../../src/kernel/wire.ts';

const { O_APPEND, O_RDWR, O_SYNC, O_WRONLY } = constants;

/** fuse_write_in.write_flags (linux/fuse.h) */
const FUSE_WRITE_CACHE = 1;
const FUSE_WRITE_LOCKOWNER = 2;

/** Where a WRITE belongs that came with these flags. */
function placeOf(writeFlags: number, flags: number): WritePlace | undefined {
  const region = new ArrayBuffer(4096);
  const wire = new Wire(region);
  const view = new DataView(region);
  wire.setU32(IN_OPCODE, Opcode.WRITE);
  wire.setU64(IN_NODEID, 1);
  // struct fuse_write_in: fh, offset, size, write_flags, lock_owner, flags
  view.setBigUint64(IN_HEADER_BYTES, 7n, true);
  view.setBigUint64(IN_HEADER_BYTES + 8, 100n, true);
  view.setUint32(IN_HEADER_BYTES + 16, 4, true);
  view.setUint32(IN_HEADER_BYTES + 20, writeFlags, true);
  view.setUint32(IN_HEADER_BYTES + 32, flags, true);
  const calls: unknown[][] = [];
  const ops = { write: (...call: unknown[]) => calls.push(call) } as unknown as FileSystemOps;
  const nothing = (): void => {};
  const makeWriter = (): never => {
    throw new Error('nothing is listed');
  };
  const reader = new RequestReader({ ops, wire, makeWriter, attributesChanged: nothing, bytesChanged: nothing });

  void reader.call(new Request(wire, 0, new NodeIds(), 0), 0, 1024, false);
  const [call = []] = calls;
  expect(call.slice(0, 4)).toMatchObject([1, 7, 100, { length: 4 }]);
  return call[5] as WritePlace | undefined;
}

test('what a descriptor writes that appends now belongs at the end, what a shared mapping wrote never', () => {
  expect(placeOf(0, O_RDWR | O_APPEND)).toBe('end');
  expect(placeOf(FUSE_WRITE_LOCKOWNER, O_WRONLY | O_APPEND | O_SYNC)).toBe('end');
  expect(placeOf(0, O_RDWR)).toBe('offset');
  expect(placeOf(FUSE_WRITE_CACHE, 0)).toBe('offset');
  expect(placeOf(FUSE_WRITE_CACHE | FUSE_WRITE_LOCKOWNER, O_RDWR | O_APPEND)).toBe('offset');
});
