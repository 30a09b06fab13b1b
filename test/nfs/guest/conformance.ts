import { DOCUMENTED_DIFFERENCES } from '../../conformance/documented-differences.ts';
import { conformanceSuite, type Difference } from '../../conformance/suite.ts';
import { fails } from '../../conformance/workplace.ts';
import { MountFixture } from '../../harness/mount-fixture.ts';
import { SyscallProcess } from '../../harness/syscall-process.ts';
import { NFS_CLIENT_LIMITS } from '../nfs-limits.ts';

const NOT_TEXT = 'a name that is not UTF-8 is kept as it is';
const notText: Difference = {
  reason: 'names travel as text, and version 3 has no EILSEQ: EINVAL',
  async instead(fs) {
    const name = Buffer.from([0x66, 0xff, 0xfe, 0x67]);
    await fails('EINVAL', fs.put(name, 'x'));
    await fails(['EINVAL', 'ENOENT'], fs.lstat(name));
  },
};

// The conformance suite through the NFS client of a real kernel. Nothing is pushed meanwhile.
let mount: MountFixture;
conformanceSuite('a mount over NFS', {
  can: ['process', 'users'],
  differs: { ...DOCUMENTED_DIFFERENCES, [NOT_TEXT]: notText },
  fails: NFS_CLIENT_LIMITS,
  async open() {
    mount = await MountFixture.start({ flags: ['--binding', 'nfs', '--allow-other', '--settle', '1h'] });
    return SyscallProcess.start(mount.directory);
  },
  close: () => mount?.dispose(),
  onFailure: () => mount.printLogs(),
});
