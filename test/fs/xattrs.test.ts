import { expect, test } from 'vitest';
import { withoutXattr, withXattr } from '../../src/fs/xattrs.ts';
import type { LocalFacet } from '../../src/store/tables.ts';

const ENOSPC = expect.objectContaining({ errno: 'ENOSPC' });
/** What listxattr(2) tells, each with its NUL. The kernel hands out no more than that (XATTR_LIST_MAX). */
const LIST_BYTES_MAX = 65536;

const listBytes = (xattrs: LocalFacet['xattrs']) =>
  Object.keys(xattrs ?? {}).reduce((sum, name) => sum + Buffer.byteLength(name) + 1, 0);

/** 256 bytes in the list, NUL included. */
const nameOf = (n: number, letter: string) =>
  `user.${n}.`.padEnd(255 - 2 * Buffer.byteLength(letter), '-') + letter + letter;

test.each(['x', 'ü', '水'])(
  'no more names are taken than listxattr(2) can tell of, and one fewer makes room again (%s)',
  (letter) => {
    let xattrs: LocalFacet['xattrs'] = null;
    for (let n = 0; n < LIST_BYTES_MAX / 256; n++) xattrs = withXattr(xattrs, nameOf(n, letter), Buffer.of(1), 'set');
    expect(listBytes(xattrs)).toBe(LIST_BYTES_MAX);

    expect(() => withXattr(xattrs, 'user.a', Buffer.of(), 'set')).toThrow(ENOSPC);
    xattrs = withXattr(xattrs, nameOf(3, letter), Buffer.of(2), 'replace');
    xattrs = withXattr(withoutXattr(xattrs, nameOf(7, letter)), 'user.a', Buffer.of(), 'create');
    expect(listBytes(xattrs)).toBeLessThan(LIST_BYTES_MAX);
  },
);

test('names count by their bytes towards all that a file may have', () => {
  let xattrs: LocalFacet['xattrs'] = null;
  const value = new Uint8Array(64 * 1024 - 255);
  for (let n = 0; n < 4; n++) xattrs = withXattr(xattrs, nameOf(n, '水'), value, 'set');
  expect(() => withXattr(xattrs, 'user.a', Buffer.of(), 'set')).toThrow(ENOSPC);
});
