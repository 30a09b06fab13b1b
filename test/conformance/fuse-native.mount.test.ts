import './fewer-entries.ts';
import { missingForFuseNative } from '../harness/fuse-native.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';
import { DOCUMENTED_DIFFERENCES } from './documented-differences.ts';
import { FUSE_NATIVE_DIFFERENCES, FUSE_NATIVE_FAILS } from './fuse-native-limits.ts';
import { conformanceSuite } from './suite.ts';

// The same suite through the second binding, `--binding fuse-native`. Nothing is pushed meanwhile: that is real-mount.mount.test.ts's.
const isRoot = process.getuid?.() === 0;

let mount: MountFixture;
conformanceSuite('a mount with fuse-native', {
  missing: missingForFuseNative(),
  can: isRoot ? ['process', 'users'] : ['process'],
  differs: { ...DOCUMENTED_DIFFERENCES, ...FUSE_NATIVE_DIFFERENCES },
  fails: FUSE_NATIVE_FAILS,
  async open() {
    mount = await MountFixture.start({
      flags: ['--binding', 'fuse-native', '--settle', '1h', ...(isRoot ? ['--allow-other'] : [])],
    });
    return SyscallProcess.start(mount.directory);
  },
  close: () => mount?.dispose(),
  onFailure: () => mount.printLogs(),
});
