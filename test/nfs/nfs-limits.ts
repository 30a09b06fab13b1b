/** What no client can get over NFS version 3 (RFC 1813), by the name of the case, with the reason. `docs/semantics.md` lists the same. */
const byReason: Readonly<Record<string, readonly string[]>> = {
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
  'a time is 32 bits without sign': ['utimes keeps -1000000000 ns to the nanosecond, for a file and a folder'],
};

export const NFS_LIMITS: Readonly<Record<string, string>> = Object.fromEntries(
  Object.entries(byReason).flatMap(([reason, names]) => names.map((name) => [name, reason])),
);
