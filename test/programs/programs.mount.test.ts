import { expect, test } from 'vitest';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { treeDifferences, treeDigests } from '../harness/tree-digests.ts';
import { programSuite } from './program-suite.ts';

let mount: MountFixture;
programSuite('programs on a mount', {
  missing: missingForMounts(),
  async open() {
    mount = await MountFixture.start();
    return mount;
  },
  close: (ground) => ground.dispose(),
  onFailure: () => mount.printLogs(),
  afterwards(ground) {
    test('what the programs left is on the service, byte for byte', { timeout: 300_000 }, async () => {
      await mount.sync();

      expect(treeDifferences(await mount.serverTree(), await treeDigests(ground()))).toEqual([]);
    });

    test('a second mount with an empty store reads the same', { timeout: 300_000 }, async () => {
      const second = await mount.freshStore();

      expect(treeDifferences(await treeDigests(second), await treeDigests(ground()))).toEqual([]);
    });
  },
});
