import { writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { tellFigures } from '../harness/figures.ts';
import { type Ground, plainGround } from '../harness/ground.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { missingRoot } from '../harness/requirement.ts';
import { seedsOf } from '../harness/seeds.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';
import { treeDifferences, treeDigests } from '../harness/tree-digests.ts';
import { SeededRandom } from '../store/seeded-random.ts';
import { TwinModel } from './twin-model.ts';

const SEEDS = seedsOf([1, 2, 3, 1000, 2000]);
const STEPS = Number(process.env.CFS_STEPS ?? 1_500);
/** Between two of them the mount ends, in order and by SIGKILL in turn; every file is closed then. */
const LIVES = Math.max(2, Math.round(STEPS / 2_000));

// Root passes every mode: the random chmods deny it nothing.
const missing = missingForMounts() ?? missingRoot();
describe.skipIf(missing !== null)(
  `random operations beside a plain directory${missing === null ? '' : ` (needs: ${missing})`}`,
  () => {
    let mount: MountFixture;
    let plain: Ground;
    beforeAll(async () => {
      mount = await MountFixture.start();
      plain = await plainGround();
    });
    afterAll(async () => {
      await mount?.dispose();
      await plain?.dispose();
    });

    test.each(SEEDS)(
      `the mount answers as the directory does, over restarts and on the service too (SEED=%i, ${STEPS} steps)`,
      { timeout: 300_000 + STEPS * 20 },
      async (seed) => {
        onTestFailed(() => mount.printLogs());
        const random = new SeededRandom(seed);
        // One folder per seed, the same on both sides.
        for (const ground of [mount, plain]) await ground.run(`mkdir seed-${seed}`);
        const folder = `seed-${seed}`;

        for (let life = 0; life < LIVES; life++) {
          const sides = {
            plain: await SyscallProcess.start(`${plain.directory}/${folder}`),
            tested: await SyscallProcess.start(`${mount.directory}/${folder}`),
          };
          const model = new TwinModel({ ...sides, random });
          onTestFailed(() => writeFile(path.join(tmpdir(), `cfs-model-${seed}-life-${life}.trace`), model.wholeTrace));
          try {
            await model.run(STEPS / LIVES);
            await model.closeAll();
            await model.compareTrees();
          } finally {
            await sides.plain.dispose();
            await sides.tested.dispose();
          }
          if (life < LIVES - 1) {
            if (life % 2 === 0) await mount.unmount(['--now']);
            else await mount.kill9();
            await mount.mount();
          }
        }

        const wanted = await treeDigests(plain);
        expect(treeDifferences(await treeDigests(mount), wanted)).toEqual([]);
        await mount.sync();
        expect(treeDifferences(await mount.serverTree(), wanted)).toEqual([]);
        tellFigures(
          `${STEPS} operations over ${LIVES} lives (SEED=${seed}), ${wanted.size} files and folders at the end`,
        );
      },
    );
  },
);
