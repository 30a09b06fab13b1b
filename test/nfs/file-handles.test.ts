import { describe, expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import { FileHandles } from '../../src/nfs/file-handles.ts';
import { STATUS } from '../../src/nfs/protocol.ts';
import { XdrReader, XdrWriter } from '../../src/nfs/xdr.ts';

const BADHANDLE = { status: STATUS.badhandle };
/** The first and last inodes of groups, and those above 32 bits. */
const INODES = [1, 2, 63, 64, 65, 127, 128, 2 ** 32 - 1, 2 ** 32, 2 ** 32 + 1, 2 ** 53 - 1] as Inode[];

function handleOf(handles: FileHandles, ino: Inode): Buffer {
  const out = new XdrWriter();
  handles.write(out, ino);
  return out.done();
}

function read(handles: FileHandles, handle: Buffer): Inode {
  return handles.read(new XdrReader(handle));
}

describe('file handles', () => {
  test.each(INODES)('the handle of inode %i names it, also in a successor', (ino) => {
    const handles = new FileHandles();
    expect(read(handles, handleOf(handles, ino))).toBe(ino);
    expect(read(new FileHandles(handles.key), handleOf(handles, ino))).toBe(ino);
  });

  test('no two inodes have the same code', () => {
    const handles = new FileHandles();
    const codes = new Set<string>();
    for (let ino = 1; ino <= 1_000; ino++) codes.add(handleOf(handles, ino as Inode).toString('hex', 12));
    expect(codes.size).toBe(1_000);
  });

  test('the code of one inode is refused with every other inode', () => {
    const handles = new FileHandles();
    for (const ino of INODES)
      for (const other of INODES) {
        if (other === ino) continue;
        const forged = Buffer.concat([handleOf(handles, other).subarray(0, 12), handleOf(handles, ino).subarray(12)]);
        expect(() => read(handles, forged), `${other} with the code of ${ino}`).toThrow(
          expect.objectContaining(BADHANDLE),
        );
      }
  });

  test('a handle of another mount, of another length, and of no inode is refused', () => {
    const handles = new FileHandles();
    const handle = handleOf(handles, INODES[0] as Inode);
    expect(() => read(new FileHandles(), handle)).toThrow(expect.objectContaining(BADHANDLE));
    for (const length of [0, 8, 23, 25, 64]) {
      const other = new XdrWriter().opaque(Buffer.concat([handle.subarray(4), Buffer.alloc(64)]).subarray(0, length));
      expect(() => read(handles, other.done())).toThrow(expect.objectContaining(BADHANDLE));
    }
    for (const ino of [0, 2 ** 53, 2 ** 63])
      expect(() => read(handles, handleOf(handles, ino as Inode))).toThrow(expect.objectContaining(BADHANDLE));
  });

  test('no handle is valid after a revocation', () => {
    const handles = new FileHandles();
    const made = INODES.map((ino) => handleOf(handles, ino));
    handles.revoke();
    for (const handle of made) expect(() => read(handles, handle)).toThrow(expect.objectContaining(BADHANDLE));
  });

  test('more inodes than are remembered keep their handles', () => {
    const handles = new FileHandles();
    const first = handleOf(handles, INODES[0] as Inode);
    for (let group = 1; group <= 2_500; group++) handleOf(handles, (group * 64) as Inode);
    expect(handleOf(handles, INODES[0] as Inode)).toEqual(first);
  });
});
