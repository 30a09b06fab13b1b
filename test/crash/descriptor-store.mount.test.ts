import { type ChildProcessWithoutNullStreams, execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, afterEach, beforeAll, describe, expect, onTestFailed, test, vi } from 'vitest';
import { processLife } from '../../src/base/process-life.ts';
import { O_RDWR } from '../conformance/file-api.ts';
import { NOT_FOR_PROGRAMS, runCommand } from '../harness/command.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { testUnless, titled } from '../harness/requirement.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';
import { missingForContinuity } from './killed-under-load.ts';

const CFS_MOUNT = new URL('../../dist/cli/cfs-mount.js', import.meta.url).pathname;
const SOURCE = fileURLToPath(new URL('../harness/descriptor-store.c', import.meta.url));
/** Far below what a mount takes: pages that it has before it enters the group do not count. */
const LIMIT_BYTES = 8 * 1024 ** 2;
const START_MS_MAX = 60_000;

const missing = missingForContinuity();
describe.skipIf(missing !== null)(titled('descriptor store', missing), () => {
  const group = missing === null ? limitedGroup(LIMIT_BYTES) : null;
  const limited = testUnless(group === null ? 'a control group with a limit of memory' : null);
  let mount: MountFixture;
  const scratch = mkdtempSync(join(tmpdir(), 'cfs-store-'));
  const store = join(scratch, 'descriptor-store');
  let manager: ChildProcessWithoutNullStreams;
  let ended: Promise<number | null>;
  let said = '';
  beforeAll(async () => {
    execFileSync(process.env.CC ?? 'cc', ['-O1', '-Wall', '-Wextra', '-o', store, SOURCE]);
    mount = await MountFixture.start();
    await mount.unmount();
  });
  afterEach(async () => {
    manager.kill('SIGTERM');
    await ended;
  });
  afterAll(async () => {
    await mount?.dispose();
    rmSync(scratch, { recursive: true, force: true });
    if (group !== null) await vi.waitUntil(() => isRemoved(group), { timeout: 30_000, interval: 50 });
  });

  /** The mount as a service of a manager that keeps descriptors. */
  async function startService(): Promise<void> {
    said = '';
    const socket = join(scratch, `notify-${process.hrtime.bigint()}`);
    const flags = ['--foreground', '--continuity', mount.directory];
    manager = spawn(store, [socket, process.execPath, CFS_MOUNT, ...flags], {
      env: { ...process.env, ...NOT_FOR_PROGRAMS, ...mount.env() },
    });
    manager.stdout.on('data', (text) => {
      said += text;
    });
    manager.stderr.on('data', (text) => {
      said += text;
    });
    ended = new Promise((resolve) => manager.once('exit', resolve));
    await vi.waitUntil(() => said.includes('stored cfs-memory'), { timeout: START_MS_MAX, interval: 20 });
  }

  async function pidNow(): Promise<number> {
    const pid = async (): Promise<number> => (await mount.status().catch(() => null))?.pid ?? 0;
    return await vi.waitUntil(pid, { timeout: START_MS_MAX, interval: 50 });
  }

  async function pidAfter(pid: number): Promise<number> {
    return await vi.waitUntil(
      async () => {
        const status = await mount.status().catch(() => null);
        return status !== null && status.pid !== pid && status.continuity?.lastPauseMs != null ? status.pid : 0;
      },
      { timeout: START_MS_MAX, interval: 50 },
    );
  }

  test('a mount under a service manager outlives its keeper, its launcher and all its processes', async () => {
    onTestFailed(async () => console.error(said, await mount.logs()));
    await startService();
    let pid = await pidNow();
    const program = await SyscallProcess.start(mount.directory);
    try {
      await mount.run('printf before > file');
      const fd = await program.open('file', O_RDWR);
      await program.write(fd, 6, Buffer.from(' one'));

      process.kill(parentOf(pid), 'SIGKILL'); // the keeper
      pid = await pidAfter(pid);
      await program.write(fd, 10, Buffer.from(' two'));

      process.kill(parentOf(parentOf(pid)), 'SIGKILL'); // the launcher
      pid = await pidAfter(pid);
      await program.write(fd, 14, Buffer.from(' three'));

      process.kill(pid, 'SIGKILL');
      pid = await pidAfter(pid);
      expect((await program.read(fd, 0, 100)).toString()).toBe('before one two three');
      await program.close(fd);
    } finally {
      await program.dispose();
    }
    expect((await mount.run('cat file')).stdout).toBe('before one two three');
    expect((await mount.status())?.continuity?.deaths).toBe(3);
    expect(said.match(/starting with 2/g)).toHaveLength(2);

    manager.kill('SIGTERM');
    expect(await ended).toBe(0);
    expect(said).toMatch(/removed cfs-device\nremoved cfs-memory/);
    expect(readFileSync('/proc/mounts', 'utf8')).not.toContain(` ${mount.directory} `);
  });

  limited('a mount process that exceeds a limit of memory is restarted, and programs only wait', async () => {
    onTestFailed(async () => console.error(said, await mount.logs()));
    await startService();
    const pid = await pidNow();
    const killsBefore = killsIn(group as string);
    writeFileSync(join(group as string, 'cgroup.procs'), String(pid));

    // Its heap and the pages of its files grow until the limit. How far depends on the machine: the limit comes to meet them.
    let rounds = 0;
    for (let bytes = LIMIT_BYTES; rounds < 6 && killsIn(group as string) === killsBefore; bytes /= 2) {
      limit(group as string, bytes);
      const write = `seq $i 20000 > grown-${++rounds}-$i`;
      await mount.run(`for i in $(seq 1 120); do ${write} || exit 1; done`, { timeoutMs: 120_000 });
    }

    expect(await pidNow()).not.toBe(pid);
    expect(killsIn(group as string)).toBeGreaterThan(killsBefore);
    expect((await mount.run('cat grown-* | wc -l')).stdout).toBe(`${(rounds * 120 * (20_000 + 19_881)) / 2}\n`);
  });

  const asRoot = testUnless(process.getuid?.() === 0 ? null : 'root');
  asRoot('a connection in the store that was aborted is not continued: the service mounts again', async () => {
    onTestFailed(async () => console.error(said, await mount.logs()));
    await startService();
    const pid = await pidNow();
    const [keeper, launcher] = [parentOf(pid), parentOf(parentOf(pid))];

    signal([manager.pid as number], 'SIGSTOP'); // it restarts nothing yet
    signal([launcher, keeper, pid], 'SIGKILL');
    await vi.waitUntil(() => [pid, keeper].every((each) => processLife(each) !== 'running'), { timeout: 30_000 });
    await runCommand(['umount', '-f', mount.directory], { anyExitCode: true }); // MNT_FORCE aborts
    signal([manager.pid as number], 'SIGCONT');

    await vi.waitUntil(() => said.match(/stored cfs-memory/g)?.length === 2, { timeout: START_MS_MAX, interval: 20 });
    expect(said).toMatch(/starting with 2\nremoved cfs-device\nremoved cfs-memory\nstored cfs-device/);
    await pidNow();
    // The control socket answers before the mount does.
    await vi.waitUntil(async () => (await mount.status())?.continuity !== undefined, {
      timeout: START_MS_MAX,
      interval: 20,
    });
    expect((await mount.status())?.continuity).toMatchObject({ deaths: 0, lastPauseMs: null });
    expect((await mount.run('echo again > again; cat again')).stdout).toBe('again\n');
  });
});

/** A control group with a limit of memory. Null if this user, or this machine, has none. */
function limitedGroup(bytes: number): string | null {
  for (const [controller, settings] of [
    ['/sys/fs/cgroup/memory', { 'memory.limit_in_bytes': bytes, 'memory.swappiness': 0 }],
    ['/sys/fs/cgroup', { 'memory.max': bytes, 'memory.swap.max': 0 }],
  ] as const) {
    const group = join(controller, `cfs-test-${process.pid}`);
    try {
      mkdirSync(group);
    } catch {
      continue;
    }
    try {
      for (const [name, value] of Object.entries(settings))
        writeFileSync(join(group, name), String(value), { flag: 'r+' });
      return group;
    } catch {
      rmdirSync(group);
    }
  }
  return null;
}

function signal(pids: readonly number[], name: NodeJS.Signals): void {
  for (const pid of pids) process.kill(pid, name);
}

function limit(group: string, bytes: number): void {
  const file = ['memory.limit_in_bytes', 'memory.max'].map((name) => join(group, name)).find(existsSync) ?? '';
  try {
    writeFileSync(file, String(bytes), { flag: 'r+' });
  } catch {
    // EBUSY: more is in use, and cannot be freed. The former limit stays.
  }
}

/** How many processes the kernel has killed in the group. */
function killsIn(group: string): number {
  for (const name of ['memory.oom_control', 'memory.events']) {
    const path = join(group, name);
    if (existsSync(path)) return Number(/^oom_kill (\d+)/m.exec(readFileSync(path, 'utf8'))?.[1]);
  }
  return Number.NaN;
}

/** A group is removed when its last process has been reaped. */
function isRemoved(group: string): boolean {
  try {
    rmdirSync(group);
    return true;
  } catch {
    return false;
  }
}

function parentOf(pid: number): number {
  return Number(/^PPid:\s*(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
}
