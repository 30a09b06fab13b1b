import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';

const { run } = (await import(new URL('../../scripts/measure/ground.mjs', import.meta.url).href)) as {
  readonly run: (command: string, how: { readonly env: NodeJS.ProcessEnv }) => { readonly out: string };
};

let home: string;

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), 'cfs-bench-shell-'));
  writeFileSync(join(home, '.bashrc'), 'echo from bashrc\n');
});

afterEach(() => rmSync(home, { recursive: true }));

test.each([undefined, '0', '1'])('a measured command runs without ~/.bashrc if SHLVL is %s', (SHLVL) => {
  const { out } = run('echo measured', { env: { PATH: process.env.PATH, HOME: home, SHLVL } });

  expect(out).toBe('measured\n');
});
