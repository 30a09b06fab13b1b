import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { OtherProgram } from '../harness/other-program.ts';

/** As in /proc/PID/status (proc(5)): S and D wait in a call, T is paused. */
const stateOf = (pid = 0): string | undefined =>
  /^State:\t(.)/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1];

/** openat(2) by its number on x86-64 and on arm64, as in /proc/PID/syscall (proc_pid_syscall(5)). */
const OPENAT = /^(257|56) /;

/** Tells the call that a process is in, and was in when it was asked before: of its own files it opens many on its way. */
function waitingIn(pid = 0): () => string {
  let before = '';
  return () => {
    const now = readFileSync(`/proc/${pid}/syscall`, 'latin1');
    const isSame = now === before;
    before = now;
    return isSame ? now : '';
  };
}

/**
 * A program in a process group of its own, as a shell at a terminal starts it. Of a group in which nobody has a parent in another group of its
 * session the kernel pauses none by SIGTSTP and its like (setpgid(2), orphaned): so it is where no terminal started the tests.
 */
const IN_A_GROUP = 'setpgrp; exec @ARGV or die';

const missing = missingForMounts();
describe.skipIf(missing !== null)(
  `a program that waits for the service${missing ? ` (needs: ${missing})` : ''}`,
  () => {
    let mount: MountFixture;
    let other: OtherProgram;
    beforeAll(async () => {
      mount = await MountFixture.start();
      other = await OtherProgram.signIn(mount.server.account);
    });
    afterAll(() => mount?.dispose());

    /** [S-pause-1] */
    test.each(['SIGTSTP', 'SIGSTOP', 'SIGTTIN', 'SIGTTOU'] as const)(
      'a program that waits for the service and is paused by %s continues later',
      async (signal) => {
        onTestFailed(() => mount.printLogs());
        const url = await other.client.createFolder(other.systemFolder('2'), signal);
        await other.client.createFilled(url, 'file', Buffer.from('kept'));
        await mount.cfs(['refresh']);
        await mount.run(`ls -d ${signal}`);
        await mount.server.pause();
        // Nobody has listed it yet.
        const program = spawn('perl', ['-e', IN_A_GROUP, 'ls', signal], { cwd: mount.directory });
        const said = Promise.all([text(program.stdout), text(program.stderr)]);
        const ended = once(program, 'exit');
        await expect.poll(waitingIn(program.pid), { interval: 20 }).toMatch(OPENAT);

        program.kill(signal);
        await expect.poll(() => stateOf(program.pid)).toMatch(/[DT]/);
        mount.server.resume();
        await expect.poll(() => stateOf(program.pid)).toBe('T');
        program.kill('SIGCONT');

        expect(await said).toEqual(['file\n', '']);
        expect(await ended).toEqual([0, null]);
      },
    );
  },
);
