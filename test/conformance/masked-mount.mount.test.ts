import './fewer-entries.ts';
import { MASKABLE_FEATURES } from '../../src/kernel/negotiation.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';
import { DOCUMENTED_DIFFERENCES } from './documented-differences.ts';
import { conformanceSuite } from './suite.ts';

/**
 * The whole suite on a mount that does without everything that INIT negotiates: what the oldest kernel that we speak to would see.
 * Nothing may differ, only be slower. Nothing is pushed meanwhile: that is real-mount.mount.test.ts's.
 */
const isRoot = process.getuid?.() === 0;
let mount: MountFixture;
conformanceSuite('a mount with every kernel feature masked off', {
  missing: missingForMounts(),
  can: isRoot ? ['process', 'users'] : ['process'],
  differs: DOCUMENTED_DIFFERENCES,
  async open() {
    const flags = [
      '--settle',
      '1h',
      '--mask-features',
      MASKABLE_FEATURES.join(','),
      ...(isRoot ? ['--allow-other'] : []),
    ];
    mount = await MountFixture.start({ flags });
    return SyscallProcess.start(mount.directory);
  },
  close: () => mount?.dispose(),
  onFailure: () => mount.printLogs(),
});
