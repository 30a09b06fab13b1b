import { FsError } from '../base/errors.ts';
import type { LocalFacet } from '../store/tables.ts';

/** Linux allows 64 KiB per value; all attributes of a node must fit into one journal record, with room to spare. */
const VALUE_BYTES_MAX = 64 * 1024;
const TOTAL_BYTES_MAX = 256 * 1024;
const NAME_BYTES_MAX = 255;
/** XATTR_LIST_MAX, names with their NULs: beyond it listxattr(2) fails with E2BIG (fs/xattr.c, listxattr). */
const LIST_BYTES_MAX = 64 * 1024;

type Xattrs = LocalFacet['xattrs'];

/** @throws FsError ENODATA when the name is not set; EOPNOTSUPP, EINVAL when it can never be */
export function getXattr(xattrs: Xattrs, name: string): Uint8Array {
  checkNamespace(name);
  const value = xattrs !== null && Object.hasOwn(xattrs, name) ? xattrs[name] : undefined;
  if (value === undefined) throw new FsError('ENODATA');
  return value;
}

/**
 * The attributes after setxattr(2). Only `user.*` is kept.
 *
 * @throws FsError EOPNOTSUPP, EINVAL, EEXIST, ENODATA, ERANGE, E2BIG, ENOSPC as setxattr(2) says
 */
export function withXattr(
  xattrs: Xattrs,
  name: string,
  value: Uint8Array,
  mode: 'set' | 'create' | 'replace',
): NonNullable<Xattrs> {
  checkNamespace(name);
  if (Buffer.byteLength(name) > NAME_BYTES_MAX) throw new FsError('ERANGE');
  if (value.byteLength > VALUE_BYTES_MAX) throw new FsError('E2BIG');
  const exists = xattrs !== null && Object.hasOwn(xattrs, name);
  if (mode === 'create' && exists) throw new FsError('EEXIST');
  if (mode === 'replace' && !exists) throw new FsError('ENODATA');
  const after: Record<string, Uint8Array> = Object.assign(Object.create(null), xattrs);
  after[name] = Uint8Array.from(value);
  let valueBytes = 0;
  let nameBytes = 0;
  let listBytes = 0;
  for (const [key, bytes] of Object.entries(after)) {
    const keyBytes = Buffer.byteLength(key);
    valueBytes += bytes.byteLength;
    nameBytes += keyBytes;
    listBytes += keyBytes + 1;
  }
  if (nameBytes + valueBytes > TOTAL_BYTES_MAX || (!exists && listBytes > LIST_BYTES_MAX)) throw new FsError('ENOSPC');
  return after;
}

/** @throws FsError as `getXattr` */
export function withoutXattr(xattrs: Xattrs, name: string): Xattrs {
  getXattr(xattrs, name);
  const after: Record<string, Uint8Array> = Object.assign(Object.create(null), xattrs);
  delete after[name];
  return Object.keys(after).length === 0 ? null : after;
}

/** An empty name after the namespace is invalid (fs/xattr.c, xattr_resolve_name). */
function checkNamespace(name: string): void {
  if (!name.startsWith('user.')) throw new FsError('EOPNOTSUPP', `only user.* attributes are kept, not ${name}`);
  if (name === 'user.') throw new FsError('EINVAL');
}
