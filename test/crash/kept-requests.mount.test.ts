import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFailed, test, vi } from 'vitest';
import type { MountFixture } from '../harness/mount-fixture.ts';
import { titled } from '../harness/requirement.ts';
import { seedsOf } from '../harness/seeds.ts';
import { DEATHS, killUnderLoad, MortalMount, missingForContinuity } from './killed-under-load.ts';

const missing = missingForContinuity();
/** Kernels before Linux 6.9 do not send unanswered requests again. */
describe.skipIf(missing !== null)(titled('continuity without FUSE_NOTIFY_RESEND', missing), () => {
  let mortal: MortalMount;
  let mount: MountFixture;
  let scratch: string;
  beforeAll(async () => {
    mortal = await MortalMount.start(['--mask-features=resend']);
    ({ mount, scratch } = mortal);
  });
  afterAll(() => mortal?.dispose());

  test.each(seedsOf([2]))(
    'a mount process that is killed under load delays calls, and no call fails or takes effect twice (seed %i)',
    { timeout: DEATHS * 300_000 },
    async (seed) => {
      onTestFailed(() => mount.printLogs());
      expect((await mount.status())?.continuity?.requests).toBe('kept');
      await killUnderLoad(mortal, { seed, what: 'kept requests' });
    },
  );

  test('40 calls that wait for the service continue after two deaths, and SIGKILL of a caller ends its call', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run('mkdir far; for i in $(seq 40); do seq $i 9000 > far/$i; done');
    const { stdout: wanted } = await mount.run('for i in $(seq 2 40); do cksum < far/$i; done');
    await mount.sync();
    await mount.cfs(['evict', join(mount.directory, 'far')]);
    await mount.run('cd far; for i in $(seq 40); do dd if=$i iflag=nocache count=0 2> /dev/null; done');
    await mount.server.pause();
    let reading: Promise<{ stdout: string }>;
    try {
      // The first one gets its signal in the pause: the earlier process, or none, reads the kernel's INTERRUPT.
      reading = mount.run(`
        (cksum < far/1 > /dev/null) & stopped=$!; echo $stopped > ${scratch}/stopped
        for i in $(seq 2 40); do cksum < far/$i > ${scratch}/$i & done
        wait $stopped && code=0 || code=$?; echo "ended $code"; wait
        for i in $(seq 2 40); do cat ${scratch}/$i; done`);
      const waiting = async () =>
        Number(
          /^cfs_operations_waiting\S* (\d+)/m.exec((await mount.cfs(['metrics'], { anyExitCode: true })).stdout)?.[1] ??
            0,
        );
      await vi.waitUntil(async () => (await waiting()) >= 40, { timeout: 60_000, interval: 100 });
      await mount.killAndContinue();
      await vi.waitUntil(async () => (await waiting()) >= 40, { timeout: 60_000, interval: 100 });
      await mount.killAndContinue((pid) => {
        process.kill(pid, 'SIGKILL');
        process.kill(Number(readFileSync(join(scratch, 'stopped'), 'utf8')), 'SIGKILL');
      });
      await vi.waitUntil(async () => (await waiting()) === 39, { timeout: 60_000, interval: 100 });
    } finally {
      mount.server.resume();
    }
    expect((await reading).stdout).toBe(`ended 137\n${wanted}`);
  });
});
