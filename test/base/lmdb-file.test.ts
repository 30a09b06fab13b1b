import { mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { isOutOfDescriptors } from '../../src/base/errors.ts';
import { refuseUnopenable } from '../../src/base/lmdb-file.ts';
import { openIndex } from '../../src/store/index-file.ts';

let folder: string;
let data: string;
let lock: string;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'cfs-lmdb-'));
  data = join(folder, 'data.mdb');
  lock = join(folder, 'lock.mdb');
  const index = openIndex(folder);
  await index.put(Buffer.from('key'), Buffer.from('value'));
  await index.close();
});

afterEach(() => rmSync(folder, { recursive: true }));

const BOTH = [{ readOnly: false }, { readOnly: true }];

test.each(BOTH)('what LMDB made, and just made, is opened (%o)', async (how) => {
  refuseUnopenable({ data, lock, ...how });
  rmSync(lock);
  refuseUnopenable({ data, lock, ...how });

  const fresh = join(folder, 'fresh');
  await openIndex(fresh).close();
  refuseUnopenable({ data: join(fresh, 'data.mdb'), lock: join(fresh, 'lock.mdb'), ...how });
});

test('what is not there yet, or is empty, is made by whoever may write', () => {
  truncateSync(data);
  refuseUnopenable({ data, lock });
  expect(() => refuseUnopenable({ data, lock, readOnly: true })).toThrow('data.mdb is damaged');
  rmSync(data);
  refuseUnopenable({ data, lock });
  expect(() => refuseUnopenable({ data, lock, readOnly: true })).toThrow('data.mdb: ENOENT');
  refuseUnopenable({ data: join(folder, 'sub/data.mdb'), lock: join(folder, 'sub/lock.mdb') });
});

// Each of these ended the process in LMDB's open.
test.each([
  ['cut short in its first page', (bytes: Buffer) => bytes.subarray(0, 20)],
  ['cut short behind its first page', (bytes: Buffer) => bytes.subarray(0, 4096)],
  ['full of zeros', (bytes: Buffer) => Buffer.alloc(bytes.length)],
  ['empty of sense', (bytes: Buffer) => Buffer.alloc(bytes.length, 0xa5)],
])('a file that is %s is refused', (_what, damaged) => {
  writeFileSync(data, damaged(readFileSync(data)));

  for (const how of BOTH) {
    const refused = expect.objectContaining({ name: 'StorageError', message: expect.stringContaining('is damaged') });
    expect(() => refuseUnopenable({ data, lock, ...how })).toThrow(refused);
  }
});

test('a lock file that is none is refused', () => {
  rmSync(lock);
  mkdirSync(lock);

  for (const how of BOTH)
    expect(() => refuseUnopenable({ data, lock, ...how })).toThrow('lock.mdb is not a regular file');
});

test.each([0, 1, 2])('with %i descriptors left, which is less than LMDB wants, it is refused', (left) => {
  const opened: number[] = [];
  const openFile: typeof openSync = (path, flags) => {
    if (opened.length === left) throw Object.assign(new Error('out'), { code: 'EMFILE' });
    const fd = openSync(path, flags);
    opened.push(fd);
    return fd;
  };
  let thrown: unknown;
  try {
    refuseUnopenable({ data, lock, openFile });
  } catch (error) {
    thrown = error;
  }

  expect(thrown).toMatchObject({ name: 'StorageError', message: `cannot open ${data}: EMFILE` });
  expect(isOutOfDescriptors(thrown)).toBe(true);
  expect(opened).toHaveLength(left);
});
