import {
  chmodSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { createRequire, syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { makeDataDirectory } from '../../src/server/data-directory.ts';
import { Database } from '../../src/server/database.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { signUp } from './raw-client.ts';

/** Names on the disk (fsync(2) of their directory): a power cut takes a file without one, however well its bytes were synced. */

let directory: string;
let synced: Set<string>;
let restore: () => void;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-names-'));
  synced = new Set();
  const note = (fd: number): void => void synced.add(readlinkSync(`/proc/self/fd/${fd}`));
  const fs = createRequire(import.meta.url)('node:fs') as { fsyncSync(fd: number): void };
  const file = await open(join(directory, '..'), 'r');
  const files = Object.getPrototypeOf(file) as { sync(this: FileHandle): Promise<void> };
  await file.close();
  const { fsyncSync } = fs;
  const { sync } = files;
  fs.fsyncSync = (fd) => {
    note(fd);
    fsyncSync(fd);
  };
  files.sync = function () {
    note(this.fd);
    return sync.call(this);
  };
  syncBuiltinESMExports();
  restore = () => {
    Object.assign(fs, { fsyncSync });
    files.sync = sync;
    syncBuiltinESMExports();
  };
});

afterEach(() => {
  restore();
  rmSync(directory, { recursive: true });
});

test('a server that listens has its database, its directory and all folders made for it under lasting names', async () => {
  const data = join(directory, 'state', 'cfs', 'server');

  const server = await ReferenceServer.open({ dataDirectory: data });

  const named = [data, join(directory, 'state', 'cfs'), join(directory, 'state'), directory];
  expect([...synced]).toEqual(expect.arrayContaining(named));
  await server.close();
});

test('what is acknowledged has a lasting name, and so has each folder that it lies in', async () => {
  const server = await ReferenceServer.open({ dataDirectory: directory });
  const { client, folder } = await signUp(server, 'a@example.com');
  synced.clear();

  await client.createFilled(folder('2'), 'large', Buffer.alloc(20_000));

  const [blob = ''] = [...synced].filter((path) => /\/blobs\/..\/[^/]+$/.test(path));
  expect([...synced]).toEqual(expect.arrayContaining([join(blob, '..'), join(directory, 'blobs'), directory]));
  await server.close();
});

test('what lies above the directory may be of a kind that has nothing to sync, as an image that is only read', () => {
  // Made, as it seems, in a directory whose fsync(2) is EINVAL.
  expect(() => makeDataDirectory('/proc/self/cwd')).not.toThrow();
});

test('a file system without hard links takes a database as well', async () => {
  const fs = createRequire(import.meta.url)('node:fs') as { linkSync: unknown };
  const { linkSync } = fs;
  fs.linkSync = () => {
    throw Object.assign(new Error('EPERM: operation not permitted, link'), { code: 'EPERM' });
  };
  syncBuiltinESMExports();
  try {
    await Database.open(directory).close();
  } finally {
    fs.linkSync = linkSync;
    syncBuiltinESMExports();
  }

  expect(readdirSync(directory).sort()).toEqual(['service.mdb', 'service.mdb-lock']);
  const again = Database.open(directory);
  expect(again.meta.get('schema')).toBe(1);
  await again.close();
});

test.each(['service.mdb', 'service.mdb-lock'])('a symbolic link called %s is refused, and its target stays', (name) => {
  const target = join(directory, 'target');
  writeFileSync(target, 'x'.repeat(20_000), { mode: 0o644 });
  symlinkSync(target, join(directory, name));

  expect(() => Database.open(directory)).toThrow('is not a regular file');

  expect(readFileSync(target, 'utf8')).toBe('x'.repeat(20_000));
  expect(statSync(target).mode & 0o777).toBe(0o644);
});

test.each([0o777, 0o1777, 0o770])('a data directory of mode %o is refused: others may write to it', async (mode) => {
  chmodSync(directory, mode);

  expect(() => Database.open(directory)).toThrow('chmod go-w');
  await expect(ReferenceServer.open({ dataDirectory: directory })).rejects.toThrow('chmod go-w');
  expect(readdirSync(directory)).toEqual([]);
});
