import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';

/** Each of them waits for the disk. */
const SYNCS = ['fsync', 'fdatasync', 'msync', 'sync_file_range', 'syncfs', 'sync'];
/** How the thread that answers the kernel is told from others: it reads and writes the device. */
const DEVICE_CALLS = ['read', 'readv', 'write', 'writev', 'pread64', 'pwrite64', 'pwritev', 'splice'];
const ROUNDS = 40;
const ATTACH_MS_MAX = 20_000;

const missing =
  missingForMounts() ??
  (spawnSync('strace', ['-V'], { stdio: 'ignore' }).status === 0 ? null : 'strace (apt-get install strace)');

describe.skipIf(missing !== null)(
  `no disk is waited for in the path of an operation${missing === null ? '' : ` (needs: ${missing})`}`,
  () => {
    const directory = mkdtempSync(join(tmpdir(), 'cfs-strace-'));
    let mount: MountFixture;
    beforeAll(async () => {
      mount = await MountFixture.start({ flags: ['--settle', '10m'] });
    });
    afterAll(async () => {
      await mount?.dispose();
      rmSync(directory, { recursive: true, force: true });
    });

    /** The system calls of every thread of the mount while `work` runs: [thread, line]. */
    async function traced(work: () => Promise<unknown>): Promise<[thread: string, line: string][]> {
      const output = join(directory, 'trace');
      const calls = [...SYNCS, ...DEVICE_CALLS].join(',');
      const strace = spawn(
        'strace',
        ['-f', '-y', '-s', '0', '-e', `trace=${calls}`, '-o', output, '-p', `${mount.pid}`],
        {
          stdio: ['ignore', 'ignore', 'pipe'],
        },
      );
      let said = '';
      strace.stderr.on('data', (text: Buffer) => {
        said += text;
      });
      try {
        await vi.waitUntil(() => said.includes('attached') || strace.exitCode !== null, { timeout: ATTACH_MS_MAX });
        if (strace.exitCode !== null) throw new Error(`strace: ${said}`);
        await work();
      } finally {
        await detached(strace);
      }
      const lines = readFileSync(output, 'utf8').split('\n');
      return lines.map((line) => [line.split(' ', 1)[0] ?? '', line]);
    }

    const isSync = (line: string): boolean => SYNCS.some((name) => new RegExp(`^\\d+ +${name}\\(`).test(line));
    const answering = (lines: readonly [string, string][]): Set<string> =>
      new Set(lines.filter(([, line]) => line.includes('</dev/fuse>')).map(([thread]) => thread));

    /** [S-name-1] */
    test(`${5 * ROUNDS} times mkdir, create, rename, unlink and close, and the thread that answers syncs nothing`, async () => {
      const lines = await traced(() =>
        mount.run(
          `i=0; while [ $i -lt ${ROUNDS} ]; do mkdir d$i; printf bytes > d$i/f; mv d$i/f d$i/g; printf more >> d$i/g; rm d$i/g; i=$((i + 1)); done`,
        ),
      );

      const threads = answering(lines);
      const answers = lines.filter(([thread, line]) => threads.has(thread) && /^\d+ +writev?\(/.test(line));
      expect(answers.length).toBeGreaterThan(5 * ROUNDS);
      expect(lines.filter(([thread, line]) => threads.has(thread) && isSync(line))).toEqual([]);
    });

    test('fsync(2) does, in a thread of its own', async () => {
      const lines = await traced(() => mount.run('dd if=/dev/zero of=synced bs=4096 count=1 conv=fsync status=none'));

      const threads = answering(lines);
      const syncing = lines.filter(([, line]) => isSync(line));
      expect(syncing.length).toBeGreaterThan(0);
      expect(syncing.filter(([thread]) => threads.has(thread))).toEqual([]);
    });
  },
);

async function detached(strace: ChildProcess): Promise<void> {
  if (strace.exitCode !== null) return;
  const ended = new Promise((resolve) => strace.once('exit', resolve));
  strace.kill('SIGINT');
  await ended;
}
