import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFailed, test } from 'vitest';
import { tellFigures } from '../../harness/figures.ts';
import { MountFixture } from '../../harness/mount-fixture.ts';
import { seedsOf } from '../../harness/seeds.ts';
import { SyscallProcess } from '../../harness/syscall-process.ts';
import { treeDifferences, treeDigests } from '../../harness/tree-digests.ts';
import { TwinModel } from '../../model/twin-model.ts';
import { SeededRandom } from '../../store/seeded-random.ts';

const SEEDS = seedsOf([1]);
const STEPS = Number(process.env.CFS_NFS_STEPS ?? 300);

// Random operations through the NFS client of a real kernel, beside a directory in memory. The files are pushed meanwhile.
let mount: MountFixture;
let plain: string;
beforeAll(async () => {
  mount = await MountFixture.start({ flags: ['--binding', 'nfs', '--allow-other'] });
  plain = await mkdtemp(join(tmpdir(), 'cfs-plain-'));
});
afterAll(async () => {
  await mount?.dispose();
  await rm(plain, { recursive: true, force: true });
});

test.each(SEEDS)(
  `the mount answers as the directory does (SEED=%i, ${STEPS} steps)`,
  {
    timeout: 300_000 + STEPS * 100,
  },
  async (seed) => {
    onTestFailed(() => mount.printLogs());
    await mount.run(`mkdir seed-${seed} '${plain}/seed-${seed}'`);
    const sides = {
      plain: await SyscallProcess.start(join(plain, `seed-${seed}`)),
      tested: await SyscallProcess.start(join(mount.directory, `seed-${seed}`)),
    };
    try {
      const lacks = ['fallocate', 'xattr', 'rename flags', 'nlink'] as const;
      const model = new TwinModel({ ...sides, random: new SeededRandom(seed), lacks });
      await model.run(STEPS);
      await model.closeAll();
      await model.compareTrees();
    } finally {
      await sides.plain.dispose();
      await sides.tested.dispose();
    }
    const ground = { run: (script: string) => mount.run(`cd '${plain}'; ${script}`) };
    const wanted = await treeDigests(ground);
    expect(treeDifferences(await treeDigests(mount), wanted)).toEqual([]);
    await mount.sync();
    expect(treeDifferences(await mount.serverTree(), wanted)).toEqual([]);
    tellFigures(`${STEPS} operations over NFS (SEED=${seed}), ${wanted.size} files and folders at the end`);
  },
);
