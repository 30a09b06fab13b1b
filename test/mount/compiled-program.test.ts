import { spawnSync } from 'node:child_process';
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { MOUNT_FLAGS } from '../../src/mount/launch.ts';

const DIST = new URL('../../dist/mount/', import.meta.url).pathname;
/** The program ends later than the code of a thread is stored. */
const LONG_MS = 3_500;

let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-compiled-'));
  copyFileSync(join(DIST, 'mount-worker.cjs'), join(directory, 'program.cjs')); // that of the process starts a Worker, too
});

afterEach(() => rmSync(directory, { recursive: true }));

/** A bundle with this program. */
function write(source: string): void {
  const [begin] = readFileSync(join(DIST, 'mount-worker.bundle.cjs'), 'utf8').split('\n', 1);
  writeFileSync(join(directory, 'program.bundle.cjs'), `${begin}\n${source}\n})`);
}

function run(env: NodeJS.ProcessEnv = {}): { readonly stdout: string; readonly status: number | null } {
  const { stdout, stderr, status } = spawnSync(process.execPath, [join(directory, 'program.cjs')], {
    env: { ...process.env, NODE_OPTIONS: '', XDG_CACHE_HOME: join(directory, 'cache'), ...env },
    encoding: 'utf8',
    timeout: 60_000,
  });
  expect(stderr).toBe('');
  return { stdout, status };
}

/** The file of compiled code. */
function stored(): string {
  const place = join(directory, 'cache/cfs/compiled');
  const [name, ...others] = readdirSync(place);
  expect(others).toEqual([]);
  return join(place, name as string);
}

const LASTING = `const said = () => __filename + ' ' + require('node:path').basename(process.argv[1]);
console.log(said());
setTimeout(() => {}, ${LONG_MS});`;

test('a program is compiled once, and its code is stored for this user only', () => {
  write(LASTING);

  const first = run();
  const { ino, mode } = statSync(stored());
  const second = run();

  expect(first.stdout).toBe(`${join(directory, 'program.bundle.cjs')} program.cjs\n`);
  expect(second).toEqual(first);
  expect(mode & 0o777).toBe(0o600);
  // V8 accepted the code: otherwise the second run would have stored its own.
  expect(statSync(stored()).ino).toBe(ino);
});

test('damaged code, and code of another program of the same length, is not used', () => {
  write(LASTING);
  run();
  const whole = readFileSync(stored());
  const at = whole.byteLength >> 1;
  whole[at] = (whole[at] as number) ^ 1;
  writeFileSync(stored(), whole);

  expect(run().status).toBe(0);
  expect(readFileSync(stored())[at]).not.toBe(whole[at]);

  write(LASTING.replace("' '", "'-'"));
  expect(run().stdout).toBe(`${join(directory, 'program.bundle.cjs')}-program.cjs\n`);
});

test.each([
  ['whose directory cannot be made', () => writeFileSync(join(directory, 'cache'), '')],
  ['whose directory has the name of the code', () => mkdirSync(join(directory, 'cache'), { mode: 0o500 })],
])('a program %s runs all the same', (_what, prepare) => {
  prepare();
  write(LASTING);

  expect(run().status).toBe(0);
});

/** The modules of Node that the mounting process has loaded until it refuses an empty command line, and those of them that were compiled. */
function modulesOfNode(): { readonly loaded: readonly string[]; readonly compiled: readonly string[] } {
  const hook = join(directory, 'hook.cjs');
  // Node's own tests of its cache use this function, too.
  writeFileSync(
    hook,
    `process.on('exit', () => {
       const { internalBinding } = require('internal/test/binding');
       const { compiledWithoutCache } = internalBinding('builtins').getCacheUsage();
       console.log(JSON.stringify({ loaded: process.moduleLoadList, compiled: [...compiledWithoutCache] }));
     });`,
  );
  const { stdout } = spawnSync(
    process.execPath,
    [...MOUNT_FLAGS, '--expose-internals', '--no-warnings', '--require', hook, join(DIST, 'mounting-process.cjs')],
    { env: { PATH: process.env.PATH, HOME: directory }, encoding: 'utf8', timeout: 60_000 },
  );
  return JSON.parse(stdout.trim().split('\n').at(-1) as string);
}

test('the modules of Node that a mount loads are not compiled again', () => {
  const { loaded, compiled } = modulesOfNode();

  for (const module of ['net', 'http', 'worker_threads', 'v8']) expect(loaded).toContain(`NativeModule ${module}`);
  // Node loads this one, under `MOUNT_FLAGS`, before any file of ours.
  expect(compiled.filter((module) => module !== 'internal/main/run_main_module')).toEqual([]);
});

test('a mount loads no TLS and no HTTP/2 before it needs them', () => {
  const { loaded } = modulesOfNode();

  expect(loaded).toContain('NativeModule http');
  for (const module of ['tls', 'http2', 'https']) expect(loaded).not.toContain(`NativeModule ${module}`);
});

test('modules of Node that a start does not need are not loaded', () => {
  const hook = join(directory, 'hook.cjs');
  writeFileSync(hook, `process.on('exit', () => console.log(JSON.stringify(process.moduleLoadList)));`);
  const { stdout } = spawnSync(process.execPath, ['--require', hook, join(DIST, 'mount-worker.cjs')], {
    env: { PATH: process.env.PATH, HOME: directory },
    encoding: 'utf8',
    timeout: 60_000,
  });

  const ofWorker = JSON.parse(stdout) as string[];
  expect(ofWorker).toContain('NativeModule zlib');
  for (const module of ['assert', 'child_process', 'crypto']) expect(ofWorker).not.toContain(`NativeModule ${module}`);
  const { loaded } = modulesOfNode();
  for (const module of ['dns', 'readline']) expect(loaded).not.toContain(`NativeModule ${module}`);
});

test('no bundle loads a module of Node without using it', () => {
  const bundles = [DIST, join(DIST, '../cli/')].flatMap((folder) =>
    readdirSync(folder).flatMap((name) => (name.endsWith('.cjs') ? [join(folder, name)] : [])),
  );

  expect(bundles.length).toBeGreaterThan(20);
  expect(bundles.filter((path) => /^require\("node:/m.test(readFileSync(path, 'latin1')))).toEqual([]);
});

test('the Worker loads native halves and ordered-binary from packages, and no other code', () => {
  const hook = join(directory, 'hook.cjs');
  writeFileSync(hook, `process.on('exit', () => console.log(JSON.stringify(Object.keys(require.cache))));`);

  const { stdout } = spawnSync(process.execPath, ['--require', hook, join(DIST, 'mount-worker.cjs')], {
    env: { PATH: process.env.PATH, HOME: directory },
    encoding: 'utf8',
    timeout: 60_000,
  });

  const loaded = (JSON.parse(stdout) as string[]).filter((path) => /\/node_modules\/.*(?<!json)$/.test(path));
  const names = loaded.map((path) =>
    path
      .split('/node_modules/')
      .at(-1)
      ?.replace(/-linux-.*\.node$/, ' (native)'),
  );
  expect(names.sort()).toEqual([
    '@lmdb/lmdb (native)',
    '@msgpackr-extract/msgpackr-extract (native)',
    'ordered-binary/dist/index.cjs',
  ]);
});
