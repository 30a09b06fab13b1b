import { constants } from 'node:fs';
import { expect, test } from 'vitest';
import { FsError } from '../../src/base/errors.ts';
import type { Inode } from '../../src/base/vocabulary.ts';
import type { Answer, FileSystemOps, WritePlace } from '../../src/kernel/binding.ts';
import { NodeIds } from '../../src/kernel/node-ids.ts';
import {
  IN_HEADER_BYTES,
  IN_LENGTH,
  IN_NODEID,
  IN_OPCODE,
  IN_PID,
  Opcode,
  XATTR_CREATE,
  XATTR_REPLACE,
} from '../../src/kernel/protocol.ts';
import { Request } from '../../src/kernel/request.ts';
import { RequestReader } from '../../src/kernel/request-reader.ts';
import { Wire } from '../../src/kernel/wire.ts';

const { O_APPEND, O_RDWR, O_SYNC, O_WRONLY } = constants;

/** fuse_write_in.write_flags (linux/fuse.h) */
const FUSE_WRITE_CACHE = 1;
const FUSE_WRITE_LOCKOWNER = 2;

/** What setxattr(2) with both of its flags is told about `name`. */
async function toldForBoth(name: string, getxattr: (name: string) => Answer<Uint8Array>): Promise<unknown> {
  const wire = new Wire(new ArrayBuffer(4096));
  wire.setU32(IN_LENGTH, IN_HEADER_BYTES + 8 + name.length + 2);
  wire.setU32(IN_OPCODE, Opcode.SETXATTR);
  wire.setU64(IN_NODEID, 1);
  // struct fuse_setxattr_in: size, flags; then the name and the value
  wire.setU32(IN_HEADER_BYTES, 1);
  wire.setU32(IN_HEADER_BYTES + 4, XATTR_CREATE | XATTR_REPLACE);
  wire.bytes.write(`${name}\0v`, IN_HEADER_BYTES + 8);
  const nothing = (): void => {};
  const ops = {
    setxattr: nothing,
    getxattr: (_ino: Inode, asked: string) => getxattr(asked),
  } as Partial<FileSystemOps>;
  const makeWriter = (): never => {
    throw new Error('nothing is listed');
  };
  const reader = new RequestReader({
    ...{ ops: ops as FileSystemOps, wire, makeWriter, attributesChanged: nothing, bytesChanged: nothing },
  });
  try {
    return await reader.call(new Request(wire, 0, new NodeIds(), 0), 0, 1024, false);
  } catch (error) {
    return (error as FsError).errno;
  }
}

test('an attribute that is to be new and to be there already is neither, and nothing is set', async () => {
  const missing = (): never => {
    throw new FsError('ENODATA');
  };

  expect(await toldForBoth('user.a', () => Buffer.from('x'))).toBe('EEXIST');
  expect(await toldForBoth('user.a', async () => Buffer.from('x'))).toBe('EEXIST');
  expect(await toldForBoth('user.a', missing)).toBe('ENODATA');
});

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

test.each([
  { opcode: Opcode.RENAME, names: 8 },
  { opcode: Opcode.RENAME2, names: 16 },
])('what is moved into a folder that became another one is moved into that (opcode $opcode)', ({ opcode, names }) => {
  const wire = new Wire(new ArrayBuffer(4096));
  const nodeIds = new NodeIds();
  nodeIds.folderRemoved(7 as Inode);
  wire.setU32(IN_LENGTH, IN_HEADER_BYTES + names + 4);
  wire.setU32(IN_OPCODE, opcode);
  wire.setU64(IN_NODEID, 1);
  wire.setU64(IN_HEADER_BYTES, nodeIds.lookedUp(7 as Inode));
  wire.bytes.write('a\0b\0', IN_HEADER_BYTES + names);
  const calls: unknown[][] = [];
  const ops = { rename: (...call: unknown[]) => calls.push(call) } as unknown as FileSystemOps;
  const nothing = (): void => {};
  const reader = new RequestReader({
    ...{ ops, wire, makeWriter: nothing as never, attributesChanged: nothing, bytesChanged: nothing },
  });
  const request = new Request(wire, 0, nodeIds, 0);

  void reader.call(request, 0, 1024, false);

  expect(calls.map((call) => call.slice(0, 5))).toEqual([[1, 'a', 7, 'b', 'replace']]);
  expect(request.otherNodeid).toBe(7);
});

test('requests of the helper process alone go to its own operations, and never those without a process', () => {
  const answeredBy = (pid: number, helperPid: number | null): unknown => {
    const wire = new Wire(new ArrayBuffer(4096));
    wire.setU32(IN_LENGTH, IN_HEADER_BYTES + 2);
    wire.setU32(IN_OPCODE, Opcode.UNLINK);
    wire.setU64(IN_NODEID, 1);
    wire.setU32(IN_PID, pid);
    wire.bytes.write('x\0', IN_HEADER_BYTES);
    const nothing = (): void => {};
    const answers = (who: string) => ({ unlink: () => who }) as unknown as FileSystemOps;
    const makeWriter = (): never => {
      throw new Error('nothing is listed');
    };
    const helper = { pid: helperPid, ops: answers('helper') };
    const reader = new RequestReader({
      ...{ ops: answers('mount'), helper, wire, makeWriter, attributesChanged: nothing, bytesChanged: nothing },
    });
    return reader.call(new Request(wire, 0, new NodeIds(), 0), 0, 1024, false);
  };

  expect(answeredBy(7, 7)).toBe('helper');
  expect([answeredBy(8, 7), answeredBy(7, null), answeredBy(0, null), answeredBy(0, 7)]).toEqual(
    Array(4).fill('mount'),
  );
});
