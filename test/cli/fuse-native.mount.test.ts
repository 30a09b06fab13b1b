import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { processLife } from '../../src/base/process-life.ts';
import { mountOn } from '../../src/kernel/mount-table.ts';
import { runCommand } from '../harness/command.ts';
import { missingForFuseNative } from '../harness/fuse-native.ts';
import { MountFixture } from '../harness/mount-fixture.ts';

// A mount with the second binding has two processes; whichever ends first, nobody hangs and nothing stays behind.
const missing = missingForFuseNative();

let mount: MountFixture;

async function mounted(...flags: string[]): Promise<void> {
  mount = await MountFixture.start({ flags: ['--binding', 'fuse-native', '--settle', '50ms', ...flags] });
}

/** The process that holds the library, a child of the one that mounted. */
function libraryOf(pid: number): number {
  for (const name of readdirSync('/proc').filter((entry) => /^\d+$/.test(entry))) {
    try {
      const parent = Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${name}/status`, 'latin1'))?.[1]);
      if (parent === pid && readFileSync(`/proc/${name}/cmdline`, 'latin1').includes('fuse-native'))
        return Number(name);
    } catch {
      // It has ended.
    }
  }
  throw new Error(`process ${pid} has no child with fuse-native`);
}

function waitUntilGone(pid: number): Promise<unknown> {
  return vi.waitUntil(() => processLife(pid) === 'ended', { timeout: 60_000 });
}

describe.skipIf(missing !== null)(
  missing === null ? '--binding fuse-native' : `--binding fuse-native (needs: ${missing})`,
  () => {
    afterEach(() => mount.dispose());

    test('what is saved reaches the service, and an unmount from outside ends both processes', async () => {
      await mounted();
      const library = libraryOf(mount.pid);
      await mount.run('mkdir folder; echo saved > folder/file; cat folder/file; mv folder/file folder/moved');
      await mount.sync();
      expect([...(await mount.serverTree()).keys()].sort()).toContainEqual(expect.stringContaining('folder/moved'));

      await mount.unmountFromOutside();

      await waitUntilGone(library);
      expect(mountOn(mount.directory)).toBeNull();
    });

    test('words of -o that its library does not know keep no mount from coming about', async () => {
      await mounted('-o', 'relatime,strictatime,nodiratime,diratime,noexec');

      expect((await mount.run('echo there > file; cat file; grep " $PWD " /proc/mounts')).stdout).toMatch(
        /^there\n.* rw,nosuid,nodev,noexec,relatime,/,
      );
    });

    test('when the process that answers is killed, callers get an error and the directory is free', async () => {
      await mounted();
      const library = libraryOf(mount.pid);

      await mount.kill9();

      await waitUntilGone(library);
      expect(mountOn(mount.directory)).toBeNull();
    });

    test('when the process with the library is killed, the mount ends by itself, and the next one has everything', async () => {
      await mounted();
      await mount.run('echo kept > file');

      process.kill(libraryOf(mount.pid), 'SIGKILL');
      await mount.gone();
      expect(mountOn(mount.directory)).toBeNull();

      await mount.mount();
      expect((await mount.run('cat file')).stdout).toBe('kept\n');
    });

    test('a refused rename over an open file removes the name and no bytes', async () => {
      await mounted();
      // The bytes of a version may be fetched again: it is no file of this machine alone.
      await mount.run('mkdir ._d; echo old > ._d/x; head -c 2000000 /dev/zero > file');
      await mount.sync();
      const refused = `node -e "fs.renameSync('file', '._d/x')" 2>&1 | grep -q EXDEV && echo refused`;

      const { stdout } = await mount.run(`exec 3< ._d/x; ${refused}; ls -A ._d; wc -c < file; cat <&3`);

      expect(stdout).toBe('refused\n2000000\nold\n');
    });

    test('a mount that was detached while a file is open in it ends when it is told to', async () => {
      await mounted();
      await mount.run('echo kept > file');
      const shell = spawn('sh', ['-c', `exec 3< ${mount.directory}/file; echo open; exec sleep 300`]);
      const gone = new Promise((resolve) => shell.once('exit', resolve));
      try {
        await new Promise((resolve) => shell.stdout.once('data', resolve));
        const library = libraryOf(mount.pid);
        await runCommand(['fusermount3', '-uz', mount.directory]);

        process.kill(mount.pid, 'SIGTERM');

        await mount.gone();
        await waitUntilGone(library);
      } finally {
        shell.kill('SIGKILL');
        await gone;
      }
    });

    test('a file that a program is rewriting by `> file` when the mount is killed has its previous bytes', async () => {
      await mounted();
      await mount.run("head -c 300000 /dev/zero | tr '\\0' A > whole");
      await mount.sync();
      const script = `exec node -e 'fs.writeSync(1, Buffer.alloc(100000)); setInterval(() => {}, 1000)' > ${mount.directory}/whole`;
      const shell = spawn('sh', ['-c', script], { stdio: 'ignore' });
      const gone = new Promise((resolve) => shell.once('exit', resolve));
      try {
        await expect.poll(async () => (await mount.run('stat -c %s whole')).stdout).toBe('100000\n');
        await mount.kill9();
      } finally {
        shell.kill('SIGKILL');
        await gone;
      }
      await mount.mount();

      expect((await mount.run('stat -c %s whole; tr -d A < whole | wc -c; : > whole; stat -c %s whole')).stdout).toBe(
        '300000\n0\n0\n',
      );
    });
  },
);
