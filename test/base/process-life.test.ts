import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { expect, onTestFinished, test } from 'vitest';
import { processLife, processStart } from '../../src/base/process-life.ts';
import { deadButListed } from '../harness/dead-but-listed.ts';

test('a process runs from its start on, and has ended once nobody lists it', async () => {
  const child = spawn('sleep', ['60']);
  await once(child, 'spawn');
  const pid = child.pid ?? 0;
  expect(processLife(pid)).toBe('running');
  expect(Number(processStart(pid))).toBeGreaterThanOrEqual(Number(processStart(process.pid)));

  child.kill();
  await once(child, 'exit');

  expect(processLife(pid)).toBe('ended');
  expect(processStart(pid)).toBeNull();
});

test('a process has ended though its parent did not ask for it', async () => {
  const { pid, dispose } = await deadButListed();
  onTestFinished(dispose);

  expect(process.kill(pid, 0), 'kill(2) finds it').toBe(true);
  expect(processLife(pid)).toBe('ended');
});
