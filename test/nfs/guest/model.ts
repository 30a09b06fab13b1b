import { join } from 'node:path';
import { afterAll, beforeAll, onTestFailed, test } from 'vitest';
import { tellFigures } from '../../harness/figures.ts';
import { seedsOf } from '../../harness/seeds.ts';
import { SyscallProcess } from '../../harness/syscall-process.ts';
import { TwinModel } from '../../model/twin-model.ts';
import { SeededRandom } from '../../store/seeded-random.ts';
import { TwinGround } from '../twin-ground.ts';

const SEEDS = seedsOf([1]);
const STEPS = Number(process.env.CFS_NFS_STEPS ?? 300);

// Random operations through the NFS client of a real kernel, beside a directory in memory. The files are pushed meanwhile.
let ground: TwinGround;
beforeAll(async () => {
  ground = await TwinGround.start();
});
afterAll(() => ground?.dispose());

test.each(SEEDS)(
  `the mount answers as the directory does (SEED=%i, ${STEPS} steps)`,
  {
    timeout: 300_000 + STEPS * 100,
  },
  async (seed) => {
    const { mount, plain } = ground;
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
    const entries = await ground.compare();
    tellFigures(`${STEPS} operations over NFS (SEED=${seed}), ${entries} files and folders at the end`);
  },
);
