import { spawnSync } from 'node:child_process';
import { missingForMounts } from './mount-fixture.ts';

/** Whether `--binding fuse-native` can be tested here; null when it can, else what is missing. */
export function missingForFuseNative(): string | null {
  const loaded = spawnSync(process.execPath, ['-e', 'require("fuse-native")'], { encoding: 'utf8', timeout: 30_000 });
  if (loaded.status === 0) return missingForMounts();
  return loaded.stderr.includes('libfuse.so.2') ? 'libfuse2' : 'the package fuse-native';
}
