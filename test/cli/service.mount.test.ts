import { type ChildProcess, spawn } from 'node:child_process';
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { NOT_FOR_PROGRAMS } from '../harness/command.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { stopProcess } from '../harness/stop-process.ts';
import { CommandHome } from './cli-harness.ts';

/**
 * `cfs service`, and what the mount tells the manager that started it (sd_notify(3)) over a real datagram socket. One account for all:
 * each test starts and ends the mount.
 */

let fixture: MountFixture;
let tools: CommandHome;
let children: ChildProcess[] = [];

beforeAll(async () => {
  fixture = await MountFixture.start();
  await fixture.unmount();
});

beforeEach(() => {
  tools = new CommandHome();
  mkdirSync(tools.path('bin'));
});

afterEach(async () => {
  // What a test that failed left mounted: with nothing mounted this says so, and that is all.
  await fixture.cfs(['umount', '--now'], { anyExitCode: true });
  for (const child of children) child.kill('SIGKILL');
  children = [];
  tools.dispose();
});

afterAll(() => fixture?.dispose());

/** A systemctl that writes down what it was asked. */
function plantSystemctl(exitCode: number): { asked: () => string[]; env: Record<string, string> } {
  const log = tools.path('systemctl.log');
  const script = `#!/bin/sh\necho "$*" >> '${log}'\n[ ${exitCode} = 0 ] || echo 'Failed to connect to bus' >&2\nexit ${exitCode}\n`;
  writeFileSync(tools.path('bin/systemctl'), script, { mode: 0o755 });
  return {
    asked: () => (existsSync(log) ? readFileSync(log, 'utf8').trim().split('\n') : []),
    env: { PATH: `${tools.path('bin')}:${process.env.PATH}` },
  };
}

/** What comes at a datagram socket, a line for each message. Node has no such socket; perl is on every Debian. */
async function listen(path: string): Promise<{ messages: () => string[] }> {
  const program = [
    'use Socket; $| = 1; socket(S, AF_UNIX, SOCK_DGRAM, 0) or die; bind(S, pack_sockaddr_un($ARGV[0])) or die;',
    'print "listening\\n"; while (defined recv(S, $m, 4096, 0)) { $m =~ s/\\n/|/g; print "$m\\n" }',
  ];
  const child = spawn('perl', ['-e', program.join(' '), path], { stdio: ['ignore', 'pipe', 'inherit'] });
  children.push(child);
  let text = '';
  child.stdout.on('data', (more: Buffer) => {
    text += more.toString();
  });
  await expect.poll(() => text, { timeout: 10_000 }).toContain('listening\n');
  return { messages: () => text.trim().split('\n').slice(1) };
}

function unitFiles(): { folder: string; names: string[] } {
  const folder = join(fixture.env().XDG_CONFIG_HOME ?? '', 'systemd', 'user');
  return { folder, names: existsSync(folder) ? readdirSync(folder) : [] };
}

test('the systemd service is installed, reports readiness, runs, stops and is removed', async () => {
  const systemctl = plantSystemctl(0);
  const installed = await fixture.cfs(['service', 'install', fixture.directory, '--settle', '100ms', '--read-only'], {
    env: systemctl.env,
  });
  const { folder, names } = unitFiles();
  expect(names).toHaveLength(1);
  const [name = ''] = names;
  expect(installed.stdout).toContain(join(folder, name));
  expect(systemctl.asked()).toEqual(['--user daemon-reload', `--user enable --now ${name}`]);
  const unit = readFileSync(join(folder, name), 'utf8');
  const command = /^ExecStart=(.*)$/m.exec(unit)?.[1] ?? '';
  expect(command).toContain(' --settle=100ms --read-only -- ');

  // As systemd would: the command of the unit, the sockets in its environment.
  const socket = tools.path('notify');
  const { messages } = await listen(socket);
  const service = spawn('sh', ['-c', `exec ${command}`], {
    stdio: 'inherit',
    env: { ...process.env, ...NOT_FOR_PROGRAMS, ...fixture.env(), NOTIFY_SOCKET: socket, WATCHDOG_USEC: '400000' },
  });
  children.push(service);
  const ended = new Promise<number | null>((resolve) => service.once('exit', resolve));
  await expect.poll(messages, { timeout: 30_000 }).toContainEqual(expect.stringMatching(/^READY=1\|STATUS=mounted /));
  expect((await fixture.run('ls')).code).toBe(0); // ready means that it answers
  expect(messages()[0]).not.toContain('MAINPID');
  await expect.poll(messages, { timeout: 10_000 }).toContain('WATCHDOG=1');
  service.kill('SIGTERM');
  expect(await ended).toBe(0);
  await expect.poll(messages).toContainEqual(expect.stringMatching(/^STOPPING=1\|STATUS=unmounting /));
  expect(readFileSync('/proc/mounts', 'utf8')).not.toContain(` ${fixture.directory} `);

  const removed = await fixture.cfs(['service', 'remove'], { env: systemctl.env });
  expect(removed.stdout).toContain('removed ');
  expect(unitFiles().names).toEqual([]);
  expect(systemctl.asked().slice(2)).toEqual([`--user disable --now ${name}`, '--user daemon-reload']);
});

test('a mount whose process hangs sends no watchdog message', async () => {
  const socket = tools.path('notify');
  const { messages } = await listen(socket);
  // A sign every 50 ms: one that lives gives several while a command starts and ends.
  const notify = { NOTIFY_SOCKET: socket, WATCHDOG_USEC: '100000' };
  const cfsMount = new URL('../../dist/cli/cfs-mount.js', import.meta.url).pathname;
  const service = spawn(process.execPath, [cfsMount, '-f', fixture.directory], {
    stdio: 'ignore',
    env: { ...process.env, ...NOT_FOR_PROGRAMS, ...fixture.env(), ...notify },
  });
  children.push(service);
  await expect.poll(messages, { timeout: 30_000 }).toContain('WATCHDOG=1');
  const status = await fixture.cfs(['status', '--json']);
  const { accounts } = JSON.parse(status.stdout) as { accounts: { status: { pid: number } }[] };
  const pid = accounts[0]?.status.pid ?? 0;
  expect(pid).toBeGreaterThan(1);

  await stopProcess(pid);
  let before = 0;
  try {
    await fixture.cfs(['--version']);
    before = messages().length;
    for (let run = 0; run < 4; run++) await fixture.cfs(['--version']);
    expect(messages().length - before).toBeLessThanOrEqual(2); // what was on its way may still arrive
  } finally {
    process.kill(pid, 'SIGCONT');
  }
  await expect.poll(() => messages().length - before, { timeout: 30_000 }).toBeGreaterThan(2);
  service.kill('SIGTERM');
  await fixture.cfs(['umount', '--now'], { anyExitCode: true });
});

test('without a manager the unit is written, and it is said how to start it; removing takes it away all the same', async () => {
  const systemctl = plantSystemctl(1);

  const installed = await fixture.cfs(['service', 'install', fixture.directory], {
    env: systemctl.env,
    anyExitCode: true,
  });
  expect(installed.code).toBe(15);
  expect(installed.stdout).toContain('not started (Failed to connect to bus); to start it: systemctl --user enable');
  expect(unitFiles().names).toHaveLength(1);

  const missing = await fixture.cfs(['service', 'remove', '/somewhere/else'], {
    env: systemctl.env,
    anyExitCode: true,
  });
  expect(missing.code).toBe(9);
  expect((await fixture.cfs(['service', 'remove', fixture.directory], { env: systemctl.env })).code).toBe(0);
  expect(unitFiles().names).toEqual([]);
  expect((await fixture.cfs(['service', 'remove'], { env: systemctl.env, anyExitCode: true })).stderr).toContain(
    'no service is installed',
  );
});

test('a mount in the background tells the manager which process it is', async () => {
  const socket = tools.path('notify');
  const { messages } = await listen(socket);
  const cfsMount = new URL('../../dist/cli/cfs-mount.js', import.meta.url).pathname;
  const child = spawn(process.execPath, [cfsMount, fixture.directory], {
    stdio: 'ignore',
    env: { ...process.env, ...NOT_FOR_PROGRAMS, ...fixture.env(), NOTIFY_SOCKET: socket },
  });
  expect(await new Promise((resolve) => child.once('exit', resolve))).toBe(0);

  await expect.poll(messages, { timeout: 10_000 }).toHaveLength(1);
  const pid = Number(/MAINPID=(\d+)$/.exec(messages()[0] ?? '')?.[1]);
  const status = await fixture.cfs(['status', '--json']);
  const { accounts } = JSON.parse(status.stdout) as { accounts: { status: { pid: number } }[] };
  expect(pid).toBe(accounts[0]?.status.pid);
  await fixture.cfs(['umount', '--now']);
});

/** systemd.exec(5): JOURNAL_STREAM names the device and inode of the stream, so that nobody takes another file for it. */
test('the log goes to the journal where standard error is one, with its levels, and to its file otherwise', async () => {
  const cfsMount = new URL('../../dist/cli/cfs-mount.js', import.meta.url).pathname;
  const logs = (): string[] =>
    readdirSync(join(fixture.env().XDG_STATE_HOME ?? '', 'cfs/accounts'), { recursive: true }).map(String);
  const run = async (journalStream: (path: string) => string): Promise<string> => {
    const path = tools.path('journal');
    const fd = openSync(path, 'w');
    const child = spawn(process.execPath, [cfsMount, '-f', fixture.directory], {
      stdio: ['ignore', 'ignore', fd],
      env: { ...process.env, ...NOT_FOR_PROGRAMS, ...fixture.env(), JOURNAL_STREAM: journalStream(path) },
    });
    closeSync(fd);
    children.push(child);
    const ended = new Promise((resolve) => child.once('exit', resolve));
    await expect
      .poll(() => readFileSync('/proc/mounts', 'utf8'), { timeout: 30_000 })
      .toContain(` ${fixture.directory} `);
    await fixture.cfs(['umount', '--now']);
    expect(await ended).toBe(0);
    return readFileSync(path, 'utf8');
  };
  for (const name of logs())
    if (name.endsWith('mount.log')) rmSync(join(fixture.env().XDG_STATE_HOME ?? '', 'cfs/accounts', name));

  const journal = await run((path) => `${statSync(path).dev}:${statSync(path).ino}`);
  expect(journal).toMatch(/^<6>\{"level":30,.*"type":"mounted"/m);
  expect(logs().filter((name) => name.endsWith('mount.log'))).toEqual([]);

  expect(await run(() => '1:2')).toBe('');
  expect(logs().filter((name) => name.endsWith('mount.log'))).toHaveLength(1);
});
