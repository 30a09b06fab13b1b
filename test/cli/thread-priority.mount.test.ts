import { readdirSync, readFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { MountFixture } from '../harness/mount-fixture.ts';

let mount: MountFixture;

beforeEach(async () => {
  mount = await MountFixture.start();
});

afterEach(() => mount.dispose());

/** Of each thread its nice value and the processor time it has used, in ticks: fields 19, 14 and 15 of /proc/PID/task/TID/stat, proc(5). */
function threadsOf(pid: number): Map<number, { nice: number; used: number }> {
  return new Map(
    readdirSync(`/proc/${pid}/task`).map((tid) => {
      const stat = readFileSync(`/proc/${pid}/task/${tid}/stat`, 'latin1');
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      return [Number(tid), { nice: Number(fields[16]), used: Number(fields[11]) + Number(fields[12]) }];
    }),
  );
}

test('the thread that speaks to the service goes after the one that answers the kernel', async () => {
  const before = threadsOf(mount.pid);
  await mount.run('i=0; while [ $((i += 1)) -le 3000 ]; do : > file-$i; done');
  const after = threadsOf(mount.pid);

  // The Worker is the one that did it.
  const [worker] = [...after]
    .filter(([tid]) => tid !== mount.pid)
    .sort(([a, x], [b, y]) => y.used - (before.get(b)?.used ?? 0) - (x.used - (before.get(a)?.used ?? 0)));
  // Five behind it, where there is room: nice(1) ends at 19.
  expect(after.get(mount.pid)?.nice).toBe(Math.min(19, (worker?.[1].nice ?? 0) + 5));
});
