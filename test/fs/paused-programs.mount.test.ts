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
      'and is paused by %s goes on later',
      async (signal) => {
        onTestFailed(() => mount.printLogs());
        const url = await other.client.createFolder(other.systemFolder('2'), signal);
        await other.client.createFilled(url, 'file', Buffer.from('kept'));
        await mount.cfs(['refresh']);
        await mount.run(`ls -d ${signal}`);
        await mount.server.pause();
        // Nobody has listed it yet. The shell is there to say when it begins.
        const program = spawn('sh', ['-c', 'echo; exec ls "$1"', 'sh', signal], { cwd: mount.directory });
        const said = Promise.all([text(program.stdout), text(program.stderr)]);
        const ended = once(program, 'exit');
        // In openat(2), whose number that is on x86-64 and arm64 (proc_pid_syscall(5)).
        await expect
          .poll(() => readFileSync(`/proc/${program.pid}/syscall`, 'latin1'), { interval: 5 })
          .toMatch(/^(257|56) /);

        program.kill(signal);
        await expect.poll(() => stateOf(program.pid)).toMatch(/[DT]/);
        mount.server.resume();
        await expect.poll(() => stateOf(program.pid)).toBe('T');
        program.kill('SIGCONT');

        expect(await said).toEqual(['\nfile\n', '']);
        expect(await ended).toEqual([0, null]);
      },
    );
  },
);
