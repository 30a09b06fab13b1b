import { statfsSync } from 'node:fs';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import path from 'node:path';
import { describe, test } from 'vitest';
import { PLACES, TMPFS } from '../harness/ground.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';
import { FALLOC_KEEP_SIZE, FALLOC_ZERO_RANGE, O_CREAT, O_RDWR } from './file-api.ts';
import { conformanceSuite, type Difference } from './suite.ts';
import { fails } from './workplace.ts';

/**
 * The suite over a plain directory: what it demands of a mount must be what Linux does, and this is how we know. All of it
 * holds on ext4; tmpfs lacks one operation; others (btrfs counts links of folders differently, …) say nothing about the suite.
 * CFS_CONFORMANCE_DIR takes any directory, to count what holds there (docs/conformance.md).
 */
const EXT4 = 0xef53; // linux/magic.h

const noZeroRange: Difference = {
  reason: 'tmpfs has no FALLOC_FL_ZERO_RANGE',
  async instead(fs) {
    const fd = await fs.open('file', O_RDWR | O_CREAT);
    await fails('EOPNOTSUPP', fs.fallocate(fd, FALLOC_ZERO_RANGE | FALLOC_KEEP_SIZE, 0, 10));
  },
};

const parent =
  process.env.CFS_CONFORMANCE_DIR ??
  PLACES.find((folder) => statfsSync(folder).type === EXT4) ??
  PLACES.find((folder) => statfsSync(folder).type === TMPFS);

if (parent === undefined) {
  describe('a plain directory', () => {
    test.skip(`(needs: ext4 or tmpfs at one of ${PLACES.join(', ')})`, () => {});
  });
} else {
  const onTmpfs = statfsSync(parent).type === TMPFS;
  let folder = '';
  conformanceSuite(`a plain directory on ${onTmpfs ? 'tmpfs' : 'ext4'}`, {
    can: process.getuid?.() === 0 ? ['process', 'users'] : ['process'],
    differs: onTmpfs
      ? {
          'zeroing a range writes zeros, and may make the file longer': noZeroRange,
          'zeroing a range with KEEP_SIZE leaves the size': noZeroRange,
        }
      : {},
    async open() {
      folder = await mkdtemp(path.join(parent, 'cfs-conformance-'));
      await chmod(folder, 0o755);
      return SyscallProcess.start(folder);
    },
    close: () => rm(folder, { recursive: true, force: true }),
  });
}
