import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { SyncOutcome } from '../../src/control/status-model.ts';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { PROJECT } from '../imports.ts';
import { answeringMount } from './answering-mount.ts';
import { CommandHome } from './cli-harness.ts';

/** The built program, of which nobody reads the words any more: `cfs … 2>&1 | head -1`. */

const PARKED = ['one', 'two'].map((path) => ({ path, kind: 'upload', reason: 'over the limit', sinceMs: 0 }) as const);

let home: CommandHome;

beforeEach(() => {
  home = new CommandHome();
});

afterEach(() => home.dispose());

test.each(['stdout', 'stderr'] as const)('a command whose %s was closed ends as it would have', async (closed) => {
  const { name } = home.plantAccount();
  let closedOutput = (): Promise<unknown> => Promise.resolve();
  const sync = async (): Promise<SyncOutcome> => {
    await closedOutput();
    return { pushed: 0, parked: PARKED, open: 0 };
  };
  await answeringMount(home, { name, directory: home.path('Cloud') }, { sync });
  const child = spawn(process.execPath, [join(PROJECT, 'dist/cli/cfs.js'), 'sync', '--wait'], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...home.env },
  });
  const said = { stdout: '', stderr: '' };
  for (const output of ['stdout', 'stderr'] as const) {
    child[output].setEncoding('utf8').on('data', (text: string) => {
      said[output] += text;
    });
  }
  closedOutput = () => {
    child[closed].destroy();
    return once(child[closed], 'close');
  };
  const [code] = await once(child, 'close');

  expect(code, said.stderr).toBe(exitCode('parked'));
  if (closed === 'stderr') expect(said.stdout).toBe('2 changes are parked and need you: cfs status says why\n');
  else expect(said.stderr.split('\n')).toHaveLength(PARKED.length + 1);
});
