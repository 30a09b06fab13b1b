import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, readlinkSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFailed } from 'vitest';
import { accountPaths, pathsOf } from '../../src/config/paths.ts';
import { accountStates } from '../../src/mount/running-mounts.ts';
import { NOT_FOR_PROGRAMS, runCommand } from '../harness/command.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { missingFile, testUnless } from '../harness/requirement.ts';
import { PROJECT } from '../imports.ts';

/** `bin/cfs-mount` in the background: the mounting process without a launcher. */

const BIN = join(PROJECT, 'bin/cfs-mount');
const needed = missingFile('/usr/bin/setsid');
let folder: string;
let mount: MountFixture;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'cfs-shell-launch-'));
  mount = await MountFixture.start();
  await mount.run('echo kept > file');
  await mount.unmount();
});

afterAll(async () => {
  await mount?.dispose();
  rmSync(folder, { recursive: true, force: true });
});

/** As a person types it. */
function cfsMount(words: string, env: Readonly<Record<string, string>> = {}) {
  const command = `'${BIN}' ${words} '${mount.directory}'`;
  return runCommand(['sh', '-c', command], { anyExitCode: true, env: { ...mount.env(), ...env } });
}

const isMounted = (): boolean => readFileSync('/proc/mounts', 'utf8').includes(` ${mount.directory} `);

testUnless(needed)(
  'a mount in the background is one process in a session of its own, with its output in its log',
  async () => {
    onTestFailed(mount.printLogs);
    const { code, stdout, stderr } = await cfsMount('-o ro', { CFS_SETLE: '1s', CFS_PASSWORD: 'secret' });

    expect([code, stdout]).toEqual([0, `mounted ${mount.server.account.username} at ${mount.directory}\n`]);
    expect(stderr).toMatch(/^cfs-mount: CFS_SETLE has no effect: .*\n$/);
    expect((await mount.run('cat file')).stdout).toBe('kept\n');
    const pid = (await mount.status())?.pid ?? 0;
    const [, parent, group, session] = /^\d+ \(.*\) \S (\d+) (\d+) (\d+)/.exec(textOfProcess(pid, 'stat')) ?? [];
    expect([group, session]).toEqual([String(pid), String(pid)]);
    expect(Number(parent)).not.toBe(process.pid);
    for (const output of [1, 2]) expect(readlinkSync(`/proc/${pid}/fd/${output}`)).toMatch(/\/mount\.log$/);
    expect(readlinkSync(`/proc/${pid}/cwd`)).toBe('/');
    expect(textOfProcess(pid, 'environ')).not.toContain('secret');
    await mount.cfs(['umount']);
  },
);

testUnless(needed)('the launcher prints the errors of a start', async () => {
  expect(await cfsMount('--nonsense')).toEqual({
    code: 2,
    stdout: '',
    stderr: "cfs-mount: unknown option '--nonsense'\n",
  });
  expect((await cfsMount('--account nobody')).stderr).toMatch(/^cfs-mount: no account nobody/);
});

testUnless(needed)('a store that cannot be opened is reported on the terminal', async () => {
  const { storeDirectory } = accountPaths(
    pathsOf(mount.env()),
    (await accountStates(pathsOf(mount.env())))[0]?.name ?? '',
  );
  renameSync(storeDirectory, join(folder, 'store'));
  writeFileSync(storeDirectory, 'a file in the place of the store');
  const { code, stdout, stderr } = await cfsMount('');
  rmSync(storeDirectory);
  renameSync(join(folder, 'store'), storeDirectory);

  expect([code, stdout]).toEqual([2, '']);
  expect(stderr).toBe(`cfs-mount: ${storeDirectory}: it already exists (EEXIST)\n`);
  expect(isMounted()).toBe(false);
});

testUnless(needed)('a mount that dies while it starts is reported with its log', async () => {
  const hook = join(folder, 'dying.cjs');
  writeFileSync(hook, `if (!require('node:worker_threads').isMainThread) process.kill(process.pid, 'SIGKILL');`);
  const { code, stderr } = await cfsMount('', { NODE_OPTIONS: `--require ${hook}` });

  expect(code).not.toBe(0);
  expect(stderr).toMatch(/^cfs-mount: the mount process ended immediately.*; its log is .*mount\.log\n$/);
});

testUnless(needed)('Ctrl-C during a start takes the mount away again', async () => {
  const [hook, started] = [join(folder, 'slow.cjs'), join(folder, 'started')];
  writeFileSync(
    hook,
    `if (require('node:worker_threads').isMainThread) require('node:fs').writeFileSync(${JSON.stringify(started)}, '');
     else Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_000);`,
  );
  const env = { ...process.env, ...NOT_FOR_PROGRAMS, ...mount.env(), NODE_OPTIONS: `--require ${hook}` };
  const starting: ChildProcess = spawn(BIN, [mount.directory], { detached: true, stdio: 'ignore', env });
  const ended = new Promise((resolve) => starting.once('exit', (code, signal) => resolve(code ?? signal)));
  await expect.poll(() => existsSync(started), { interval: 20, timeout: 10_000 }).toBe(true);
  process.kill(-(starting.pid ?? 0), 'SIGINT');

  expect(await ended).toBe(0);
  expect(isMounted()).toBe(false);
});

function textOfProcess(pid: number, file: string): string {
  return readFileSync(`/proc/${pid}/${file}`, 'utf8');
}
