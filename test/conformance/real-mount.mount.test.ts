import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';
import { DOCUMENTED_DIFFERENCES } from './documented-differences.ts';
import { conformanceSuite } from './suite.ts';

// The whole way: kernel, addon, Worker, store, and a service behind it. Root also tests as other users, so they are let in.
const isRoot = process.getuid?.() === 0;
let mount: MountFixture;
conformanceSuite('a real mount', {
  missing: missingForMounts(),
  can: isRoot ? ['process', 'users'] : ['process'],
  differs: DOCUMENTED_DIFFERENCES,
  async open() {
    mount = await MountFixture.start({ flags: isRoot ? ['--allow-other'] : [] });
    return SyscallProcess.start(mount.directory);
  },
  close: () => mount?.dispose(),
  onFailure: () => mount.printLogs(),
});
