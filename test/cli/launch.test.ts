import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { UsageError } from '../../src/base/errors.ts';
import { DemoServer } from '../../src/cli/demo/demo-server.ts';
import { launchMount } from '../../src/mount/launch.ts';
import type { MountRequest } from '../../src/mount/mount-request.ts';

/** Processes that do not start, or hear nothing any more: a person is told in words, and nothing ends this process. */

const UNUSED = { logFile: null, foreground: true, options: {} } as MountRequest;
const { execPath } = process;

let directory: string;
/** What would have ended a process. */
let deadly: unknown[];
const note = (reason: unknown): void => void deadly.push(reason);

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'cfs-launch-'));
  deadly = [];
  process.on('unhandledRejection', note);
  process.on('uncaughtException', note);
});

afterEach(() => {
  process.off('unhandledRejection', note);
  process.off('uncaughtException', note);
  process.execPath = execPath;
  rmSync(directory, { recursive: true });
});

/** @returns what it was rejected with */
async function failureOf(promise: Promise<unknown>): Promise<unknown> {
  const failure = await promise.then(
    () => null,
    (error: unknown) => error,
  );
  await nextTurn();
  return failure;
}

test.each([
  ['the mount process', () => launchMount(UNUSED)],
  ['the embedded server', () => DemoServer.start(directory)],
])('%s that cannot be started', async (name, start) => {
  process.execPath = join(directory, 'no-such-program');

  const failure = await failureOf(start());

  expect(failure).toBeInstanceOf(UsageError);
  expect(failure).toMatchObject({ message: expect.stringMatching(`^${name} cannot be started: .*ENOENT`) });
  expect(deadly).toEqual([]);
});

test('an embedded server whose channel is closed', async () => {
  const program = join(directory, 'server.cjs');
  writeFileSync(
    program,
    `process.on('message', () => {}); process.send({ type: 'listening', origin: 'http://here' });`,
  );
  const server = await DemoServer.start(directory, program);

  const stopped = server.stop();
  const failure = await failureOf(server.prepareUser('demo@example.com', 'unused'));
  await stopped;

  expect(failure).toBeInstanceOf(UsageError);
  expect(failure).toMatchObject({ message: 'a request to the embedded server could not be sent: Channel closed' });
  expect(deadly).toEqual([]);
});
