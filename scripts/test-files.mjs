// The test files that need a mount: which run alone, and which first.

/**
 * What needs something of which the machine has one. The others have servers, mounts and directories of their own, and assert no time.
 */
export const ALONE = [
  'test/cli/package.mount.test.ts', // builds dist/, on which all others run, and asks the doctor, who looks at every mount there is
];

/** Each in a process of its own, longest first, so that none is the last one under way. What is not here takes less than 20 seconds or so. */
export const LONG = [
  'test/faults/faults.mount.test.ts',
  'test/crash/kill-points.mount.test.ts',
  'test/sync/upload-interruptions.mount.test.ts',
  'test/cli/commands.mount.test.ts',
  'test/programs/programs.mount.test.ts',
  'test/conformance/real-mount.mount.test.ts',
  'test/programs/hanging-server.mount.test.ts',
  'test/crash/kill-after-close.mount.test.ts',
  'test/server/rclone.mount.test.ts',
  'test/conformance/fuse-native.mount.test.ts',
  'test/cli/npm-start.mount.test.ts',
  'test/cli/daily.mount.test.ts',
  'test/kernel/linux.mount.test.ts',
  'test/programs/big-copy.mount.test.ts',
  'test/store/power-cut.mount.test.ts',
  'test/faults/small-disk.mount.test.ts',
  'test/model/mount-model.mount.test.ts',
  'test/clients/clients.mount.test.ts',
  'test/cli/bad-use.mount.test.ts',
  'test/programs/request-budget.mount.test.ts',
  'test/store/content-cuts.mount.test.ts',
  'test/cli/history.mount.test.ts',
  'test/server/killed.mount.test.ts',
  'test/kernel/linux-load.mount.test.ts',
  'test/cli/doctor.mount.test.ts',
  'test/programs/plain-ground.mount.test.ts',
  'test/conformance/masked-mount.mount.test.ts',
  'test/crash/restart.mount.test.ts',
  'test/sync/move-over.mount.test.ts',
  'test/conformance/plain-directory.mount.test.ts',
];
