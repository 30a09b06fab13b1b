import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { UsageError } from '../../src/base/errors.ts';
import { SCHEMA_VERSION } from '../../src/store/migration.ts';
import { OwnerLock } from '../../src/store/owner-lock.ts';
import { deadButListed } from '../harness/dead-but-listed.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();

test('a second owner is refused with the pid of the first, until that one closes', async () => {
  const directory = stores.directory();
  const first = await stores.open(directory);

  const refusal = await stores.open(directory).then(
    () => null,
    (error: unknown) => error,
  );
  expect(refusal).toBeInstanceOf(UsageError);
  expect((refusal as Error).message).toContain(`process ${process.pid}`);

  await first.close();
  await stores.open(directory);
});

test('the lock of a process that is gone is taken over, also when its pid was given again', async () => {
  const directory = stores.directory();
  const child = spawn('sleep', ['60']);
  await once(child, 'spawn');
  const held = OwnerLock.take(directory);
  const path = join(directory, 'owner');
  const own = readFileSync(path, 'utf8');
  const [, started, inode] = own.trim().split(' ');

  // The child's pid with a start time that is not the child's.
  writeFileSync(path, `${child.pid} ${started} ${inode}\n`);
  const taken = OwnerLock.take(directory);
  taken.release();
  held.release(); // does not remove what others hold
  child.kill();
  await once(child, 'exit');
});

test('the lock of a process that is dead but still listed is taken over', async () => {
  const directory = stores.directory();
  const { pid, fields, dispose } = await deadButListed();
  onTestFinished(dispose);
  const held = OwnerLock.take(directory);
  const path = join(directory, 'owner');
  const [, own = '', inode] = readFileSync(path, 'utf8').trim().split(' ');

  writeFileSync(path, `${pid} ${own.replace(/^\d+/, fields()[19] ?? '')} ${inode}\n`);
  const taken = OwnerLock.take(directory);

  taken.release();
  held.release();
});

test('a copy of a store has no owner', async () => {
  const directory = stores.directory();
  await stores.open(directory);

  await stores.open(stores.copyOf(directory));
});

test('a store of a newer version is refused in words and left alone', async () => {
  const directory = stores.directory();
  const store = await stores.open(directory);
  store.transact((tx) => tx.put('meta', 'schema', SCHEMA_VERSION + 1));
  await store.close();

  for (let attempt = 0; attempt < 2; attempt++) {
    await expect(stores.open(directory)).rejects.toThrow(/written by a newer version/);
  }
});
