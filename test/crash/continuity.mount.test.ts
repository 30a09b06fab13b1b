import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, onTestFailed, test, vi } from 'vitest';
import { processLife } from '../../src/base/process-life.ts';
import { O_CREAT, O_RDONLY, O_RDWR, O_TMPFILE } from '../conformance/file-api.ts';
import { runCommand } from '../harness/command.ts';
import { tellFigures } from '../harness/figures.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { OtherProgram } from '../harness/other-program.ts';
import { titled } from '../harness/requirement.ts';
import { seedsOf } from '../harness/seeds.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';
import {
  DEATHS,
  KILL_POINTS,
  killUnderLoad,
  MortalMount,
  missingForContinuity,
  parentOf,
} from './killed-under-load.ts';

/** `on`: each process is killed when its standby is ready. */
const STANDBY = process.env.CFS_TEST_STANDBY ?? 'off';
/** Of one draft (src/kernel/draft-rows.ts). */
const RANGES_MAX = 3067;
const missing = missingForContinuity();
describe.skipIf(missing !== null)(titled('continuity', missing), () => {
  let mortal: MortalMount;
  let mount: MountFixture;
  let killFile: string;
  beforeAll(async () => {
    mortal = await MortalMount.start([`--standby=${STANDBY}`]);
    ({ mount, killFile } = mortal);
  });
  afterAll(() => mortal?.dispose());

  test.each(seedsOf([1]))(
    'a mount process that is killed under load delays calls, and no call fails or takes effect twice (seed %i)',
    { timeout: DEATHS * 300_000 },
    async (seed) => {
      onTestFailed(() => mount.printLogs());
      await killUnderLoad(mortal, { seed, hasStandby: STANDBY === 'on' });
    },
  );

  test('open files, locks and working directories outlive the mount process', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run('mkdir cwd; seq 1 20000 > cwd/numbers; : > cwd/lock');
    const script = `cd ${mount.directory}/cwd; exec 3< numbers 4< lock; flock 4; read -r first <&3; echo held; read -r _
      cat <&3 | tail -n +1 | cksum; flock -n lock -c true; echo "lock $?"; ls`;
    const held = spawn('bash', ['-c', script], { cwd: '/', stdio: ['pipe', 'pipe', 'inherit'] });
    let output = '';
    held.stdout.on('data', (data) => {
      output += data;
    });
    const closed = new Promise((resolve) => held.on('close', resolve));
    await vi.waitUntil(() => output.includes('held'), { timeout: 30_000, interval: 20 });

    await mount.killAndContinue();
    held.stdin.end('\n');
    await closed;

    const { stdout: wanted } = await mount.run('tail -n +2 cwd/numbers | cksum');
    expect(output).toBe(`held\n${wanted}lock 1\nlock\nnumbers\n`);
  });

  test('what descriptors wrote before two deaths is still there, and they continue to write', async () => {
    onTestFailed(() => mount.printLogs());
    // In memory, and in its file.
    const files = { small: 20_000, large: 3_000_000 };
    for (const name of Object.keys(files)) await mount.run(`printf before > ${name}`);
    const program = await SyscallProcess.start(mount.directory);
    try {
      const open: { name: string; bytes: number; fd: number }[] = [];
      for (const [name, bytes] of Object.entries(files))
        open.push({ name, bytes, fd: await program.open(name, O_RDWR) });
      for (const { bytes, fd } of open) await program.write(fd, 3, Buffer.alloc(bytes, '1'));
      await mount.killAndContinue();
      for (const { bytes, fd } of open) await program.write(fd, 3 + bytes, Buffer.from('two'));
      await mount.killAndContinue();
      for (const { name, bytes, fd } of open) {
        expect((await program.fstat(fd)).sizeBytes).toBe(bytes + 6);
        expect((await program.read(fd, bytes - 1, 7)).toString()).toBe('1111two');
        await program.close(fd);
        expect((await mount.run(`head -c 4 ${name}; tail -c 4 ${name}; wc -c < ${name}`)).stdout).toBe(
          `bef11two${bytes + 6}\n`,
        );
      }
    } finally {
      await program.dispose();
    }
    await mount.run('printf after > small; printf after > large');
    expect((await mount.run('cat small large')).stdout).toBe('afterafter');
  });

  test('a file that was deleted while open continues over two deaths, and so do a nameless file and a removed folder', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run('seq 1 5000 > deleted; printf before > replaced; printf new > other; mkdir removed');
    const program = await SyscallProcess.start(mount.directory);
    const within = spawn(
      'bash',
      ['-c', `cd ${mount.directory}/removed && echo inside && read -r _; ls -la | wc -l; stat -c %h .`],
      {
        ...{ cwd: '/', stdio: ['pipe', 'pipe', 'inherit'] },
      },
    );
    let output = '';
    const isInside = once(within.stdout, 'data');
    within.stdout.on('data', (data) => {
      output += data;
    });
    const ended = new Promise((resolve) => within.on('close', resolve));
    try {
      const [reader, writer] = [await program.open('deleted', O_RDONLY), await program.open('replaced', O_RDWR)];
      const nameless = await program.open('.', O_RDWR | O_TMPFILE);
      await program.write(writer, 6, Buffer.from(' one'));
      await program.write(nameless, 0, Buffer.from('nameless'));
      await isInside;
      await mount.run('rm deleted; mv other replaced; rmdir removed');
      await program.write(writer, 10, Buffer.from(' two'));
      await mount.killAndContinue();
      await program.write(writer, 14, Buffer.from(' three'));
      await mount.killAndContinue();

      expect((await program.read(reader, 0, 10)).toString()).toBe('1\n2\n3\n4\n5\n');
      expect(await program.fstat(reader)).toMatchObject({ sizeBytes: 23_893, nlink: 0 });
      expect((await program.read(writer, 0, 100)).toString()).toBe('before one two three');
      expect((await program.fstat(writer)).sizeBytes).toBe(20);
      await program.process.linkOpen(nameless, 'named');
      for (const fd of [reader, writer, nameless]) await program.close(fd);
      within.stdin.end('\n');
      await ended;
    } finally {
      await program.dispose();
    }
    expect(output).toBe('inside\n1\n0\n');
    expect((await mount.run('cat replaced named; ls')).stdout).toMatch(/^newnameless/);
    expect((await mount.run('ls')).stdout).not.toContain('deleted');
  });

  test('a listing continues over a death after its last entry was removed', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run('mkdir listed; cd listed; touch $(seq -f entry-%05g 1 1600)');
    const program = await SyscallProcess.start(mount.directory);
    try {
      const stream = await program.process.opendir('listed');
      const seen = (await program.process.nextEntries(stream, 700)).map(({ name }) => name);
      // More than the C library has read.
      await mount.run('cd listed; rm $(seq -f entry-%05g 1 1200)');
      await mount.killAndContinue();
      for (let more = seen; more.length > 0; seen.push(...more))
        more = (await program.process.nextEntries(stream, 700)).map(({ name }) => name);
      expect(new Set(seen).size).toBe(seen.length);
      const kept = seen.filter((name) => name > 'entry-01200');
      expect(kept).toEqual(Array.from({ length: 400 }, (_, i) => `entry-0${1201 + i}`));
    } finally {
      await program.dispose();
    }
  });

  test('a descriptor with more written ranges than are recorded fails with EIO after the death', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run('printf before > scattered');
    const program = await SyscallProcess.start(mount.directory);
    try {
      const fd = await program.open('scattered', O_RDWR);
      for (let range = 0; range < RANGES_MAX + 1; range++) await program.write(fd, 10 + 2 * range, Buffer.from('x'));
      await mount.killAndContinue();
      await expect(program.write(fd, 0, Buffer.from('more'))).rejects.toMatchObject({ errno: 'EIO' });
      await program.close(fd).catch(() => undefined);
    } finally {
      await program.dispose();
    }
    expect((await mount.run('cat scattered')).stdout).toBe('before');
  });

  test('descriptors of files that a shorter and a longer one replaced keep their versions over two deaths', async () => {
    onTestFailed(() => mount.printLogs());
    const other = await OtherProgram.signIn(mount.server.account);
    const files = [
      { name: 'shorter', from: 900_003, to: 500_001 },
      { name: 'longer', from: 500_001, to: 900_003 },
    ];
    const urls: string[] = [];
    for (const { name, from } of files)
      urls.push(await other.client.createFilled(other.systemFolder('2'), name, Buffer.alloc(from, 'A')));
    await mount.cfs(['refresh']);
    const reader = await SyscallProcess.start(mount.directory);
    try {
      const open: { fd: number; letter: string; length: number }[] = [];
      for (const { name, from } of files) {
        const [begun, unread] = [await reader.open(name, O_RDONLY), await reader.open(name, O_RDONLY)];
        await reader.read(begun, 0, 10);
        for (const fd of [begun, unread]) open.push({ fd, letter: 'A', length: from });
      }
      for (const [at, { to }] of files.entries()) {
        const version = (await other.client.send('POST', `${urls[at]}/version`)).headers.location as string;
        await other.client.send('PUT', `${version}/data`, { body: Buffer.alloc(to, 'B') });
      }
      await mount.cfs(['refresh']);
      for (const { name, to } of files) open.push({ fd: await reader.open(name, O_RDONLY), letter: 'B', length: to });
      await mount.killAndContinue();
      await mount.killAndContinue();

      for (const { fd, letter, length } of open) {
        let bytes = Buffer.alloc(0);
        for (let at = 0; bytes.length === at; at += 64 * 1024)
          bytes = Buffer.concat([bytes, await reader.read(fd, at, 64 * 1024)]);
        expect(bytes.equals(Buffer.alloc(length, letter))).toBe(true);
        expect((await reader.fstat(fd)).sizeBytes).toBe(length);
      }
      for (const { name, to } of files)
        expect((await mount.run(`cksum < ${name}`)).stdout).toBe(
          (await mount.run(`head -c ${to} /dev/zero | tr '\\0' B | cksum`)).stdout,
        );
    } finally {
      await reader.dispose();
    }
  });

  test('tail -f shows each line once while others append and the process dies', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run(': > followed');
    const tail = spawn('tail', ['-n', '+1', '-s', '0.05', '-f', `${mount.directory}/followed`], {
      cwd: '/',
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let shown = '';
    tail.stdout.on('data', (data) => {
      shown += data;
    });
    try {
      // Each through one descriptor for all its lines.
      const append = (name: string) =>
        mount.run(`exec 3>> followed; for i in $(seq 1 60); do echo ${name} $i >&3; sleep 0.03; done`);
      const appending = Promise.all(['one', 'other'].map(append));
      for (let death = 0; death < 2; death++) await mount.killAndContinue();
      await appending;
      await vi.waitUntil(() => shown.split('\n').length > 120, { timeout: 30_000, interval: 20 });
    } finally {
      tail.kill();
    }
    expect((await mount.run('cat followed')).stdout).toBe(shown);
    for (const name of ['one', 'other'])
      expect(shown.split('\n').filter((line) => line.startsWith(`${name} `))).toEqual(
        Array.from({ length: 60 }, (_, i) => `${name} ${i + 1}`),
      );
  });

  test('a notification that is blocked by a page of a reader does not delay the successor', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run('seq 1 5000 > page');
    const program = await SyscallProcess.start(mount.directory);
    try {
      const inode = Number((await mount.run('stat -c %i page; dd if=page iflag=nocache count=0 2> /dev/null')).stdout);
      const fd = await program.open('page', O_RDONLY);
      await program.fstat(fd); // the read asks for no attributes
      const stopped = join(mortal.scratch, 'stopped');
      writeFileSync(killFile, JSON.stringify({ point: 'notify', inode, stopped }));
      const { pid } = mount;
      process.kill(pid, 'SIGUSR2');
      await vi.waitUntil(() => existsSync(stopped), { timeout: 30_000, interval: 5 });
      const reading = program.read(fd, 0, 10);
      await vi.waitUntil(() => statesOf(pid).includes('D'), { timeout: 30_000, interval: 5 });

      const killedMs = performance.now();
      await mount.killAndContinue();

      expect((await reading).toString()).toBe('1\n2\n3\n4\n5\n');
      tellFigures(`blocked notification: ${Math.round(performance.now() - killedMs)} ms to the answer`);
      await vi.waitUntil(() => processLife(pid) === 'ended', { timeout: 30_000, interval: 20 });
    } finally {
      await program.dispose();
    }
  });

  test.each([
    { what: 'exception', point: 'exception', busy: false },
    { what: 'heap', point: 'heap', busy: false },
    { what: 'exception in a busy process', point: 'exception', busy: true }, // only the keeper can end it
  ])(
    'programs continue when the thread that answers the kernel ends by itself ($what)',
    async ({ what, point, busy }) => {
      // 200 MB: less to fill until its heap is exhausted.
      const env = { NODE_OPTIONS: `--import ${KILL_POINTS} --max-old-space-size=200`, CFS_TEST_KILL_FILE: killFile };
      const failing = await MountFixture.start({ server: mount.server, flags: ['--continuity'], env });
      onTestFailed(() => failing.printLogs());
      const program = await SyscallProcess.start(failing.directory);
      const { pid } = failing;
      try {
        const fd = await program.open(`by-${what}`, O_RDWR | O_CREAT);
        await program.write(fd, 0, Buffer.from('before'));
        writeFileSync(killFile, JSON.stringify({ point, nth: 1, busy }));
        await failing.killAndContinue(() => process.kill(pid, 'SIGUSR2'));
        await vi.waitUntil(() => processLife(pid) === 'ended', { timeout: 30_000, interval: 20 });
        await program.write(fd, 6, Buffer.from(' and after'));
        await program.close(fd);
        expect((await failing.run(`cat 'by-${what}'`)).stdout).toBe('before and after');
        expect((await failing.status())?.continuity?.deaths).toBe(1);
      } finally {
        await program.dispose();
        await failing.dispose();
      }
    },
  );

  test('a read that waits for the service continues after two deaths, and SIGINT of its caller ends another one', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run('seq 1 30000 > far; cp far farther');
    const { stdout: wanted } = await mount.run('cksum < far');
    await mount.sync();
    for (const name of ['far', 'farther']) await mount.cfs(['evict', join(mount.directory, name)]);
    // The kernel has their pages, too.
    await mount.run('for i in far farther; do dd if=$i iflag=nocache count=0 2> /dev/null; done');
    await mount.server.pause();
    let reading: Promise<{ stdout: string }>;
    try {
      // A signal ends a read of pages without the answer of this process, but not a direct read.
      const words = [`if=${mount.directory}/farther`, 'iflag=direct', 'bs=4096', 'of=/dev/null'];
      const caller = spawn('dd', words, { cwd: '/', stdio: 'ignore' });
      let ended: unknown = null;
      caller.once('exit', (_code, signal) => {
        ended = signal;
      });
      // The process has the requests, and has not answered them.
      const areWaiting = (calls: number) =>
        vi.waitUntil(
          async () => {
            const { stdout } = await mount.cfs(['metrics'], { anyExitCode: true });
            return Number(/^cfs_operations_waiting\S* (\d+)/m.exec(stdout)?.[1]) >= calls;
          },
          { timeout: 30_000, interval: 100 },
        );
      await areWaiting(1);
      reading = mount.run('cksum < far');
      for (let death = 0; death < 2; death++) {
        await areWaiting(2);
        await mount.killAndContinue();
      }
      await areWaiting(2);
      caller.kill('SIGINT');
      await vi.waitUntil(() => ended === 'SIGINT', { timeout: 10_000, interval: 20 });
    } finally {
      mount.server.resume();
    }

    expect((await reading).stdout).toBe(wanted);
  });

  test('cfs status shows the deaths and the last pause, and cfs umount ends the mount with its keeper', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.killAndContinue();
    const status = await vi.waitUntil(
      async () => {
        const now = await mount.status();
        return now?.continuity?.lastPauseMs == null ? null : now;
      },
      { timeout: 30_000, interval: 20 },
    );
    const keeper = parentOf(mount.pid);
    expect(status?.continuity?.deaths).toBeGreaterThan(0);
    expect(status?.continuity?.lastPauseMs).toBeGreaterThan(0);
    expect((await mount.cfs(['status'])).stdout).toMatch(/restarted {2}\d+ times? after the death/);

    expect((await mount.unmount()).code).toBe(0);
    await vi.waitUntil(() => processLife(keeper) === 'ended', { timeout: 30_000, interval: 20 });
    expect(readFileSync('/proc/mounts', 'utf8')).not.toContain(` ${mount.directory} `);
  });

  test('a mount whose process dies before it has answered its launcher is started all the same', async () => {
    onTestFailed(() => mount.printLogs());
    if ((await mount.status()) !== null) await mount.unmount();
    await mount.server.pause(); // the answer waits some seconds for the service
    try {
      const starting = mount.mount();
      const pid = await vi.waitUntil(async () => (await mount.status().catch(() => null))?.pid ?? null, {
        timeout: 30_000,
        interval: 20,
      });
      await vi.waitUntil(() => readFileSync('/proc/mounts', 'utf8').includes(` ${mount.directory} `), {
        timeout: 30_000,
      });
      await vi.waitUntil(async () => (await mount.status().catch(() => null))?.continuity !== undefined, {
        timeout: 30_000,
        interval: 20,
      });
      process.kill(pid, 'SIGKILL');
      await starting;
      expect(mount.pid).not.toBe(pid);
    } finally {
      mount.server.resume();
    }
    expect((await mount.unmount(['--now'])).code).toBe(0);
  });

  test('a mount whose processes serve for a second each outlives six deaths', { timeout: 120_000 }, async () => {
    onTestFailed(() => mount.printLogs());
    const mortal = await MountFixture.start({ server: mount.server, flags: ['--continuity'] });
    try {
      for (let death = 0; death < 6; death++) {
        await setTimeout(1100);
        await mortal.killAndContinue();
      }
      expect((await mortal.status())?.continuity?.deaths).toBe(6);
    } finally {
      await mortal.dispose();
    }
  });

  test('after six processes in a row that ended within a second the mount ends, as without a keeper', async () => {
    onTestFailed(() => mount.printLogs());
    const mortal = await MountFixture.start({ server: mount.server, flags: ['--continuity'] });
    const killed = new Set<number>();
    try {
      const keeper = parentOf(mortal.pid);
      await setTimeout(1500); // the first one has served long enough
      process.kill(mortal.pid, 'SIGKILL');
      await vi.waitUntil(
        () => {
          for (const pid of childrenOf(keeper)) {
            if (pid === mortal.pid || killed.has(pid)) continue;
            process.kill(pid, 'SIGKILL');
            killed.add(pid);
          }
          return processLife(keeper) === 'ended';
        },
        { timeout: 30_000, interval: 5 },
      );
      expect(killed.size).toBe(6);
      const { stderr } = await runCommand(['ls', mortal.directory], { anyExitCode: true });
      expect(stderr).toMatch(/not connected|connection abort/);
    } finally {
      await mortal.dispose();
    }
  });

  test('SIGTERM to the keeper ends the mount in order, also while a process takes over', async () => {
    onTestFailed(() => mount.printLogs());
    if ((await mount.status()) === null) await mount.mount();
    const keeper = parentOf(mount.pid);

    process.kill(mount.pid, 'SIGKILL');
    process.kill(keeper, 'SIGTERM');
    await mount.gone();

    await vi.waitUntil(() => processLife(keeper) === 'ended', { timeout: 30_000, interval: 20 });
    expect(readFileSync('/proc/mounts', 'utf8')).not.toContain(` ${mount.directory} `);
  });
});

/** Those that the main thread of a process has started, and that have not been waited for. */
function childrenOf(pid: number): readonly number[] {
  try {
    return readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
  } catch {
    return []; // it has ended
  }
}

/** Of its threads. */
function statesOf(pid: number): readonly (string | undefined)[] {
  return readdirSync(`/proc/${pid}/task`).map(
    (thread) => /^State:\s+(\w)/m.exec(readFileSync(`/proc/${pid}/task/${thread}/status`, 'utf8'))?.[1],
  );
}
