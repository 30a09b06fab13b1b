import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';

/** What `cfs status` loads decides how long it takes (ADR 23): `dist/cli/cfs.cjs` of the last build. */

const PROGRAM = new URL('../../dist/cli/cfs.cjs', import.meta.url).pathname;

let directory: string;
let loaded: { readonly files: readonly string[]; readonly modules: readonly string[] };

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-loaded-'));
  const hook = join(directory, 'hook.cjs');
  writeFileSync(
    hook,
    `process.on('exit', () => {
       process.stderr.write(JSON.stringify({ files: Object.keys(require.cache), modules: process.moduleLoadList }));
     });`,
  );
  const { stdout, stderr } = spawnSync(process.execPath, ['--require', hook, PROGRAM, 'status'], {
    env: { PATH: process.env.PATH, HOME: directory },
    encoding: 'utf8',
    timeout: 60_000,
  });
  expect(stdout).toBe('not signed in: run cfs login URL\n');
  loaded = JSON.parse(stderr) as typeof loaded;
});

afterAll(() => rmSync(directory, { recursive: true }));

test('cfs status loads one file of commands, and no options of a mount', () => {
  const files = loaded.files.map((path) => basename(path)).filter((name) => name !== 'hook.cjs');

  expect(files.sort()).toEqual(['cfs.cjs', 'chunk-clock.cjs', 'chunk-rolldown-runtime.cjs', 'chunk-status.cjs']);
});

test('cfs status loads no module of Node that it does not use', () => {
  expect(loaded.modules).toContain('NativeModule net');
  for (const module of ['child_process', 'crypto', 'dgram', 'dns', 'fs/promises', 'readline', 'timers/promises'])
    expect(loaded.modules).not.toContain(`NativeModule ${module}`);
});
