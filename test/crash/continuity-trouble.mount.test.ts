import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, onTestFailed, test, vi } from 'vitest';
import { O_CREAT, O_RDONLY, O_RDWR } from '../conformance/file-api.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { missingRoot, testUnless, titled } from '../harness/requirement.ts';
import { SmallDisk } from '../harness/small-disk.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';
import { missingForContinuity } from './killed-under-load.ts';

const POINTS = fileURLToPath(new URL('./kill-points.mjs', import.meta.url));
/** How long the process is stopped; `npm run soak -- continuity` stops it longer. */
const STOPPED_MS = Number(process.env.CFS_TEST_STOPPED_MS ?? '1000');

/** The thread that takes the signal stops the others: until then they answer calls. */
function isStopped(pid: number): boolean {
  return readdirSync(`/proc/${pid}/task`).every((thread) =>
    /^State:\s+T/m.test(readFileSync(`/proc/${pid}/task/${thread}/status`, 'utf8')),
  );
}

const missing = missingForContinuity();
describe.skipIf(missing !== null)(titled('deaths in difficult moments', missing), () => {
  test('a request that ends each process that serves it fails with EIO, and the mount continues', async () => {
    const scratch = mkdtempSync(join(tmpdir(), 'cfs-deadly-'));
    const killFile = join(scratch, 'point');
    writeFileSync(killFile, JSON.stringify({ point: 'record', text: 'deadly' }));
    const env = { NODE_OPTIONS: `--import ${POINTS}`, CFS_TEST_KILL_FILE: killFile };
    const mount = await MountFixture.start({ flags: ['--continuity'], env });
    onTestFailed(() => mount.printLogs());
    const program = await SyscallProcess.start(mount.directory);
    try {
      const fd = await program.open('open', O_RDWR | O_CREAT);
      await program.write(fd, 0, Buffer.from('before'));

      await expect(program.mkdir('deadly')).rejects.toMatchObject({ errno: 'EIO' });

      await program.write(fd, 6, Buffer.from(' and after'));
      await program.close(fd);
      expect((await mount.run('mkdir other; cat open; ls')).stdout).toBe('before and afteropen\nother\n');
      expect((await mount.followed()).continuity?.deaths).toBe(2);
    } finally {
      await program.dispose();
      await mount.dispose();
      rmSync(scratch, { recursive: true, force: true });
    }
  });

  test.each(['SIGCONT', 'SIGKILL'] as const)(
    'a mount process that is stopped delays calls until %s',
    { timeout: 120_000 + STOPPED_MS },
    async (signal) => {
      const mount = await MountFixture.start({ flags: ['--continuity'] });
      onTestFailed(() => mount.printLogs());
      const program = await SyscallProcess.start(mount.directory);
      const appender = await SyscallProcess.start(mount.directory);
      try {
        const fd = await program.open('stopped', O_RDWR | O_CREAT);
        await program.write(fd, 0, Buffer.from('before'));
        process.kill(mount.pid, 'SIGSTOP');
        await vi.waitUntil(() => isStopped(mount.pid), { timeout: 60_000, interval: 5 });
        const answered: string[] = [];
        const calls = [
          program.write(fd, 6, Buffer.from(' and after')).then(() => answered.push('write')),
          appender.mkdir('made').then(() => answered.push('mkdir')),
        ];
        await new Promise((resume) => setTimeout(resume, STOPPED_MS));
        expect(answered).toEqual([]);
        if (signal === 'SIGKILL') await mount.killAndContinue();
        else process.kill(mount.pid, signal);
        await Promise.all(calls);

        await program.close(fd);
        expect((await mount.run('cat stopped; ls')).stdout).toBe('before and aftermade\nstopped\n');
        expect((await mount.status())?.continuity?.deaths).toBe(signal === 'SIGKILL' ? 1 : 0);
      } finally {
        process.kill(mount.pid, 'SIGCONT'); // otherwise the calls of a failed test wait permanently
        await program.dispose();
        await appender.dispose();
        await mount.dispose();
      }
    },
  );

  testUnless(missingRoot())(
    'a process that dies while the disk is full is succeeded: reads continue, and writes fail with ENOSPC until there is room',
    { timeout: 300_000 },
    async () => {
      const disk = await SmallDisk.start(['--continuity']);
      const { mount } = disk;
      onTestFailed(() => mount.printLogs());
      await mount.mount();
      const program = await SyscallProcess.start(mount.directory);
      try {
        await mount.run('sha256sum old/large > /dev/null; printf closed > closed');
        const [written, read] = [
          await program.open('written', O_RDWR | O_CREAT),
          await program.open('closed', O_RDONLY),
        ];
        await program.write(written, 0, Buffer.from('before'));
        const third = await program.open('third', O_RDWR | O_CREAT);
        await program.write(third, 0, Buffer.from('third'));
        disk.removeSpares();
        const fill = disk.fillUp('fill');
        expect(disk.freeBytes).toBe(0);

        await mount.killAndContinue();
        // The journal file of a successor is shorter at first than that of its predecessor.
        const rest = disk.fillUp('rest');

        expect((await program.read(written, 0, 100)).toString()).toBe('before');
        expect((await program.read(read, 0, 100)).toString()).toBe('closed');
        expect((await program.read(third, 0, 100)).toString()).toBe('third');
        expect((await mount.run('sha256sum old/large')).stdout).toContain(disk.digest);
        await expect(program.write(written, 6, Buffer.alloc(1024 ** 2))).rejects.toMatchObject({ errno: 'ENOSPC' });
        for (const each of [fill, rest]) rmSync(each);
        await mount.run('until head -c 1M /dev/zero > made; do sleep 0.2; done 2> /dev/null');
        await program.write(written, 6, Buffer.from(' and after'));
        for (const fd of [written, read, third]) await program.close(fd);
        expect((await mount.run('cat written closed third')).stdout).toBe('before and afterclosedthird');
        expect((await mount.status())?.continuity?.deaths).toBe(1);
      } finally {
        await program.dispose();
        await disk.dispose();
      }
    },
  );
});
