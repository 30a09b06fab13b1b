import type { ProgramLimit } from '../programs/program-suite.ts';

type Limits = Readonly<Record<string, readonly string[]>>;

/** What no client can get over NFS version 3 (RFC 1813), by the name of the case, with the reason. `docs/semantics.md` lists the same. */
const ofTheProtocol: Limits = {
  'version 3 has no extended attributes: EOPNOTSUPP': [
    'setxattr moves ctime also of what was just written, and its close does not take that back',
    'an attribute is set, read, listed and removed, on a file and a folder',
    'a value may be any bytes, and none',
    'a value of 3,000 bytes is kept',
    'setting again replaces the value',
    'XATTR_CREATE is EEXIST where it exists, XATTR_REPLACE is ENODATA where it does not',
    'reading or removing an attribute that is not there is ENODATA',
    'many attributes are all listed',
    'attributes go with the file on rename and stay over a rewrite',
    'setting an attribute moves ctime and leaves mtime',
    'a namespace with nothing behind it is EINVAL',
  ],
  'version 3 cannot allocate or punch holes: EOPNOTSUPP': [
    'fallocate past the end makes the file longer, with zeros',
    'fallocate within the file changes neither size nor bytes',
    'fallocate with KEEP_SIZE leaves the size',
    'punching a hole makes zeros there and keeps the size',
    'punching a hole across the end does not make the file longer',
    'zeroing a range writes zeros, and may make the file longer',
    'zeroing a range with KEEP_SIZE leaves the size',
    'fallocate moves mtime and ctime when it changes the file',
    'a write into a punched hole is there, the rest of the hole stays zero',
    'tail of a file that was cut inside a block and grown again is zeros',
  ],
  'RENAME replaces, and has no flags: EINVAL': [
    'RENAME_NOREPLACE is EEXIST over anything, and else renames',
    'RENAME_EXCHANGE swaps two files',
    'RENAME_EXCHANGE swaps a file and a folder that is not empty, across folders',
  ],
  'a client takes a file without links for one that no longer exists: an open removed file has one link': [
    'an open file has no links after its removal, and after a rename over it',
  ],
  'a time is 32 bits without sign': ['utimes keeps -1000000000 ns to the nanosecond, for a file and a folder'],
};

/** What the kernel of a Linux client cannot do in addition. */
const ofTheClient: Limits = {
  'version 3 has no files without a name: EOPNOTSUPP': [
    'O_TMPFILE makes a file without a name',
    'linkat gives an O_TMPFILE file its name, with bytes, mode, times and inode',
    'linkat of an O_TMPFILE file over a name is EEXIST, and of one with O_EXCL ENOENT',
  ],
  'the client cuts the fractions of the first second of 1970, the earliest time that version 3 can express': [
    'utimes keeps 0 ns to the nanosecond, for a file and a folder',
    'utimes keeps 1 ns to the nanosecond, for a file and a folder',
  ],
  'version 3 has no open(2): the server sees a WRITE by a user who may not write': [
    'a descriptor keeps the access it was opened with',
  ],
  'version 3 has no extended attributes: EOPNOTSUPP': [
    'the length is told to an empty buffer, a short buffer is ERANGE',
    'a name of 256 bytes is ERANGE',
  ],
};

export const NFS_LIMITS = reasonsOf(ofTheProtocol);
export const NFS_CLIENT_LIMITS = { ...NFS_LIMITS, ...reasonsOf(ofTheClient) };

/** What programs cannot get, by the name of the scenario. */
export const NFS_PROGRAM_LIMITS: Readonly<Record<string, ProgramLimit>> = {
  'cp -a, rsync -X, tar --xattrs and mv take user.* attributes along, within and across file systems': {
    reason: 'version 3 has no extended attributes: EOPNOTSUPP',
    message: /setfattr: .*: Operation not supported/,
  },
  'truncate, fallocate, cp --sparse, du': {
    reason: 'version 3 cannot punch holes: EOPNOTSUPP',
    message: /fallocate: .* unsupported/,
  },
};

function reasonsOf(limits: Limits): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(limits).flatMap(([reason, names]) => names.map((name) => [name, reason])));
}
