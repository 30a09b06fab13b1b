import { existsSync, lstatSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { HttpService } from '../../src/remote/http/http-service.ts';
import { type CommandResult, runCommand } from '../harness/command.ts';
import { loneDoctor } from '../harness/lone-doctor.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { missingRoot, testUnless } from '../harness/requirement.ts';

/** What SECURITY.md says of secrets, permissions and a hostile service, over a mount that works with all it has. */

let mount: MountFixture;
let service: HttpService;
/** All that a sign-in brings: none of it may be found outside account.json. */
let secrets: Record<string, string>;
/** Everything that commands printed. */
let said = '';

beforeAll(async () => {
  mount = await MountFixture.start({ flags: ['--log-level', 'trace', '--settle', '50ms', '--dir-ttl', '100ms'] });
  const { account } = mount.server;
  const kept = JSON.parse(readFileSync(accountFile(), 'utf8')) as { refreshToken: string };
  secrets = {
    password: account.password,
    'private key': account.privateAccessKey,
    'refresh token': kept.refreshToken.replace(/^.*\//, ''),
  };
  service = new HttpService({
    baseUrl: account.url,
    keys: account,
    refreshToken: kept.refreshToken,
    userAgent: 'third client',
    clock: systemClock,
    log: silentLogger,
  });
});

afterAll(async () => {
  await service.close();
  await mount.dispose();
});

function home(): string {
  return mount.env().HOME ?? '';
}

function accountFile(): string {
  const accounts = join(mount.env().XDG_STATE_HOME ?? '', 'cfs', 'accounts');
  return join(accounts, readdirSync(accounts)[0] ?? '', 'account.json');
}

/** Everything below a directory, itself included; nothing of what is mounted. */
function everythingBelow(directory: string): string[] {
  if (directory === mount.directory) return [];
  const entries = readdirSync(directory, { withFileTypes: true });
  return [
    directory,
    ...entries.flatMap((entry) => {
      const path = join(directory, entry.name);
      return entry.isDirectory() ? everythingBelow(path) : [path];
    }),
  ];
}

/** Another user of this machine, in the same place. */
function asOther(script: string, ...args: string[]): Promise<CommandResult> {
  const identity = ['--reuid', '65534', '--regid', '65534', '--clear-groups'];
  return runCommand(['setpriv', ...identity, 'sh', '-c', script, 'sh', ...args], { anyExitCode: true });
}

async function run(args: readonly string[]): Promise<CommandResult> {
  const result = await mount.cfs(args, { anyExitCode: true });
  said += result.stdout + result.stderr;
  return result;
}

test('what is kept is open to nobody else, whatever the umask', async () => {
  const state = join(home(), 'state', 'cfs');
  const runtime = join(home(), 'runtime', 'cfs');
  const modes = [state, runtime].flatMap(everythingBelow).map((path) => [path, lstatSync(path).mode & 0o777] as const);
  const closed = (path: string): boolean =>
    modes.some(([above, mode]) => path.startsWith(above) && (mode & 0o077) === 0);

  // A file may have any mode where a directory above it lets nobody through.
  expect(modes.filter(([path]) => !closed(path)).map(([path]) => path.slice(home().length))).toEqual([]);
  const modeOf = (path: string): string => (lstatSync(path).mode & 0o777).toString(8);
  expect(modeOf(accountFile())).toBe('600');
  const sockets = modes.filter(([path]) => lstatSync(path).isSocket());
  expect(sockets.map(([, mode]) => mode.toString(8))).toEqual(['600']);
  for (const [path] of sockets) expect(modeOf(join(path, '..'))).toBe('700');
  for (const [path, mode] of modes) if (path.endsWith('mount.log')) expect(mode.toString(8)).toBe('600');
});

testUnless(missingRoot())('another user cannot see the mount, its store, its log and its socket', async () => {
  await mount.run('echo mine > private');
  const [socket = ''] = everythingBelow(join(home(), 'runtime')).filter((path) => lstatSync(path).isSocket());
  const log = join(accountFile(), '..', 'mount.log');

  for (const path of [join(mount.directory, 'private'), accountFile(), log, socket]) {
    const { code, stdout, stderr } = await asOther('cat "$1"', path);
    expect(code).not.toBe(0);
    expect(stdout).toBe('');
    expect(stderr).toMatch(/Permission denied/);
  }
  expect((await asOther('ls "$1"', mount.directory)).stderr).toMatch(/Permission denied/);
  // Somebody who knows where the socket is gets no answer: not even that a mount is there.
  const connect =
    'exec perl -MSocket -e \'socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, pack_sockaddr_un($ARGV[0])) or die "$!\\n"\' "$1"';
  expect((await asOther(connect, socket)).stderr).toMatch(/Permission denied/);
});

/** Each name is made by a third client: what a hostile service, or a hostile sharer, could list. */
const HOSTILE = [
  '..',
  '.',
  '/etc/passwd',
  '../../escaped',
  'a/../../escaped',
  'x\0y',
  '\u202e-evil',
  'a\nb',
  ' ',
  'é'.repeat(200),
];

test('names of the service stay within the mount, and what is behind them within the store', async () => {
  const { home: root } = await service.user();
  const folder = await service.createFolder(root, 'hostile');
  const accepted: string[] = [];
  for (const name of HOSTILE) {
    const file = await service.createFile(folder, name, 'text/plain').catch(() => null);
    if (file === null) continue; // not even the service takes it
    const bytes = Buffer.from(`bytes of ${JSON.stringify(name)}`);
    await service.putFileData(file, bodyOf(bytes), 'text/plain');
    accepted.push(bytes.toString());
  }
  expect(accepted.length).toBeGreaterThan(5);
  const link = await service.createFile(folder, 'link', 'inode/symlink');
  await service.putFileData(link, bodyOf(Buffer.from('/etc/hostname')), 'inode/symlink');
  const before = everythingBelow(home()).filter((path) => !path.includes('/state/'));

  await run(['refresh', mount.directory]);
  const { stdout } = await mount.run(
    'find hostile -mindepth 1 -type f -print0 | sort -z | xargs -0 -n 1 sh -c \'cat "$1"; echo\' sh',
  );

  expect(stdout.trimEnd().split('\n').sort()).toEqual([...accepted].sort());
  const names = (await mount.run('find hostile -mindepth 1 -printf "%P\\0"')).stdout.split('\0').filter(Boolean);
  for (const name of names) expect(name.split('/').length === 1 && name !== '..' && name !== '.', name).toBe(true);
  // A link is shown as the link it is; whoever reads the log, the store or the upload never follows it.
  expect((await mount.run('readlink hostile/link; find hostile -type l')).stdout).toBe('/etc/hostname\nhostile/link\n');
  expect(everythingBelow(home()).filter((path) => !path.includes('/state/'))).toEqual(before);
  const store = join(accountFile(), '..', 'store');
  for (const path of everythingBelow(store)) {
    expect(lstatSync(path).isSymbolicLink(), path).toBe(false);
    expect(path.slice(store.length), path).toMatch(/^[\w./-]*$/);
  }
  expect(existsSync('/escaped') || existsSync(join(home(), 'escaped'))).toBe(false);
});

test('nothing on the mount is ever setuid or a device', async () => {
  const line =
    readFileSync('/proc/mounts', 'utf8')
      .split('\n')
      .find((each) => each.includes(` ${mount.directory} `)) ?? '';

  expect(line).toMatch(/\bnosuid\b/);
  expect(line).toMatch(/\bnodev\b/);
  expect(line).not.toMatch(/\ballow_other\b/);
});

test('a mount is one process under the id of its user, and so is its announcer', () => {
  const { pid } = mount;
  const idsOf = (of: string): string[] => /^Uid:\s+(.+)$/m.exec(textOf(`/proc/${of}/status`))?.[1]?.split('\t') ?? [];
  const ours = Array(4).fill(String(process.getuid?.()));
  const children = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => new RegExp(`^PPid:\\s+${pid}$`, 'm').test(textOf(`/proc/${name}/status`)));

  expect(idsOf(String(pid))).toEqual(ours);
  for (const child of children) {
    expect(textOf(`/proc/${child}/comm`).trim()).toBe('cfs-announcer');
    expect(idsOf(child)).toEqual(ours);
  }
  expect(children.length).toBeLessThanOrEqual(1);
});

/** The last one: nobody is signed in any more after it. */
test('no secret is in a log, a command line, an environment, an error or the store', async () => {
  await mount.run('mkdir folder; echo one > folder/file; echo two > folder/file; mv folder/file renamed; rm renamed');
  await mount.sync();
  await run(['status', '--json']);
  const doctor = await loneDoctor(mount);
  expect(doctor.stdout).toContain('"checks"');
  said += doctor.stdout + doctor.stderr;
  await run(['config', 'show']);
  const { pid } = mount;
  // Refusals are logged with what was asked for: the sign-in is taken back while the mount works with it.
  const revoke = ['serve', 'user', 'revoke-tokens', mount.server.account.username, '--data', mount.server.data];
  await mount.cfs(revoke);
  await mount.run('echo three > later');
  await expect.poll(async () => (await run(['status'])).stdout, { timeout: 20_000 }).toContain('sign-in');
  // A refusal is an error text with everything that was sent in reach.
  const wrong = { ...mount.env(), CFS_PASSWORD: `${mount.server.account.password}-wrong` };
  said += (await mount.cfs(['login'], { env: wrong, anyExitCode: true })).stderr;
  const commandLines = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => textOf(`/proc/${name}/cmdline`))
    .filter((line) => /dist\/(cli|mount)\//.test(line));
  expect(commandLines.length).toBeGreaterThan(0);
  const environment = textOf(`/proc/${pid}/environ`);
  expect(environment).toContain('CFS_MOUNT_REQUEST=');
  await mount.unmount(['--now']);

  const files = everythingBelow(home()).filter((path) => lstatSync(path).isFile() && path !== accountFile());
  expect(files.some((path) => path.endsWith('mount.log'))).toBe(true);
  expect(files.some((path) => path.endsWith('data.mdb'))).toBe(true);
  const places: [string, string][] = [
    ...files.map((path): [string, string] => [path, readFileSync(path, 'latin1')]),
    ['the command lines', commandLines.join('\n')],
    ['the environment of the mount', environment],
    ['what commands said', said],
  ];
  const log = places.find(([place]) => place.endsWith('mount.log'))?.[1] ?? '';
  expect(log).toContain('"level":20');
  expect(log).toMatch(/sign-in-needed/);
  const found = places.flatMap(([place, text]) => [
    ...Object.entries(secrets).flatMap(([name, secret]) => (text.includes(secret) ? [`${name} in ${place}`] : [])),
    // Access tokens are URLs like that; they live for an hour.
    ...(/\/authorization\/[\w.~-]{6,}/.test(text) ? [`an access token in ${place}`] : []),
  ]);

  expect(found).toEqual([]);
  expect(readFileSync(accountFile(), 'utf8')).not.toContain(secrets.password);
  expect(readFileSync(accountFile(), 'utf8')).toContain(secrets['refresh token']);
});

function bodyOf(bytes: Uint8Array): { length: number; chunks(): AsyncIterable<Uint8Array> } {
  return {
    length: bytes.byteLength,
    async *chunks() {
      yield bytes;
    },
  };
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return ''; // it has ended
  }
}
