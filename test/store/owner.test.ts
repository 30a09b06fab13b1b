import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs, { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { UsageError } from '../../src/base/errors.ts';
import { OwnerLock } from '../../src/store/owner-lock.ts';
import { SCHEMA_VERSION } from '../../src/store/schema-version.ts';
import { deadButListed } from '../harness/dead-but-listed.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();

/** What a process that is gone left, in the place of the lock that is there. */
function leaveLock(directory: string, pid: number | undefined, started: string): void {
  const path = join(directory, 'owner');
  fs.renameSync(path, join(directory, 'moved'));
  writeFileSync(path, '');
  writeFileSync(path, `${pid} ${started} ${fs.statSync(path).ino}\n`);
}

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
  const [, started = ''] = readFileSync(join(directory, 'owner'), 'utf8').trim().split(' ');

  // The child's pid with a start time that is not the child's.
  leaveLock(directory, child.pid, started);
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
  const [, own = ''] = readFileSync(join(directory, 'owner'), 'utf8').trim().split(' ');

  leaveLock(directory, pid, own.replace(/^\d+/, fields()[19] ?? ''));
  const taken = OwnerLock.take(directory);

  taken.release();
  held.release();
});

describe('of several starts that find the lock of a process that is gone, as when a machine was just booted', () => {
  const { linkSync, renameSync, statSync, unlinkSync } = fs;
  const { wait } = Atomics;
  let beforeStep = (): void => {};
  beforeEach(() => {
    const told =
      <Args extends unknown[], Result>(call: (...args: Args) => Result) =>
      (...args: Args): Result => {
        beforeStep();
        return call(...args);
      };
    const steps = { linkSync: told(linkSync), renameSync: told(renameSync), unlinkSync: told(unlinkSync) };
    Object.assign(fs, { ...steps, statSync: told(statSync as (...args: unknown[]) => unknown) });
    syncBuiltinESMExports();
    // Whoever waits for another start waits for one that stands still below it, on the same thread: it has waited long enough.
    Atomics.wait = () => {
      throw new UsageError('waited long enough', 5);
    };
  });
  afterEach(() => {
    Object.assign(fs, { linkSync, renameSync, statSync, unlinkSync });
    syncBuiltinESMExports();
    Atomics.wait = wait;
  });

  /**
   * Start B; others begin, and end, right before the step (a change of the directory or a look at it) of their number, counted over all of
   * them: also within one that came between itself.
   *
   * @returns who has the store, and what lies beside its lock
   */
  function started(others: ReadonlyMap<number, string>): { owners: string; beside: readonly string[]; steps: number } {
    const directory = stores.directory();
    writeFileSync(join(directory, 'owner'), '999999 1@gone 1\n');
    let owners = '';
    const locks: OwnerLock[] = [];
    const take = (name: string): void => {
      try {
        locks.push(OwnerLock.take(directory));
        owners += name;
      } catch (error) {
        expect(error).toBeInstanceOf(UsageError);
      }
    };
    let steps = 0;
    beforeStep = () => {
      const other = others.get(++steps);
      if (other !== undefined) take(other);
    };
    take('B');
    beforeStep = () => {};
    const beside = readdirSync(directory).filter((name) => name !== 'owner');
    for (const lock of locks) lock.release();
    return { owners, beside, steps };
  }

  test('of several starts that find a stale lock, exactly one gets the store', () => {
    const alone = started(new Map());
    const seen = new Set<string>();
    for (let a = 1; a <= alone.steps; a++) {
      for (let c = a + 1; c <= a + 2 * alone.steps; c++) {
        const others = { [a]: 'A', [c]: 'C' };
        const { owners, beside } = started(new Map(Object.entries(others).map(([step, name]) => [Number(step), name])));
        expect(owners, `A before step ${a}, C before step ${c}`).toHaveLength(1);
        expect(beside).toEqual([]);
        seen.add(owners);
      }
    }

    expect([...seen].sort()).toEqual(['A', 'B', 'C']);
  });

  test('what one that was killed in the middle of it left behind keeps nobody away', () => {
    const directory = stores.directory();
    const path = join(directory, 'owner');
    writeFileSync(path, '999999 1@gone 1\n');
    writeFileSync(`${path}.${statSync(path).ino}.gone`, '999998 1@gone 1\n');

    const lock = OwnerLock.take(directory);

    expect(readdirSync(directory)).toEqual(['owner']);
    lock.release();
  });
});

test('an owner ends also where its disk takes no change any more', () => {
  const directory = stores.directory();
  const lock = OwnerLock.take(directory);
  const { unlinkSync } = fs;
  onTestFinished(() => {
    fs.unlinkSync = unlinkSync;
    syncBuiltinESMExports();
  });
  fs.unlinkSync = () => {
    throw Object.assign(new Error('EROFS: read-only file system'), { code: 'EROFS' });
  };
  syncBuiltinESMExports();

  lock.release();
});

test('a copy of a store has no owner', async () => {
  const directory = stores.directory();
  await stores.open(directory);

  await stores.open(stores.copyOf(directory));
});

test('a store of a newer version is refused with a message and not changed', async () => {
  const directory = stores.directory();
  const store = await stores.open(directory);
  store.transact((tx) => tx.put('meta', 'schema', SCHEMA_VERSION + 1));
  await store.close();

  for (let attempt = 0; attempt < 2; attempt++) {
    await expect(stores.open(directory)).rejects.toThrow(/written by a newer version/);
  }
});
