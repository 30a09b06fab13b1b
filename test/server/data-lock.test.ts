import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { abstractName, lockData } from '../../src/server/data-lock.ts';
import { showRunning } from '../../src/server/running-mark.ts';
import { missingNodeForOtherUsers, testUnless } from '../harness/requirement.ts';

/** One server per directory, also where they share nothing but that (docs/service.md 1). */

let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-lock-'));
});

afterEach(() => {
  rmSync(directory, { recursive: true });
});

test('a data directory shows its running server until that ends', async () => {
  const remove = await showRunning(directory);

  expect(await showRunning(directory)).toBeNull();
  await remove?.();

  expect(readdirSync(directory)).toEqual([]);
  const again = await showRunning(directory);
  expect(again).not.toBeNull();
  await again?.();
});

test('exactly one of several concurrent starts gets the data directory', async () => {
  const outcomes = await Promise.all([1, 2, 3, 4].map(() => showRunning(directory)));

  const winners = outcomes.filter((remove) => remove !== null);
  expect(winners).toHaveLength(1);
  expect(readdirSync(directory)).toHaveLength(1);
  for (const remove of winners) await remove();
});

/** Listens as a server does, and says so. */
const LISTENER = `
require('node:net').createServer().listen(process.argv[1], () => console.log('listens'));
`;

test('what SIGKILL left of a server keeps nobody away, and is removed', async () => {
  const killed: ChildProcess = spawn(process.execPath, ['-e', LISTENER, join(directory, 'running.killed')], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(killed.stdout as NodeJS.ReadableStream, 'data');
  const whileItLived = await showRunning(directory);
  const ended = once(killed, 'exit');
  killed.kill('SIGKILL');
  await ended;
  expect(readdirSync(directory)).toEqual(['running.killed']);

  const remove = await showRunning(directory);

  expect(whileItLived).toBeNull();
  expect(remove).not.toBeNull();
  expect(readdirSync(directory)).not.toContain('running.killed');
  await remove?.();
});

test('what is called as a mark is and is none, as a log of the server, stays', async () => {
  writeFileSync(join(directory, 'running.log'), 'listens');

  const remove = await showRunning(directory);

  expect(remove).not.toBeNull();
  await remove?.();
  expect(readdirSync(directory)).toEqual(['running.log']);
});

test('a directory whose path is longer than a socket address may be is locked like any other', async () => {
  const deep = join(directory, 'd'.repeat(100), 'e'.repeat(100));
  mkdirSync(deep, { recursive: true });

  const remove = await showRunning(deep);

  expect(await showRunning(deep)).toBeNull();
  await remove?.();
  expect(readdirSync(deep)).toEqual([]);
});

test('a lock that is refused leaves nothing behind, and does not disturb the one who has it', async () => {
  const unlock = await lockData(directory);
  const before = readdirSync(directory);

  const refused = { message: `another server runs on ${directory}`, exitCode: exitCode('alreadyMounted') };
  await expect(lockData(directory)).rejects.toMatchObject(refused);

  expect(readdirSync(directory)).toEqual(before);
  await unlock();
  await (await lockData(directory))();
  expect(readdirSync(directory)).toEqual([]);
});

test('a server whose mark alone is seen is not joined', async () => {
  const remove = await showRunning(directory);

  await expect(lockData(directory)).rejects.toThrow(`another server runs on ${directory}`);

  await remove?.();
  await (await lockData(directory))();
});

const SQUATTER = `
require('node:net').createServer().listen('\\0' + process.argv[1], () => console.log('listens'));
`;

/** A process that holds the name of the directory. @param uid of its user */
async function squatter(uid: number): Promise<ChildProcess> {
  const child = spawn(process.execPath, ['-e', SQUATTER, abstractName(directory)], {
    stdio: ['ignore', 'pipe', 'inherit'],
    cwd: '/',
    uid,
  });
  await once(child.stdout as NodeJS.ReadableStream, 'data');
  return child;
}

testUnless(missingNodeForOtherUsers())('another user who holds the name keeps no server from starting', async () => {
  const stranger = await squatter(65_534);

  const unlock = await lockData(directory);
  await expect(lockData(directory)).rejects.toThrow('another server runs');
  await unlock();

  stranger.kill('SIGKILL');
});

test('a process of the same user that holds the name is another server', async () => {
  const server = await squatter(process.getuid?.() ?? 0);

  await expect(lockData(directory)).rejects.toThrow('another server runs');

  server.kill('SIGKILL');
});
