import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';

/** The maintainer scripts of the Debian package, on a directory that stands for /usr/lib/cfs-mount. A copy of sleep(1) stands for Node. */

const { maintainerScript } = await import(new URL('../../scripts/package/debian-package.mjs', import.meta.url).href);
const SLEEP = execFileSync('sh', ['-c', 'command -v sleep'], { encoding: 'utf8' }).trim();
let directory: string;
let root: string;
let running: ChildProcess[] = [];

beforeEach(() => {
  directory = realpathSync(mkdtempSync(join(tmpdir(), 'cfs-versions-')));
  root = join(directory, 'cfs-mount');
});

afterEach(async () => {
  for (const child of running) await ended(child);
  running = [];
  rmSync(directory, { recursive: true });
});

/** What dpkg does with the files of a version: new inodes take the places of the old ones. */
function unpack(version: string): void {
  rmSync(join(root, 'package'), { recursive: true, force: true });
  mkdirSync(join(root, 'package/bin'), { recursive: true });
  copyFileSync(SLEEP, join(root, 'package/bin/node'));
  writeFileSync(join(root, 'package/part.js'), version);
}

function run(name: 'postinst' | 'postrm', version: string, ...args: string[]): string {
  const path = join(directory, name);
  writeFileSync(path, maintainerScript(name, version, root));
  chmodSync(path, 0o755);
  const { status, stderr } = spawnSync(path, args, { encoding: 'utf8', env: { PATH: process.env.PATH ?? '' } });
  expect(status).toBe(0);
  return stderr;
}

function install(version: string): string {
  unpack(version);
  return run('postinst', version, 'configure', '');
}

function remove(version: string): string {
  rmSync(join(root, 'package'), { recursive: true });
  return run('postrm', version, 'remove');
}

/** A process that runs from the current version. */
async function start(): Promise<ChildProcess> {
  const child = spawn(join(root, 'current/bin/node'), ['600'], { stdio: 'ignore' });
  running.push(child);
  await once(child, 'spawn');
  return child;
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill();
  await once(child, 'exit');
}

const versions = (): string[] => readdirSync(join(root, 'versions')).sort();

test('an installation keeps the version in a directory of its own, and points to it', () => {
  expect(install('1-1')).toBe('');

  expect(readlinkSync(join(root, 'current'))).toBe('versions/1-1');
  expect(readFileSync(join(root, 'current/part.js'), 'utf8')).toBe('1-1');
});

test('an upgrade leaves the version of a running process complete, and the next one removes it', async () => {
  install('1-1');
  const mount = await start();
  install('2-1');

  expect(versions()).toEqual(['1-1', '2-1']);
  expect(readlinkSync(join(root, 'current'))).toBe('versions/2-1');
  expect(readFileSync(join(root, 'versions/1-1/part.js'), 'utf8')).toBe('1-1');
  await ended(mount);
  install('3-1');
  expect(versions()).toEqual(['3-1']);
});

test('the same version again repairs its directory, and keeps what a running process has', async () => {
  install('1-1');
  await start();
  rmSync(join(root, 'versions/1-1/part.js'));

  install('1-1');

  expect(readFileSync(join(root, 'current/part.js'), 'utf8')).toBe('1-1');
  expect(remove('1-1')).toContain('a mount still runs');
  expect(versions()).toEqual(['1-1']);
});

test('a removal takes everything away unless a process runs from it', async () => {
  install('1-1');
  expect(remove('1-1')).toBe('');
  expect(existsSync(root)).toBe(false);

  install('1-1');
  const mount = await start();
  const said = remove('1-1');
  expect(said).toContain(`${root}/versions/1-1/bin/cfs umount`);
  expect(readFileSync(join(root, 'versions/1-1/part.js'), 'utf8')).toBe('1-1');
  expect(existsSync(join(root, 'current'))).toBe(false);
  await ended(mount);
  run('postrm', '1-1', 'purge');
  expect(existsSync(root)).toBe(false);
});

test.each([
  ['nothing is unpacked', () => undefined],
  [
    'versions is a file',
    () => {
      unpack('1-1');
      writeFileSync(join(root, 'versions'), '');
    },
  ],
  [
    'a leftover of an interrupted installation',
    () => {
      unpack('1-1');
      mkdirSync(join(root, 'versions/.new'), { recursive: true });
    },
  ],
  [
    'an empty directory of a version',
    () => {
      unpack('1-1');
      mkdirSync(join(root, 'versions/0-1'), { recursive: true });
    },
  ],
])('the scripts end with 0 where %s', (_what, prepare) => {
  prepare();

  run('postinst', '1-1', 'configure', '0-1');
  for (const action of ['upgrade', 'abort-install', 'abort-upgrade', 'failed-upgrade', 'remove', 'purge', 'disappear'])
    run('postrm', '1-1', action);
});

test('without a directory of its own the version runs from where dpkg unpacked it', () => {
  unpack('1-1');
  writeFileSync(join(root, 'versions'), '');

  expect(run('postinst', '1-1', 'configure', '')).toContain('unmount before the next upgrade');
  expect(readFileSync(join(root, 'current/part.js'), 'utf8')).toBe('1-1');
});
