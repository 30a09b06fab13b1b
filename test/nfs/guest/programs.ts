import { expect, test } from 'vitest';
import { MountFixture } from '../../harness/mount-fixture.ts';
import { treeDifferences, treeDigests } from '../../harness/tree-digests.ts';
import { programSuite } from '../../programs/program-suite.ts';
import { NFS_PROGRAM_LIMITS } from '../nfs-limits.ts';

/** Without CFS_NFS_WHOLE=1. git alone takes as long as all of these. */
const SHORT = ['cp -r in', 'tar packs', 'cp -a, rsync', 'sqlite3: rollback', 'rsync -a', 'truncate'];
const isWhole = process.env.CFS_NFS_WHOLE === '1';

// Programs through the NFS client of a real kernel.
let mount: MountFixture;
programSuite('programs on a mount over NFS', {
  wants: (name) => isWhole || SHORT.some((start) => name.startsWith(start)),
  fails: NFS_PROGRAM_LIMITS,
  async open() {
    mount = await MountFixture.start({ flags: ['--binding', 'nfs', '--allow-other'] });
    return mount;
  },
  close: (ground) => ground.dispose(),
  onFailure: () => mount.printLogs(),
  afterwards(ground) {
    test('what the programs left is on the service, byte for byte', { timeout: 300_000 }, async () => {
      await mount.sync();

      expect(treeDifferences(await mount.serverTree(), await treeDigests(ground()))).toEqual([]);
    });
  },
});
