import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readlinkSync, writeFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, onTestFailed, test, vi } from 'vitest';
import type { MountFixture } from '../harness/mount-fixture.ts';
import { OtherProgram } from '../harness/other-program.ts';
import { titled } from '../harness/requirement.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';
import { MortalMount, missingForContinuity } from './killed-under-load.ts';

const STARTED_MS_MAX = 60_000;

/** Kernels without FUSE_EXPIRE_ONLY drop a name that they are notified of, also if a process is in the folder. */
const missing = missingForContinuity();
describe.skipIf(missing !== null).each([
  { kernel: 'this kernel', flags: [] },
  { kernel: 'a kernel like Linux 6.1', flags: ['--mask-features=resend,has-expire-only'] },
])(titled('names over deaths on $kernel', missing), ({ flags }) => {
  let mortal: MortalMount;
  let mount: MountFixture;
  let other: OtherProgram;
  beforeAll(async () => {
    // The announcer would look the names up.
    mortal = await MortalMount.start(['--settle=1h', '--no-notify', ...flags]);
    ({ mount } = mortal);
    other = await OtherProgram.signIn(mount.server.account);
  });
  afterAll(() => mortal?.dispose());

  const made = (name: string): Promise<string> =>
    other.client.createFilled(other.systemFolder('2'), name, Buffer.from(name));
  const refreshed = (): Promise<unknown> => mount.cfs(['refresh'], { anyExitCode: true });
  const arm = (what: object): void => {
    writeFileSync(mortal.killFile, JSON.stringify(what));
    process.kill(mount.pid, 'SIGUSR2');
  };

  test('a working directory has its path while others change what is beside it and in it, and after a death', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run('mkdir work');
    const inside = spawn('sleep', ['600'], { cwd: `${mount.directory}/work`, stdio: 'ignore' });
    try {
      await once(inside, 'spawn');
      // The kernel answers: `(deleted)` behind it where getcwd(2) fails with ENOENT.
      const place = (): string => readlinkSync(`/proc/${inside.pid}/cwd`);
      const path = `${mount.directory}/work`;
      await vi.waitUntil(() => place() === path, { timeout: STARTED_MS_MAX, interval: 20 });

      const url = await made('beside');
      await refreshed();
      await other.rename(url, 'renamed');
      await refreshed();
      await mount.cfs(['sync', '--wait']);
      expect(place(), 'after changes').toBe(path);

      await mount.killAndContinue();
      expect(place(), 'after a death').toBe(path);
      await mount.run('ls -l . work');
      expect(place(), 'after lookups').toBe(path);
    } finally {
      inside.kill('SIGKILL');
    }
  });

  test.each([
    { when: 'before the death', reappears: true },
    { when: 'after the death', reappears: false },
  ])('a folder that was removed under a program and reappeared $when is complete', async ({ reappears }) => {
    onTestFailed(() => mount.printLogs());
    const name = reappears ? 'earlier' : 'later';
    const discarded = (): Promise<unknown> => mount.cfs(['discard', mount.directory, '--yes']);
    await mount.run(`mkdir ${name}; echo kept > ${name}/file`);
    await mount.cfs(['sync', '--wait']);
    const within = await SyscallProcess.start(`${mount.directory}/${name}`);
    const programs = [within];
    await mount.cfs(['pause']); // a start pushes without a settle delay
    try {
      await mount.run(`rm ${name}/file; rmdir ${name}`);
      if (reappears) {
        await discarded();
        const inside = await SyscallProcess.start(`${mount.directory}/${name}`);
        programs.push(inside);
        await mount.killAndContinue();
        expect((await inside.readdir('.')).map((entry) => entry.name)).toEqual(['file']);
        await inside.mkdir('made');
        await inside.rmdir('made');
      } else {
        await mount.killAndContinue();
        await discarded();
      }
      expect((await mount.run(`cat ${name}/file; echo more > ${name}/other; ls ${name}`)).stdout).toBe(
        'kept\nfile\nother\n',
      );
      expect(await within.readdir('.')).toEqual([]);
    } finally {
      await mount.cfs(['resume']);
      for (const program of programs) await program.dispose();
    }
  });

  test.each([
    { when: 'recorded, before it is noted', name: 'recorded', point: 'recorded' },
    { when: 'noted, before it is sent', name: 'unsent', point: 'unsent' },
  ])('a change that another machine made is visible after a death when it was $when', async ({ name, point }) => {
    onTestFailed(() => mount.printLogs());
    const former = await made(`former-${name}`);
    await refreshed();
    // The kernel has both names.
    await mount.run(`test -e former-${name}; test ! -e later-${name}`);
    arm({ point, nth: 1, text: `later-${name}` });

    await other.rename(former, `later-${name}`);
    const { pid } = mount;
    await refreshed();
    if (point === 'unsent') {
      // As the kernel has it.
      await mount.run(`test -e former-${name}; test ! -e later-${name}`);
      await mount.killAndContinue();
    }
    await vi.waitUntil(async () => (await mount.status().catch(() => null))?.pid !== pid, {
      timeout: STARTED_MS_MAX,
      interval: 20,
    });
    await mount.followed();

    const listed = await vi.waitUntil(
      async () => (await mount.run(`cat later-${name} && test ! -e former-${name}`, { anyExitCode: true })).stdout,
      { timeout: STARTED_MS_MAX, interval: 50 },
    );
    expect(listed).toBe(`former-${name}`);
  });
});
