import { type ChildProcess, spawn } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFailed, test, vi } from 'vitest';
import { NOT_FOR_PROGRAMS, runCommand } from '../harness/command.ts';
import { NfsClient } from './nfs-client.ts';

/**
 * The built program as on macOS: `as-darwin.mjs` hides what macOS does not have. The test is the kernel: the false mount_nfs waits until it has
 * taken the root's handle, and writes the mount table.
 */

const CFS = join(process.env.CFS_TEST_DIST ?? new URL('../../dist/cli/', import.meta.url).pathname, 'cfs.js');
const MODULE = new URL('as-darwin.mjs', import.meta.url).pathname;
const START_MS_MAX = 60_000;
const COMMANDS = {
  mount_nfs:
    'printf "%s\\n" "$@" > $CFS_TEST_DARWIN/words.new && mv $CFS_TEST_DARWIN/words.new $CFS_TEST_DARWIN/words\nuntil [ -e $CFS_TEST_DARWIN/table ]; do sleep 0.05; done',
  mount: 'cat $CFS_TEST_DARWIN/table 2> /dev/null',
  umount: 'echo "$@" >> $CFS_TEST_DARWIN/unmounted; rm -f $CFS_TEST_DARWIN/table',
  fusermount3: 'echo "$0 $@" >> $CFS_TEST_DARWIN/wrong; exit 1',
  diskutil: 'echo "$0 $@" >> $CFS_TEST_DARWIN/wrong; exit 1',
};

let folder: string;
let directory: string;
let demo: ChildProcess;
let said = '';
let client: NfsClient;
let root: Buffer;

/** Without PATH: the system's commands must be found by the program itself. */
function env(): Record<string, string | undefined> {
  return {
    ...NOT_FOR_PROGRAMS,
    HOME: folder,
    XDG_STATE_HOME: join(folder, 'state'),
    XDG_CONFIG_HOME: join(folder, 'config'),
    XDG_RUNTIME_DIR: join(folder, 'runtime'),
    CFS_TEST_DARWIN: folder,
    NODE_OPTIONS: `--import ${MODULE}`,
  };
}

function cfs(...words: string[]): Promise<{ readonly code: number; readonly stdout: string; readonly stderr: string }> {
  return runCommand([process.execPath, CFS, ...words], { env: env(), anyExitCode: true });
}

beforeAll(async () => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), 'cfs-darwin-')));
  directory = join(folder, 'Cloud');
  for (const name of ['Cloud', 'state', 'config', 'runtime']) mkdirSync(join(folder, name), { mode: 0o700 });
  for (const [name, script] of Object.entries(COMMANDS))
    writeFileSync(join(folder, name), `#!/bin/sh\nCFS_TEST_DARWIN=${folder}\n${script}\n`, { mode: 0o755 });
  demo = spawn(process.execPath, [CFS, 'demo', directory], {
    env: { ...process.env, ...env() },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  for (const stream of [demo.stdout, demo.stderr])
    stream?.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
  const wordsFile = join(folder, 'words');
  await vi.waitUntil(() => existsSync(wordsFile) || demo.exitCode !== null, { timeout: START_MS_MAX });
  expect(existsSync(wordsFile), said).toBe(true);
  const words = readFileSync(wordsFile, 'utf8').trim().split('\n');
  const [source = '', place] = words.slice(-2);
  expect(place).toBe(directory);
  client = await NfsClient.connect(Number(/port=(\d+)/.exec(words.join(' '))?.[1]));
  root = await client.mnt(source.slice(source.indexOf(':') + 1));
  writeFileSync(join(folder, 'table.new'), `${source} on ${directory} (nfs, nodev, nosuid, mounted by someone)\n`);
  renameSync(join(folder, 'table.new'), join(folder, 'table'));
}, 2 * START_MS_MAX);

afterAll(async () => {
  client?.close();
  if (demo?.exitCode === null) {
    demo.kill('SIGTERM');
    await new Promise((resolve) => demo.once('exit', resolve));
  }
  rmSync(folder, { recursive: true, force: true });
});

test('a mount as on macOS serves files, pushes them, reports its state and unmounts', async () => {
  onTestFailed(() => console.error(said));
  await expect.poll(() => client.names(root)).toContain('Welcome.txt');
  const file = await client.create(root, 'letter.txt', Buffer.from('verifier'));
  await client.create(root, '._letter.txt', Buffer.from('another.'));
  await client.write(file, 0, 'bytes');
  await client.commit(file);

  const sync = await cfs('sync', '--wait');
  expect(sync.code, sync.stderr + said).toBe(0);
  const status = await cfs('status');
  expect(status.stdout).toContain(directory);
  await client.rename(root, 'letter.txt', root, 'renamed.txt');
  expect(await client.names(root)).toContain('._renamed.txt');

  const umount = await cfs('umount');
  expect(umount.code, umount.stderr + said).toBe(0);
  expect(readFileSync(join(folder, 'unmounted'), 'utf8')).toBe(`${directory}\n`);
  await expect.poll(() => demo.exitCode).toBe(0);
  expect(existsSync(join(folder, 'wrong')), 'a command of Linux was run').toBe(false);
});
