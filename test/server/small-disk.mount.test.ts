import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdtempSync, openSync, rmdirSync, rmSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openAdministration } from '../../src/server/local-back-end.ts';
import { signUpAt, texts } from './raw-client.ts';

/**
 * `cfs serve`, as the built program, with data and log on a real file system of 32 MiB. An upload fills it as far as the server lets
 * it, another program fills the rest.
 */

const MIB = 1024 * 1024;
const PROGRAM = fileURLToPath(new URL('../../dist/cli/cfs.js', import.meta.url));
const isRoot = process.getuid?.() === 0;

let disk: string;
let child: ChildProcess;

beforeEach(() => {
  disk = mkdtempSync(join(tmpdir(), 'cfs-small-disk-'));
  if (isRoot) expect(spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=32m', 'tmpfs', disk]).status).toBe(0);
});

afterEach(() => {
  child?.kill('SIGKILL');
  spawnSync('umount', ['-l', disk]);
  rmdirSync(disk);
});

const freeBytes = () => {
  const { bavail, bsize } = statfsSync(disk);
  return bavail * bsize;
};

/** @returns its origin, once it listens */
async function start(): Promise<string> {
  const log = openSync(join(disk, 'log'), 'a');
  const args = [PROGRAM, 'serve', '--data', join(disk, 'data'), '--log-level', 'debug', '--ready-fd', '3'];
  child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', log, 'pipe'] });
  closeSync(log);
  const [line] = await once(createInterface(child.stdio[3] as NodeJS.ReadableStream), 'line');
  return (JSON.parse(line as string) as { origin: string }).origin;
}

async function stop(): Promise<void> {
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  expect(await ended).toEqual([0, null]);
}

describe.skipIf(!isRoot)(`a disk of 32 MiB${isRoot ? '' : ' (needs: root, to mount it)'}`, () => {
  test('a full disk ends no server and no start, and users can free it by deletions', async () => {
    const data = await openAdministration({ dataDirectory: join(disk, 'data') });
    const origin = await start();
    const user = await signUpAt(origin, data.administration, 'a@example.com');
    await data.close();
    const file = await user.client.createFile(user.folder('2'), 'large');
    const version = (await user.client.send('POST', `${file}/version`)).headers.location as string;

    const body = Buffer.alloc(40 * MIB, 'data');
    const chunked = { 'Transfer-Encoding': 'chunked' };
    const upload = await user.client.send('PUT', `${version}/data`, { body, headers: chunked });
    expect(upload.status).toBe(507);
    expect(freeBytes()).toBeGreaterThan(7 * MIB);

    expect(spawnSync('dd', ['if=/dev/zero', `of=${join(disk, 'ballast')}`, 'bs=4k'], { stdio: 'ignore' }).status).toBe(
      1,
    );
    expect(freeBytes()).toBe(0);
    expect((await user.client.send('DELETE', file)).status).toBe(507);
    await stop();
    expect(await start()).toBe(origin);
    const stored = Number(texts((await user.client.get(version)).text, 'storedSize')[0]);
    expect(stored).toBeGreaterThan(16 * MIB);

    rmSync(join(disk, 'ballast'));
    expect((await user.client.send('DELETE', file)).status).toBe(204);
    expect(freeBytes()).toBeGreaterThan(24 * MIB);
    await user.client.createFilled(user.folder('2'), 'small again', body.subarray(0, 8 * MIB));
    await stop();
  });
});
