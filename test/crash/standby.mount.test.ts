import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, onTestFailed, test, vi } from 'vitest';
import { processLife } from '../../src/base/process-life.ts';
import { tellFigures } from '../harness/figures.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { titled } from '../harness/requirement.ts';
import { missingForContinuity } from './killed-under-load.ts';

const STANDBY_MIB_MAX = 35;
/** Rows for memory that no other process uses, too. */
const PRIVATE = /^Private_(Dirty|Clean):/;

const missing = missingForContinuity();
describe.skipIf(missing !== null)(titled('standby', missing), () => {
  let mount: MountFixture;
  beforeAll(async () => {
    const env = { CFS_TEST_KEEPER_UNLIMITED: '1' };
    mount = await MountFixture.start({ flags: ['--continuity', '--standby=on'], env });
  });
  afterAll(() => mount?.dispose());

  test('a killed mount process is replaced by the process that waits, which another one follows', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run('printf before > file');
    await mount.standbyReady();
    const waiting = standbyOf(mount.pid);
    tellFigures(`standby: ${memoryMibOf(waiting, /^Pss:/)} MiB (PSS) when it is ready`);
    // V8 gives memory back when its thread has been idle for some seconds.
    await vi.waitUntil(() => memoryMibOf(waiting, PRIVATE) < STANDBY_MIB_MAX, { timeout: 60_000, interval: 500 });

    await mount.killAndContinue();

    expect(mount.pid).toBe(waiting);
    expect((await mount.run('printf after >> file; cat file')).stdout).toBe('beforeafter');
    await mount.standbyReady();
    expect(standbyOf(mount.pid)).not.toBe(waiting);
  });

  test('a standby that ends is noticed, and the mount continues without it', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.standbyReady();

    process.kill(standbyOf(mount.pid), 'SIGKILL');
    await vi.waitUntil(async () => (await mount.status())?.continuity?.hasStandby === false, { timeout: 30_000 });

    await mount.killAndContinue();
    expect((await mount.run('echo here > there; cat there')).stdout).toBe('here\n');
  });

  test.each([
    ['a standby', true],
    ['a standby that still loads the program', false],
  ])('%s ends with its mount', async (_which, isReady) => {
    const env = { CFS_TEST_KEEPER_UNLIMITED: '1' };
    const mortal = await MountFixture.start({ flags: ['--continuity', '--standby=on'], env });
    onTestFailed(() => mortal.printLogs());
    try {
      await mortal.killAndContinue(); // the next standby is started two seconds later
      if (isReady) await mortal.standbyReady();
      const keeper = parentOf(mortal.pid);
      const waiting = await vi.waitUntil(() => standbysOf(mortal.pid)[0], { timeout: 30_000, interval: 5 });
      if (!isReady) process.kill(waiting, 'SIGSTOP');

      expect((await mortal.unmount()).code).toBe(0);
      await vi.waitUntil(() => processLife(keeper) === 'ended', { timeout: 30_000, interval: 20 });
      if (!isReady) process.kill(waiting, 'SIGCONT');

      await vi.waitUntil(() => processLife(waiting) === 'ended', { timeout: 30_000, interval: 20 });
    } finally {
      await mortal.dispose();
    }
  });
});

/** The other child of the keeper. */
function standbyOf(pid: number): number {
  const [waiting, ...others] = standbysOf(pid);
  if (waiting === undefined || others.length > 0) throw new Error(`${others.length} standbys beside ${waiting}`);
  return waiting;
}

function standbysOf(pid: number): readonly number[] {
  const keeper = parentOf(pid);
  const children = readFileSync(`/proc/${keeper}/task/${keeper}/children`, 'utf8').trim().split(' ').map(Number);
  return children.filter((child) => child !== pid && processLife(child) === 'running');
}

function parentOf(pid: number): number {
  return Number(/^PPid:\s*(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
}

/** The memory of a process, by some rows of its summary. */
function memoryMibOf(pid: number, rows: RegExp): number {
  const kib = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8')
    .split('\n')
    .filter((row) => rows.test(row))
    .reduce((sum, row) => sum + Number(/\d+/.exec(row)?.[0]), 0);
  return Math.round((kib * 10) / 1024) / 10;
}
