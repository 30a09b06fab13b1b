import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { missingPrograms } from '../harness/requirement.ts';

const FILES = 400;

/**
 * close(2) waits for FLUSH, and for nothing else: of what a program closes when it ends, the kernel tells later (RELEASE), and no more at all where the
 * mount goes meanwhile (fuse_abort_conn).
 */
const missing = missingForMounts() ?? missingPrograms('python3');
describe.skipIf(missing !== null)(
  `unmounted right after a program ended${missing === null ? '' : ` (needs: ${missing})`}`,
  () => {
    let mount: MountFixture;
    beforeAll(async () => {
      mount = await MountFixture.start({ flags: ['--settle', '1m'] });
    });
    afterAll(() => mount?.dispose());

    test('what it emptied is empty, here and on the service', { timeout: 120_000 }, async () => {
      onTestFailed(() => mount.printLogs());
      await mount.run(`for i in $(seq ${FILES}); do echo old > f$i; done`);
      await mount.sync();

      await mount.run(
        `cd /
         python3 -c "import os
for i in range(1, ${FILES} + 1): os.open('${mount.directory}/f%d' % i, os.O_WRONLY | os.O_TRUNC)
os._exit(0)"
         fusermount3 -u '${mount.directory}'`,
      );
      await mount.gone();
      await mount.mount();

      expect((await mount.run('find . -name "f*" -size +0 | wc -l')).stdout.trim()).toBe('0');
      await mount.sync();
      const tree = await mount.serverTree();
      expect(new Set([...tree].filter(([path]) => /^f\d+$/.test(path)).map(([, digest]) => digest)).size).toBe(1);
    });
  },
);
