import { expect } from 'vitest';
import { UsageError } from '../../src/base/errors.ts';
import type { MountOptions } from '../../src/kernel/binding.ts';
import { loadKernelAddon } from '../../src/kernel/kernel-addon.ts';
import { openMount } from '../../src/kernel/mounting.ts';
import { missingAddon, testUnless } from '../harness/requirement.ts';

const missing = missingAddon();

const OPTIONS: Omit<MountOptions, 'directory'> = {
  ...{ fsname: 'cfs-test', subtype: 'cfs-test', readOnly: false, allowOther: false, defaultPermissions: false },
  ...{ flags: [], allowNonEmpty: false, maskedFeatures: [] },
};
/** More than execve(2) takes as one argument (MAX_ARG_STRLEN): whatever is to be started with it is not. */
const TOO_LONG = `/${'x'.repeat(256 * 1024)}`;

testUnless(missing)('a fusermount3 that cannot be started is told in one sentence', () => {
  const mount = () => openMount({ ...OPTIONS, directory: TOO_LONG }, { addon: loadKernelAddon(), uid: 1000 });

  expect(mount).toThrow(UsageError);
  expect(mount).toThrow(/: fusermount3 cannot be started: E2BIG$|fusermount3 is not installed/);
});
