import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { missingFile, testUnless, titled } from '../harness/requirement.ts';
import { PROJECT } from '../imports.ts';

/** bootstrap.mjs looks for this one path; everything else is in the clone. */
const missing = missingFile('/usr/include/stdio.h');

/**
 * What `scripts/bootstrap.mjs` asks of a machine, in a clone that has nothing but it: what it starts stands in for npm, the compilers and
 * apt-get, and writes down how it was called.
 */

let clone: string;
const at = (...names: string[]): string => join(clone, ...names);

function program(path: string, code: string): void {
  mkdirSync(join(path, '..'), { recursive: true });
  writeFileSync(path, `#!${process.execPath}\n${code}`);
  chmodSync(path, 0o755);
}

beforeEach(() => {
  clone = mkdtempSync(join(tmpdir(), 'cfs-clone-'));
  for (const folder of ['scripts', 'src', 'dist', 'bin', 'native-deps/fuse-kernel/build'])
    mkdirSync(at(folder), { recursive: true });
  for (const name of ['bootstrap.mjs', 'system-packages.mjs'])
    copyFileSync(join(PROJECT, 'scripts', name), at('scripts', name));
  for (const file of ['package-lock.json', 'tsconfig.json', 'tsconfig.build.json']) writeFileSync(at(file), '{}');
  writeFileSync(at('native-deps/fuse-kernel/build/fuse-kernel.node'), '');
  for (const name of ['build-native.mjs', 'bundle.mjs', 'page.mjs']) writeFileSync(at('scripts', name), '');
  for (const name of ['fusermount3', 'cc']) program(at('bin', name), '');
  program(
    at('bin/apt-get'),
    `require('node:fs').writeFileSync(${JSON.stringify(at('apt-get'))}, process.argv.join(' '))`,
  );
  // As npm has it: what is for developers is left out with NODE_ENV=production, unless it is asked for.
  program(
    at('bin/npm'),
    `const { mkdirSync, writeFileSync } = require('node:fs');
    mkdirSync('node_modules', { recursive: true });
    if (process.env.NODE_ENV === 'production' && !process.argv.includes('--include=dev')) process.exit(0);
    mkdirSync('node_modules/typescript/bin', { recursive: true });
    writeFileSync('node_modules/typescript/bin/tsc', '');`,
  );
});

afterEach(() => rmSync(clone, { recursive: true, force: true }));

function bootstrap(env: Record<string, string | undefined> = {}): { status: number | null; stderr: string } {
  return spawnSync(process.execPath, [at('scripts/bootstrap.mjs')], {
    env: { ...process.env, PATH: at('bin'), CC: undefined, ...env },
    encoding: 'utf8',
  });
}

testUnless(missing)('what builds is installed also where NODE_ENV=production leaves it out', () => {
  expect(bootstrap({ NODE_ENV: 'production' })).toMatchObject({ status: 0 });
  expect(existsSync(at('dist/.stamp'))).toBe(true);
});

testUnless(missing)('what somebody installed by hand without it is completed', () => {
  mkdirSync(at('node_modules'));
  writeFileSync(at('node_modules/.package-lock.json'), '{}');

  expect(bootstrap()).toMatchObject({ status: 0 });
  expect(readFileSync(at('node_modules/typescript/bin/tsc'), 'utf8')).toBe('');
});

testUnless(missing)('a compiler that is named by its whole path is there, and none is installed', () => {
  program(at('elsewhere/clang'), '');
  rmSync(at('bin/cc'));

  const { status, stderr } = bootstrap({ CC: at('elsewhere/clang') });

  expect(stderr).not.toContain('gcc');
  expect(status).toBe(0);
});

test.skipIf(missing !== null).each(['ccache clang -m64', ' clang'])(
  titled('a compiler that is named as make(1) takes it (CC=%s) is looked for by its program', missing),
  (CC) => {
    for (const name of ['ccache', 'clang']) program(at('bin', name), '');
    rmSync(at('bin/cc'));

    const { status, stderr } = bootstrap({ CC });

    expect(stderr).not.toContain('gcc');
    expect(status).toBe(0);
  },
);

test('on macOS a clone is set up without Debian packages, a compiler and the addon, and the next start prints nothing', () => {
  for (const name of ['fusermount3', 'cc']) rmSync(at('bin', name));
  rmSync(at('native-deps/fuse-kernel/build/fuse-kernel.node'));
  writeFileSync(at('scripts/build-native.mjs'), 'process.exit(1);');
  const env = { NODE_OPTIONS: `--import ${join(PROJECT, 'test/nfs/as-darwin.mjs')}` };

  const { status, stderr } = bootstrap(env);

  expect(stderr).not.toContain('apt-get');
  expect(status, stderr).toBe(0);
  // The files that the compiler and the bundler would have made.
  for (const name of [
    'mount/mounting-process.cjs',
    'mount/mount-worker.cjs',
    'mount/mounting-process.bundle.cjs',
    'mount/mount-worker.bundle.cjs',
    'cli/cfs.cjs',
    'cli/cfs-mount.cjs',
    'web/page/page.js',
    'web/page/vendor.js',
  ]) {
    mkdirSync(join(at('dist', name), '..'), { recursive: true });
    writeFileSync(at('dist', name), '');
  }
  expect(bootstrap(env)).toEqual(expect.objectContaining({ status: 0, stderr: '' }));
});

testUnless(missing)(
  'two at the same time, as npm start and npm test in a fresh clone, go one after the other',
  async () => {
    program(
      at('bin/npm'),
      `const { existsSync, mkdirSync, rmSync, writeFileSync, appendFileSync } = require('node:fs');
    appendFileSync(${JSON.stringify(at('npm-calls'))}, existsSync(${JSON.stringify(at('npm-runs'))}) ? 'beside another' : 'alone');
    writeFileSync(${JSON.stringify(at('npm-runs'))}, '');
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_000);
    rmSync(${JSON.stringify(at('npm-runs'))}, { force: true });
    mkdirSync('node_modules/typescript/bin', { recursive: true });
    writeFileSync('node_modules/typescript/bin/tsc', '');`,
    );
    // What one left that was killed is nobody's.
    writeFileSync(at('dist/.bootstrap-lock'), `${process.pid} 1`);
    const both = [0, 1].map(() =>
      spawn(process.execPath, [at('scripts/bootstrap.mjs')], {
        env: { ...process.env, PATH: at('bin'), CC: undefined },
      }),
    );

    const codes = await Promise.all(both.map(async (child) => (await once(child, 'exit'))[0]));

    expect(codes).toEqual([0, 0]);
    expect(readFileSync(at('npm-calls'), 'utf8')).toBe('alone');
    expect(existsSync(at('dist/.bootstrap-lock'))).toBe(false);
  },
);

testUnless(missing)('one that has ended, and that nobody has asked for its end, is waited for by nobody', async () => {
  // As in a container whose first process never asks: its parent only sleeps.
  const ends = 'until grep -q sleep /proc/$PPID/comm; do :; done';
  const parent = spawn('sh', ['-c', 'sh -c "$0" & echo $!; exec sleep 30', ends], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const [first] = (await once(parent.stdout, 'data')) as [Buffer];
  const pid = Number(first);
  const fieldsOf = (): string[] => readFileSync(`/proc/${pid}/stat`, 'latin1').split(') ')[1]?.split(' ') ?? [];
  await expect.poll(() => fieldsOf()[0]).toBe('Z');
  writeFileSync(at('dist/.bootstrap-lock'), `${pid} ${fieldsOf()[19]}`);

  const { status } = bootstrap({});
  parent.kill('SIGKILL');

  expect(status).toBe(0);
  expect(existsSync(at('dist/.bootstrap-lock'))).toBe(false);
});
