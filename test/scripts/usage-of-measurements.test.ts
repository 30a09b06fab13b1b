import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** Runs the script as `npm run` does. A script that measures instead of refusing is stopped, and has no exit code. */
function runScript(script: string, ...words: string[]) {
  const options = { cwd: root, encoding: 'utf8', timeout: 100_000 } as const;
  const { status, stdout, stderr } = spawnSync(process.execPath, [`scripts/${script}.mjs`, ...words], options);
  return { status, stdout, stderr };
}

test.each(['bench', 'soak'])('%s --help names the parts and runs none', (script) => {
  const { status, stdout } = runScript(script, '--help');

  expect(status).toBe(0);
  for (const part of script === 'bench' ? ['content', 'cost', 'report'] : ['clients', 'packages'])
    expect(stdout).toContain(part);
});

test.each([
  ['bench', 'nothing'],
  ['bench', '--nothing'],
  ['bench', 'content', '--nothing=1'],
  ['soak', 'nothing'],
  ['soak', '--nothing'],
  ['soak', 'model', '--nothing'],
])('%s %s is refused before it measures', (...words) => {
  const [script, ...rest] = words as [string, ...string[]];
  const { status, stdout, stderr } = runScript(script, ...rest);

  expect(status).toBe(2);
  expect(stdout).toBe('');
  expect(stderr).toContain('nothing');
});
