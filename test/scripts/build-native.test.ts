import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
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

    expect(stderr).toBe('build-native: the npm packages are not installed: run npm ci --ignore-scripts first\n');
    expect(status).toBe(1);
  } finally {
    rmSync(clone, { recursive: true, force: true });
  }
});

test('a compiler with words of its own, as make(1) takes it, is started with them', () => {
  const clone = mkdtempSync(join(tmpdir(), 'cfs-clone-'));
  try {
    for (const folder of ['scripts', 'native-deps/fuse-kernel', 'node_modules/node-api-headers', 'a bin'])
      mkdirSync(join(clone, folder), { recursive: true });
    copyFileSync(join(PROJECT, 'scripts/build-native.mjs'), join(clone, 'scripts/build-native.mjs'));
    writeFileSync(join(clone, 'node_modules/node-api-headers/index.js'), "exports.include_dir = '/include';");
    // Writes its words where it was to write what it makes.
    const compiler = join(clone, 'a bin', 'compiler');
    writeFileSync(compiler, '#!/bin/sh\nfor out; do :; done\nprintf "%s\\n" "$@" > "$out"\n', { mode: 0o755 });
    const built = join(clone, 'native-deps/fuse-kernel/build/fuse-kernel.node');
    const build = (CC: string, PATH: string) => {
      rmSync(built, { force: true });
      const env = { ...process.env, CC, PATH };
      spawnSync(process.execPath, [join(clone, 'scripts/build-native.mjs')], { env, encoding: 'utf8' });
      return readFileSync(built, 'utf8').split('\n').slice(0, 2);
    };

    expect(build('compiler -m64', `${join(clone, 'a bin')}:${process.env.PATH}`)).toEqual(['-m64', '-std=gnu11']);
    expect(build(compiler, process.env.PATH ?? '')).toEqual(['-std=gnu11', '-Wall']);
  } finally {
    rmSync(clone, { recursive: true, force: true });
  }
});

test('a compiler for another machine than the target is refused, and leaves no addon in the folder of the target', () => {
  const clone = mkdtempSync(join(tmpdir(), 'cfs-clone-'));
  try {
    for (const folder of ['scripts', 'native-deps/fuse-kernel', 'node_modules/node-api-headers'])
      mkdirSync(join(clone, folder), { recursive: true });
    copyFileSync(join(PROJECT, 'scripts/build-native.mjs'), join(clone, 'scripts/build-native.mjs'));
    writeFileSync(join(clone, 'node_modules/node-api-headers/index.js'), "exports.include_dir = '/include';");
    // elf(5): the header of a program for arm64, with e_machine at byte 18.
    const header = Buffer.alloc(64);
    header.write('\x7fELF', 'latin1');
    header.writeUInt16LE(183, 18);
    writeFileSync(join(clone, 'for-arm64'), header);
    const compiler = join(clone, 'compiler');
    writeFileSync(compiler, `#!/bin/sh\nfor out; do :; done\ncp '${join(clone, 'for-arm64')}' "$out"\n`, {
      mode: 0o755,
    });
    const build = (target: string, environment: Record<string, string>) =>
      spawnSync(process.execPath, [join(clone, 'scripts/build-native.mjs'), '--prebuild', '--target', target], {
        env: { ...process.env, ...environment },
        encoding: 'utf8',
      });
    const addon = (target: string) => join(clone, `native-deps/fuse-kernel/prebuilds/${target}/fuse-kernel.node`);
    const both = { CC: compiler, CC_FOR_TARGET: compiler };

    expect(build('linux-x64', both)).toMatchObject({ status: 1, stderr: expect.stringContaining('another machine') });
    expect(existsSync(addon('linux-x64'))).toBe(false);
    expect(build('linux-arm64', both)).toMatchObject({ status: 0 });
    expect(readFileSync(addon('linux-arm64')).readUInt16LE(18)).toBe(183);
    expect(build('linux-s390x', both)).toMatchObject({ status: 2, stderr: expect.stringContaining('linux-arm64') });
  } finally {
    rmSync(clone, { recursive: true, force: true });
  }
});
