import { mkdirSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { accountPaths, pathsOf } from '../../src/config/paths.ts';
import { accountNames } from '../../src/mount/account-file.ts';
import { exitCode } from '../../src/mount/exit-codes.ts';
import type { AccountState } from '../../src/mount/running-mounts.ts';
import { type CommandResult, runCommand } from '../harness/command.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { ReferenceServer } from '../harness/reference-server.ts';
import { PROJECT } from '../imports.ts';

/** The commands beside a running mount, driven as scripts drive them. One server for all, a mount for each test. */

let server: ReferenceServer;

beforeAll(async () => {
  server = await ReferenceServer.start();
});

afterAll(async () => {
  await server.dispose();
});

async function withMount(flags: readonly string[], use: (mount: MountFixture) => Promise<void>): Promise<void> {
  const mount = await MountFixture.start({ server, flags });
  try {
    await use(mount);
  } catch (error) {
    await mount.printLogs(); // they go with the mount
    throw error;
  } finally {
    await mount.dispose();
  }
}

/** Also of files that another test's mount made and could not fill before it was killed. */
async function namesOnServer(mount: MountFixture): Promise<string[]> {
  return [...(await mount.server.reader.entries()).keys()];
}

async function statusOf(mount: MountFixture): Promise<NonNullable<AccountState['status']>> {
  const { stdout } = await mount.cfs(['status', '--json'], { anyExitCode: true });
  const { accounts } = JSON.parse(stdout) as { accounts: AccountState[] };
  const status = accounts[0]?.status;
  if (status === null || status === undefined) throw new Error(`no status in ${stdout}`);
  return status;
}

function cfsMount(mount: MountFixture, args: readonly string[]): Promise<CommandResult> {
  return runCommand([process.execPath, join(PROJECT, 'dist/cli/cfs-mount.js'), ...args], {
    env: mount.env(),
    anyExitCode: true,
  });
}

function expectRefusal(result: CommandResult, code: number, sentence: RegExp): void {
  expect(result.stderr).toMatch(sentence);
  expect(result.stderr.trim().split('\n'), result.stderr).toHaveLength(1);
  expect(result.code).toBe(code);
}

/** [S-sync-1] The settle time of an hour shows that sync does not wait for it. */
test('cfs sync --wait pushes closed files immediately and returns when the service has them', async () => {
  await withMount(['--settle', '1h'], async (mount) => {
    await mount.run('mkdir sync; printf one > sync/one.txt; printf two > sync/two.txt');
    expect((await statusOf(mount)).pending.count).toBeGreaterThan(0);

    const { code, stdout } = await mount.cfs(['sync', '--wait']);

    expect(code).toBe(0);
    expect(stdout).toMatch(/^everything is with the service \(pushed \d+ changes\)\n$/);
    expect((await statusOf(mount)).pending.count).toBe(0);
    const held = await mount.serverTree();
    expect([...held.keys()]).toEqual(expect.arrayContaining(['sync/one.txt', 'sync/two.txt']));
    expect((await mount.cfs(['sync', '--wait'])).stdout).toBe('everything is with the service\n');
  });
});

/** [S-sync-1] */
test('cfs sync --wait pushes the closed bytes of a file that is open for writing again, and reports how many files are being changed', async () => {
  await withMount(['--settle', '1h'], async (mount) => {
    const { stdout } = await mount.run(
      `printf saved > idle.txt; printf saved > changed.txt
      exec 3>> idle.txt 4>> changed.txt; printf ' and more' >&4
      "$NODE" "$CFS" sync --wait && "$NODE" "$CFS" sync --wait`,
      { env: { ...mount.env(), NODE: process.execPath, CFS: join(PROJECT, 'dist/cli/cfs.js') } },
    );

    const isOpen = '1 file is still open in a program, and is pushed when it is closed\n';
    expect(stdout).toBe(`pushed 1 change\n${isOpen}${isOpen}`);
    expect([...(await mount.serverTree()).keys()]).toContain('idle.txt');
    await mount.sync();
    expect(await namesOnServer(mount)).toContain('changed.txt');
  });
});

/** [S-wait-1] The mount itself is patient for longer than the test. */
test('a command that waits for a silent service reports it after two seconds, and --timeout ends it', async () => {
  await withMount(['--read-timeout', '10min'], async (mount) => {
    await mount.run('mkdir unseen; printf one > unseen/file.txt; printf one > asked.txt');
    await mount.sync();
    await mount.unmount();
    const paths = pathsOf(mount.env());
    for (const name of accountNames(paths)) rmSync(accountPaths(paths, name).storeDirectory, { recursive: true });
    await mount.mount(); // it knows its top folder, and not yet what is in the others
    await mount.run('ls');
    const { url } = mount.server.account;
    await mount.server.setFaults([{ on: '*', times: 'always', then: { hang: true } }]);
    const commands = [
      ['versions', join(mount.directory, 'asked.txt')],
      ['versions', join(mount.directory, 'unseen/file.txt')],
      ['trash', 'list'],
      ['share', 'link', join(mount.directory, 'asked.txt')],
      ['refresh'],
    ];

    const ends = await Promise.all(
      commands.map((words) => mount.cfs([...words, '--timeout', '3s'], { anyExitCode: true })),
    );

    await mount.server.setFaults([]);
    for (const { code, stderr } of ends) {
      expect(stderr).toBe(
        `waiting for the service at ${url} to answer; Ctrl-C stops waiting\n` +
          `cfs: the service at ${url} did not answer within 3 s (--timeout)\n`,
      );
      expect(code).toBe(exitCode('unreachable'));
    }
  });
});

test('cfs sync PATH pushes that file or folder, and nothing beside it', async () => {
  await withMount(['--settle', '1h'], async (mount) => {
    await mount.run(
      'mkdir -p narrow/in wide && printf 1 > narrow/in/one.txt && printf 2 > narrow/two.txt && printf 3 > wide/three.txt',
    );

    const file = await mount.cfs(['sync', '--wait', join(mount.directory, 'narrow/two.txt')]);

    expect(file.code).toBe(0);
    let held = [...(await mount.serverTree()).keys()];
    expect(held).toContain('narrow/two.txt');
    expect(held).not.toContain('narrow/in/one.txt');

    await mount.cfs(['sync', '--wait', join(mount.directory, 'narrow')]);

    held = [...(await mount.serverTree()).keys()];
    expect(held).toContain('narrow/in/one.txt');
    expect(held).not.toContain('wide/three.txt');
    const { pending } = await statusOf(mount);
    expect(pending.changes.map(({ path }) => path).sort()).toEqual(['wide', 'wide/three.txt']);
    expect(pending.changes.every(({ dueMs }) => dueMs !== null)).toBe(true);
    await mount.sync();
  });
});

test('cfs sync --timeout stops waiting, says that nothing is lost, and leaves the rest queued', async () => {
  await withMount([], async (mount) => {
    await mount.run('ls'); // names that were never listed need the service
    await server.pause();
    try {
      await mount.run('printf later > later.txt');

      const result = await mount.cfs(['sync', '--wait', '--timeout', '500ms'], { anyExitCode: true });

      expect(result.code).toBe(exitCode('pending'));
      expect(result.stderr).toContain('stays queued and safe');
      expect((await statusOf(mount)).pending.count).toBeGreaterThan(0);
    } finally {
      server.resume();
    }
    await mount.sync();
  });
});

test('cfs status says which mount, how it stands with the service, and what is pending', async () => {
  await withMount(['--settle', '1h'], async (mount) => {
    await mount.run('printf x > pending.txt');

    const { stdout, code } = await mount.cfs(['status']);

    expect(code).toBe(0);
    expect(stdout).toContain(`mounted    ${mount.directory} (process ${mount.pid})`);
    expect(stdout).toMatch(/service {4}online for/);
    expect(stdout).toMatch(/pending {4}[1-9]\d* \(.*\), kept on this machine/);
    expect(await statusOf(mount)).toMatchObject({
      schema: 1,
      directory: mount.directory,
      phase: 'running',
      parked: [],
    });
  });
});

test('a directory or an account that is mounted already is refused, and the mount goes on', async () => {
  await withMount([], async (mount) => {
    expectRefusal(await cfsMount(mount, [mount.directory]), exitCode('alreadyMounted'), /is mounted already/);

    const elsewhere = join(mount.directory, '..', 'elsewhere');
    mkdirSync(elsewhere);
    expectRefusal(await cfsMount(mount, [elsewhere]), exitCode('alreadyMounted'), /process/);

    await mount.run('printf alive > alive.txt');
  });
});

test('a dead mount is taken away by the next cfs-mount, and by cfs umount', async () => {
  await withMount([], async (mount) => {
    await mount.run('printf kept > kept.txt');
    await mount.kill9();
    await mount.mount();
    expect((await mount.run('cat kept.txt')).stdout).toBe('kept');

    await mount.kill9();
    const { code, stdout } = await mount.cfs(['umount', mount.directory]);

    expect(code).toBe(0);
    expect(stdout).toContain('removed the dead mount');
    const table = await runCommand(['grep', '-c', mount.directory, '/proc/mounts'], { anyExitCode: true });
    expect(table.stdout).toBe('0\n');
  });
});

test('a link to the directory of a mount names it, dead or alive', async () => {
  await withMount([], async (mount) => {
    const link = join(mount.directory, '..', 'link');
    symlinkSync('mnt', link);
    await mount.run('mkdir folder && printf kept > folder/kept.txt');

    expect(await mount.cfs(['sync', '--wait', link])).toMatchObject({ code: 0 });
    expect(await namesOnServer(mount)).toContain('folder/kept.txt');
    expect((await mount.cfs(['pin', link])).stdout).toContain(`${link} is kept on this machine: `);
    expect((await mount.cfs(['umount', link])).stdout).toBe(`unmounted ${mount.directory}\n`);
    await mount.gone();

    await mount.mount();
    await mount.kill9();
    expect((await mount.cfs(['umount', link])).stdout).toContain('removed the dead mount');
    const table = await runCommand(['grep', '-c', mount.directory, '/proc/mounts'], { anyExitCode: true });
    expect(table.stdout).toBe('0\n');
  });
});

/** [S-stop-1] */
test('cfs umount returns when everything is pushed; with --now it keeps and reports the rest, and the next start pushes it', async () => {
  await withMount(['--settle', '1h'], async (mount) => {
    await mount.run('printf kept > kept-back.txt');
    const now = await mount.cfs(['umount', '--now'], { anyExitCode: true });
    await mount.gone();
    expect(now.code).toBe(exitCode('pending'));
    expect(now.stderr).toMatch(
      /^1 change not pushed yet; kept here and pushed after the next mount, nothing is lost\n {2}upload kept-back.txt\n$/,
    );
    expect(await namesOnServer(mount)).not.toContain('kept-back.txt');

    await mount.mount();
    const whole = await mount.cfs(['umount']);
    await mount.gone();

    expect(whole).toMatchObject({ code: 0, stdout: `unmounted ${mount.directory}\n` });
    expect(whole.stderr).not.toMatch(/not with the service/);
    expect(await namesOnServer(mount)).toContain('kept-back.txt');
  });
});

test('a start without the service mounts the known files, and the status reports that', async () => {
  const own = await ReferenceServer.start();
  const mount = await MountFixture.start({ server: own });
  try {
    await mount.run('printf known > known.txt');
    await mount.unmount();
    await own.kill9();

    await mount.mount();

    expect((await mount.run('cat known.txt')).stdout).toBe('known');
    await mount.run('printf offline > written-offline.txt');
    await expect.poll(async () => (await statusOf(mount)).connection.state, { timeout: 30_000 }).toBe('offline');
    expect((await mount.cfs(['status'])).stdout).toMatch(/service {4}offline for .*: /);

    await own.restart();
    await mount.cfs(['sync', '--wait'], { timeoutMs: 120_000 });
    expect(await namesOnServer(mount)).toContain('written-offline.txt');
  } finally {
    await mount.dispose();
    await own.dispose();
  }
});

test('a cfs umount that waits for an unreachable service is ended by --now or by a signal', async () => {
  const own = await ReferenceServer.start();
  const mount = await MountFixture.start({ server: own, flags: ['--drain', '100ms'] });
  try {
    for (const hurry of ['--now', 'SIGTERM', 'fusermount3'] as const) {
      await mount.run(`printf x > for-${hurry}.txt`);
      if (hurry === '--now') await own.kill9();
      const waiting = mount.cfs(['umount'], { anyExitCode: true, timeoutMs: 60_000 });
      await expect.poll(async () => (await statusOf(mount)).phase, { timeout: 30_000 }).toBe('draining');
      expect((await mount.run(`cat for-${hurry}.txt`)).stdout).toBe('x'); // until then it is there

      if (hurry === '--now') await mount.cfs(['umount', '--now'], { anyExitCode: true });
      else if (hurry === 'SIGTERM') process.kill(mount.pid, 'SIGTERM');
      else await runCommand(['fusermount3', '-u', mount.directory]);

      expect((await waiting).code).toBe(exitCode('pending'));
      await mount.gone();
      await mount.mount();
    }
    await expect.poll(async () => (await statusOf(mount)).connection.state, { timeout: 30_000 }).toBe('offline');
    const limited = await mount.cfs(['umount', '--timeout', '2s'], { anyExitCode: true });
    expect([limited.code, limited.stderr]).toEqual([
      exitCode('pending'),
      expect.stringMatching(
        /^the service does not answer: waiting; cfs umount --now unmounts immediately: .*\n.*3 changes not pushed yet; kept here and pushed after the next mount, nothing is lost\n/s,
      ),
    ]);
    await mount.gone();
  } finally {
    await mount.dispose();
    await own.dispose();
  }
});

test('a mount that begins while the service does not answer says so, and its status is never online', async () => {
  const own = await ReferenceServer.start();
  const mount = await MountFixture.start({ server: own });
  try {
    await mount.unmount();
    await own.kill9();

    const { code, stdout } = await cfsMount(mount, [mount.directory]);

    expect(code).toBe(0);
    expect(stdout).toMatch(
      /^mounted \S+ at \S+ \((offline: the service does not answer|the service has not answered yet)\)\n$/,
    );
    expect((await statusOf(mount)).connection.state).toMatch(/^(offline|connecting)$/);
    await expect.poll(async () => (await statusOf(mount)).connection.state, { timeout: 30_000 }).toBe('offline');
    await mount.cfs(['umount', '--now']);
  } finally {
    await mount.dispose();
    await own.dispose();
  }
});

test('in the foreground it prints a line per event, passes the signal on, and ends with 0', async () => {
  await withMount([], async (mount) => {
    await mount.unmount();
    const script = `
      "${process.execPath}" "${join(PROJECT, 'dist/cli/cfs-mount.js')}" --foreground "${mount.directory}" > "${mount.directory}.out" 2>&1 &
      launcher=$!
      until grep -q '^mounted ' "${mount.directory}.out"; do sleep 0.02; done
      printf hello > "${mount.directory}/event.txt"
      until grep -q '^uploaded event.txt' "${mount.directory}.out"; do sleep 0.02; done
      kill -INT "$launcher"
      wait "$launcher"
      echo "ended with $?"
      cat "${mount.directory}.out"`;

    const { stdout } = await runCommand(['bash', '-c', script], { env: mount.env(), timeoutMs: 60_000 });

    const lines = stdout.trim().split('\n');
    expect(lines[0]).toBe('ended with 0');
    expect(lines[1]).toMatch(/^mounted \S+ at /);
    expect(lines).toContain('uploaded event.txt (version 1, 5 B)');
    expect(lines.at(-1)).toBe(`unmounted ${mount.directory}`);
  });
});

test('the mount survives the end of the reader of its events', async () => {
  await withMount([], async (mount) => {
    await mount.unmount();
    const script = `
      "${process.execPath}" "${join(PROJECT, 'dist/cli/cfs-mount.js')}" --foreground "${mount.directory}" | head -n 1 &
      until grep -q " ${mount.directory} " /proc/mounts; do sleep 0.02; done
      cd "${mount.directory}"
      for name in one two three; do printf x > "$name"; "${process.execPath}" "${join(PROJECT, 'dist/cli/cfs.js')}" sync --wait; done
      ls; cd /
      "${process.execPath}" "${join(PROJECT, 'dist/cli/cfs.js')}" umount`;

    const { stdout } = await runCommand(['bash', '-ec', script], { env: mount.env(), timeoutMs: 60_000 });

    expect(stdout).toMatch(/^one$/m);
    expect(stdout).toMatch(/^three$/m);
    expect(stdout).toContain(`unmounted ${mount.directory}`);
  });
});

test('a wrong password is refused in one sentence, and the account that was there stays', async () => {
  await withMount([], async (mount) => {
    const result = await mount.cfs(['login', server.account.url], {
      env: { CFS_PASSWORD: 'wrong' },
      anyExitCode: true,
    });

    expectRefusal(result, exitCode('signIn'), /refuses the user name, password or keys/);
    await mount.run('printf x > still-there.txt');
    await mount.sync();
  });
});

test('the log, the account and the requests hold no secret where it does not belong', async () => {
  await withMount(['--log-level', 'trace'], async (mount) => {
    await mount.run('printf x > logged.txt');
    await mount.sync();
    await mount.unmount();
    const home = join(mount.directory, '..');
    const found = async (secret: string): Promise<string> =>
      (await runCommand(['grep', '-rlF', '--', secret, home], { anyExitCode: true })).stdout.replaceAll(home, '');

    expect(await found(server.account.password)).toBe('');
    expect(await found(server.account.privateAccessKey)).toMatch(/^\/state\/cfs\/accounts\/[^/]+\/account\.json\n$/);
  });
});
