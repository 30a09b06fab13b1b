import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { PROJECT } from '../imports.ts';

test('a clone without npm packages is told what to run, in one sentence', () => {
  const clone = mkdtempSync(join(tmpdir(), 'cfs-clone-'));
  try {
    for (const folder of ['scripts', 'native-deps/fuse-kernel']) mkdirSync(join(clone, folder), { recursive: true });
    copyFileSync(join(PROJECT, 'scripts/build-native.mjs'), join(clone, 'scripts/build-native.mjs'));

    const argv = [join(clone, 'scripts/build-native.mjs'), '--prebuild'];
    const { status, stderr } = spawnSync(process.execPath, argv, { encoding: 'utf8' });

    expect(stderr).toBe('build-native: the npm packages are not installed: run npm ci first\n');
    expect(status).toBe(1);
  } finally {
    rmSync(clone, { recursive: true, force: true });
  }
});
