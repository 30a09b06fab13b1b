// The test files that need a mount: which are left to CI, which have a process of their own, and which come first.

/**
 * Run with CFS_WHOLE=1 (.ci/run), or by their names. They verify other tests on a plain directory, run the conformance suite on the mount
 * again (with the features of an old kernel and with the second binding), or take more than a minute of processor time each: `npm test`
 * is to end within 12 minutes on two cores.
 */
export const LEFT_TO_CI = [
  'test/clients/clients.mount.test.ts',
  'test/conformance/fuse-native.mount.test.ts',
  'test/conformance/masked-mount.mount.test.ts',
  'test/conformance/plain-directory.mount.test.ts',
  'test/desktop/main-loop.mount.test.ts',
  'test/desktop/nautilus-window.mount.test.ts',
  'test/faults/faults.mount.test.ts',
  'test/fs/thousands-of-pieces.mount.test.ts',
  'test/model/plain-twins.mount.test.ts',
  'test/nfs/kernel-client.mount.test.ts',
  'test/programs/big-copy.mount.test.ts',
  'test/programs/nautilus.mount.test.ts',
  'test/programs/plain-ground.mount.test.ts',
];

/**
 * Each in a process of its own, longest first, so that no long file runs alone at the end. The other files take less than about half a minute,
 * and set nothing that other files in their process would inherit (`fewer-entries.ts` does).
 */
export const LONG = [
  'test/faults/faults.mount.test.ts',
  'test/programs/programs.mount.test.ts',
  'test/sync/upload-interruptions.mount.test.ts',
  'test/cli/commands.mount.test.ts',
  'test/programs/hanging-server.mount.test.ts',
  'test/programs/nautilus.mount.test.ts',
  'test/desktop/nautilus-window.mount.test.ts',
  'test/desktop/main-loop.mount.test.ts',
  'test/crash/kill-points.mount.test.ts',
  'test/crash/kill-after-close.mount.test.ts',
  'test/faults/small-disk.mount.test.ts',
  'test/nfs/kernel-client.mount.test.ts',
  'test/conformance/fuse-native.mount.test.ts',
  'test/conformance/real-mount.mount.test.ts',
  'test/conformance/masked-mount.mount.test.ts',
  'test/conformance/plain-directory.mount.test.ts',
  'test/server/rclone.mount.test.ts',
  'test/programs/big-copy.mount.test.ts',
  'test/programs/plain-ground.mount.test.ts',
  'test/web/page.mount.test.ts',
  'test/cli/npm-start.mount.test.ts',
  'test/cli/daily.mount.test.ts',
  'test/kernel/linux.mount.test.ts',
  'test/store/power-cut.mount.test.ts',
  'test/model/mount-model.mount.test.ts',
];
