import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { StorageError } from '../../src/base/errors.ts';
import type { ContentId } from '../../src/base/vocabulary.ts';
import { ContentFiles } from '../../src/bytes/content-files.ts';
import { Draft } from '../../src/bytes/draft.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import type { ContentRecord } from '../../src/store/tables.ts';
import { FAST_DISK } from '../harness/fast-disk.ts';

/** An open draft on a disk that finds no room: what it had accepted is there afterwards. */

const ID = 7 as ContentId;
const BASE_BYTES = 200 * 1024;
const INLINE_MAX = 16 * 1024;
const RECORD: ContentRecord = {
  kind: 'draft',
  sealed: false,
  sizeBytes: BASE_BYTES,
  version: null,
  resource: null,
  where: 'none',
  base: 1 as ContentId,
  baseBytes: BASE_BYTES,
  extents: [],
  refs: 1,
};

let directory: string;
let files: ContentFiles;
let refuses: 'nothing' | 'files' | 'bytes' = 'nothing';

const full = (): never => {
  throw new StorageError('no space', { full: true });
};
const disk: Disk = {
  ...systemDisk,
  open: (path, how) => (refuses === 'files' && how === 'create' ? full() : systemDisk.open(path, how)),
  write: (fd, bytes, position) => (refuses === 'bytes' ? full() : systemDisk.write(fd, bytes, position)),
};

beforeEach(() => {
  directory = mkdtempSync(join(FAST_DISK, 'cfs-draft-'));
  files = new ContentFiles({ directory, disk, holes: null, pace: null });
});
afterEach(() => {
  refuses = 'nothing';
  files.closeAll();
  rmSync(directory, { recursive: true, force: true });
});

function draftOver(): Draft {
  return new Draft({ files, inlineBytesMax: INLINE_MAX }, ID, RECORD, undefined);
}

test.each([
  ['a draft in memory that gets no file', 'files', 4096],
  ['a draft in memory whose file takes no bytes', 'bytes', 4096],
  ['a draft in a file', 'bytes', 2 * INLINE_MAX],
] as const)('zeros that do not fit on the disk leave the earlier bytes unchanged: %s', (_, what, length) => {
  const draft = draftOver();
  const written = new Uint8Array(length).fill(5);
  draft.write(0, written);
  const before = draft.toRecord(RECORD).record;

  refuses = what;
  expect(() => draft.zero({ start: 0, end: 100 * 1024 })).toThrow('no space');

  expect(draft.extents).toEqual([0, length]);
  expect(draft.toRecord(RECORD).record).toEqual(before);
  const kept = new Uint8Array(length);
  if (draft.memory === null) files.read(ID, 'drafts', kept, 0);
  else kept.set(draft.memory.subarray(0, length));
  expect(kept).toEqual(written);

  refuses = 'nothing';
  draft.zero({ start: 0, end: 100 * 1024 });
  expect(draft.extents).toEqual([0, 100 * 1024]);
});
