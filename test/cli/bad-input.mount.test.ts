import { existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { type CommandResult, runCommand } from '../harness/command.ts';
import { inMountNamespace } from '../harness/mount-namespace.ts';
import { missingForOtherUsers, missingRoot, testUnless } from '../harness/requirement.ts';
import { PROJECT } from '../imports.ts';
import { CommandHome } from './cli-harness.ts';

/** Whatever is wrong is told in one sentence with its own exit code, without a stack; nothing is changed and nothing stays. */

let home: CommandHome;
let servers: Server[];

beforeEach(() => {
  home = new CommandHome();
  servers = [];
});

afterEach(async () => {
  for (const server of servers) await new Promise((resolve) => server.close(resolve));
  home.dispose();
});

function expectRefusal(result: CommandResult, code: number, sentence: string | RegExp): void {
  if (typeof sentence === 'string') expect(result.stderr).toContain(sentence);
  else expect(result.stderr).toMatch(sentence);
  expect(result.stderr.trim().split('\n'), result.stderr).toHaveLength(1);
  expect(result.stderr).not.toMatch(/^\s+at |node:internal|Error:/m);
  expect(result.stdout).toBe('');
  expect(result.code).toBe(code);
}

/** A program that answers HTTP, but is not the service. */
async function answering(listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe('cfs-mount', () => {
  test.each<[string, () => void, string, string]>([
    ['a directory that is missing', () => {}, 'missing', 'does not exist'],
    ['a file', () => writeFileSync(home.path('file'), ''), 'file', 'is not a directory'],
    [
      'a directory that is not empty',
      () => mkdirSync(home.path('full/of'), { recursive: true }),
      'full',
      'is not empty',
    ],
  ])('refuses %s', async (_what, prepare, name, reason) => {
    home.plantAccount();
    prepare();

    expectRefusal(await home.run('cfs-mount', [home.path(name)]), exitCode('mountPoint'), reason);
  });

  test.each([
    ['the store', (): readonly string[] => ['--nonempty', home.directory], 'store'],
    ['the log', () => ['--log-file', home.path('empty/logs/mount.log'), home.path('empty')], 'mount.log'],
    ['the store, through a link', () => ['--nonempty', home.path('link')], 'store'],
  ])(
    'refuses a directory that would hide %s from the mount itself, and makes nothing there',
    async (_what, args, needed) => {
      home.plantAccount();
      mkdirSync(home.path('empty'));
      symlinkSync(home.directory, home.path('link'));

      const refusal = await home.run('cfs-mount', args());

      expectRefusal(refusal, exitCode('mountPoint'), `${needed}, which the mount itself needs`);
      expect(readdirSync(home.path('empty'))).toEqual([]);
    },
  );

  test('refuses to start without an account, and says how to get one', async () => {
    mkdirSync(home.path('cloud'));

    expectRefusal(await home.run('cfs-mount', [home.path('cloud')]), exitCode('signIn'), 'cfs login URL');
  });

  test('refuses to choose between accounts', async () => {
    home.plantAccount();
    home.plantAccount({ userId: '18' });
    mkdirSync(home.path('cloud'));

    expectRefusal(await home.run('cfs-mount', [home.path('cloud')]), exitCode('usage'), '--account');
  });

  test('refuses a command line without a directory, or with an unknown flag', async () => {
    expectRefusal(await home.run('cfs-mount', []), exitCode('usage'), "missing required argument 'directory'");
    expectRefusal(await home.run('cfs-mount', ['--colour', 'x']), exitCode('usage'), "unknown option '--colour'");
  });

  test('names every wrong option with its place, before it looks at anything else', async () => {
    mkdirSync(home.path('config/cfs'));
    writeFileSync(home.path('config/cfs/config.toml'), 'settle = "soon"\n');

    const { code, stderr } = await home.run(
      'cfs-mount',
      ['/nowhere', '--dir-ttl', '3', '-o', 'frobnicate,drain=1', '--drain', '1s'],
      { env: { CFS_TRANSFERS: '0' } },
    );

    expect(code).toBe(exitCode('usage'));
    expect(
      stderr
        .replace(/ \(known: .*\)$/m, '')
        .trim()
        .split('\n')
        .sort(),
    ).toEqual(
      [
        'cfs-mount: -o: unknown: frobnicate',
        'cfs-mount: -o drain: "1" is not a duration such as 500ms, 5s or 2min',
        'cfs-mount: --dir-ttl: "3" is not a duration such as 500ms, 5s or 2min',
        'cfs-mount: CFS_TRANSFERS: "0" is not a number from 1 to 64',
        `cfs-mount: ${home.path('config/cfs/config.toml')}:1: settle: "soon" is not a duration such as 500ms, 5s or 2min`,
      ].sort(),
    );
  });

  /** A mount namespace of its own, whose /dev has no fuse: what a plain container looks like. */
  testUnless(missingRoot())('says what is missing when there is no /dev/fuse', async () => {
    home.plantAccount();
    mkdirSync(home.path('cloud'));
    const script = [
      'set -e',
      'mount -t tmpfs none /dev',
      'mknod -m 666 /dev/null c 1 3',
      'mknod -m 666 /dev/urandom c 1 9',
      `exec "${process.execPath}" "${join(PROJECT, 'dist/cli/cfs-mount.js')}" "${home.path('cloud')}"`,
    ].join('\n');

    const result = await runCommand(inMountNamespace(script, null), { env: home.env, anyExitCode: true });

    expectRefusal(result, exitCode('noFuse'), 'there is no /dev/fuse here');
  });

  test('a first start without the service says that nothing is known yet', async () => {
    home.plantAccount();
    mkdirSync(home.path('cloud'));

    const result = await home.run('cfs-mount', [home.path('cloud')]);

    expectRefusal(result, exitCode('unreachable'), /cannot be reached.*ECONNREFUSED/);
    expect((await runCommand(['grep', '-c', home.directory, '/proc/mounts'], { anyExitCode: true })).stdout).toBe(
      '0\n',
    );
  });
});

describe('cfs login', () => {
  const SECRETS = {
    CFS_USERNAME: 'ann@example.com',
    CFS_PASSWORD: 'wrong horse',
    CFS_APPLICATION: '/sc/1/2',
    CFS_ACCESS_KEY_ID: 'key',
    CFS_PRIVATE_ACCESS_KEY: 'private',
  };

  test('without a terminal names everything that the environment lacks', async () => {
    const { CFS_PASSWORD: _one, CFS_APPLICATION: _two, ...rest } = SECRETS;

    const result = await home.run('cfs', ['login', 'http://127.0.0.1:9'], { env: rest });

    expectRefusal(
      result,
      exitCode('usage'),
      /neither flags nor environment provide: CFS_PASSWORD \(--password-stdin\), CFS_APPLICATION \(--application\)$/m,
    );
  });

  test.each([
    [[], 'no service address'],
    [['example.com'], 'is not a URL'],
    [['ftp://example.com'], 'is not a URL'],
    [['http://ann:secret@example.com'], 'the URL must not contain a user name or password'],
    [['https://example.com/api?x=1'], 'use https://example.com'],
    [['http://192.0.2.1'], '--insecure'],
  ])('%j is refused before anything is sent', async (args, reason) => {
    expectRefusal(await home.run('cfs', ['login', ...args], { env: SECRETS }), exitCode('usage'), reason);
  });

  test('says that the service cannot be reached', async () => {
    const result = await home.run('cfs', ['login', 'http://127.0.0.1:9'], { env: SECRETS });

    // Attempts go on for longer than two seconds: until then nothing is said of waiting.
    const stderr = result.stderr.replace(/^waiting for the service at \S+ to answer; .*\n/, '');
    expectRefusal({ ...result, stderr }, exitCode('unreachable'), 'http://127.0.0.1:9 cannot be reached');
  });

  test('says that a service of plain HTTP does not speak TLS, without the internals of OpenSSL', async () => {
    const url = await answering((_request, response) => response.end());

    const { code, stderr } = await home.run('cfs', ['login', url.replace('http:', 'https:')], { env: SECRETS });

    expect(code).toBe(exitCode('unreachable'));
    expect(stderr).toMatch(
      /^cfs: https:\S+ cannot be reached: the server does not speak TLS \(wrong version number\): check the scheme \(http:\/\/ or https:\/\/\) and the port\n$/,
    );
  });

  test('says that password or keys were refused, and keeps nothing', async () => {
    const url = await answering((request, response) => {
      request.resume().on('end', () => response.writeHead(401, { 'content-type': 'text/html' }).end('<h3>no</h3>'));
    });

    const result = await home.run('cfs', ['login', url], { env: SECRETS });

    expectRefusal(result, exitCode('signIn'), 'refuses the user name, password or keys');
    const kept = await runCommand(['grep', '-rF', 'wrong horse', home.directory], { anyExitCode: true });
    expect(kept.stdout).toBe('');
  });

  test('says that something answers which is not the service', async () => {
    const url = await answering((_request, response) => response.writeHead(404).end('<html>nothing here</html>'));

    expectRefusal(
      await home.run('cfs', ['login', url], { env: SECRETS }),
      exitCode('unreachable'),
      'not as the service does',
    );
  });
});

describe('without a mount', () => {
  test.each([
    [['sync', '--wait'], 'no mount is running'],
    [['sync', '--wait', '/etc/hostname'], '/etc/hostname is not in a running mount'],
    [['umount'], 'no mount is running'],
    [['umount', '/mnt/x\ny'], 'no cfs mount is running at /mnt/x\\x0ay'],
    [['umount', '--account', 'zoe'], 'zoe is not mounted'],
  ])('cfs %j says so', async (args, sentence) => {
    home.plantAccount();

    expectRefusal(await home.run('cfs', args), exitCode('notMounted'), sentence);
  });

  test('cfs status says who is signed in', async () => {
    home.plantAccount();

    expect(await home.run('cfs', ['status'])).toMatchObject({
      code: 0,
      stdout: 'ann@example.com at http://127.0.0.1:9\n  not mounted\n',
    });
    const { stdout } = await home.run('cfs', ['status', '--json']);
    expect(JSON.parse(stdout)).toMatchObject({ accounts: [{ name: '17@http+127.0.0.1:9', status: null }] });
    expect(stdout).not.toMatch(/private|app-authorization/);
  });

  test.each([
    ['a link that leads nowhere else', (path: string) => symlinkSync('config.toml', path), 'ELOOP'],
    ['a folder', (path: string) => mkdirSync(path), 'EISDIR'],
  ] as const)('a config.toml that is %s is not passed over', async (_what, make, code) => {
    const path = join(String(home.env.XDG_CONFIG_HOME), 'cfs', 'config.toml');
    mkdirSync(join(path, '..'));
    make(path);

    expectRefusal(await home.run('cfs', ['config', 'show']), exitCode('usage'), `${path} cannot be read (${code})`);
    expectRefusal(await home.run('cfs-mount', ['/']), exitCode('usage'), `${path} cannot be read (${code})`);
  });

  test.each(['', 'here'])('with HOME=%j a command creates nothing in its working directory', async (HOME) => {
    const env = { HOME, XDG_CONFIG_HOME: undefined };

    const { stdout } = await home.run('cfs', ['config', 'show'], { env });

    expect(stdout).toContain(`config.toml: ${userInfo().homedir}/.config/cfs/config.toml\n`);
  });

  testUnless(missingForOtherUsers())('a user without a home directory is told so by what needs one', async () => {
    const env = { ...home.env, HOME: undefined, XDG_STATE_HOME: undefined };
    const as = ['setpriv', '--reuid=4242424', '--regid=4242424', '--clear-groups'];
    const run = (program: string, word: string) =>
      runCommand([...as, process.execPath, join(PROJECT, 'dist/cli', program), word], { env, anyExitCode: true });

    for (const [program, word] of [
      ['cfs.js', 'accounts'],
      ['cfs-mount.js', '/'],
    ] as const)
      expectRefusal(await run(program, word), exitCode('usage'), 'there is no home directory: set HOME to one');
    expect((await run('cfs.js', '--help')).code).toBe(0);
  });

  test('an unknown subcommand or flag is one line', async () => {
    expectRefusal(await home.run('cfs', ['frobnicate']), exitCode('usage'), "unknown command 'frobnicate'");
    expectRefusal(await home.run('cfs', ['sync', '--fast']), exitCode('usage'), "unknown option '--fast'");
    expectRefusal(await home.run('cfs', ['sync', '--wait', '--timeout', '3']), exitCode('usage'), '--timeout: "3"');
  });
});

describe('doctor, service and completion', () => {
  test.each([
    [['service', 'install'], 'usage', "missing required argument 'directory'"],
    [['service', 'install', '/missing/x\ny'], 'mountPoint', '/missing/x\\x0ay does not exist'],
    [['service', 'install', '/', '--settle', 'soon'], 'usage', '--settle: "soon"'],
    [['service', 'install', '/', '--account', 'zoe'], 'signIn', 'no account zoe'],
    [['service', 'remove'], 'notMounted', 'no service is installed'],
    [['service', 'remove', '/x\ny'], 'notMounted', 'no service is installed for /x\\x0ay'],
    [['completion'], 'usage', "missing required argument 'shell'"],
    [['completion', 'tcsh'], 'usage', 'cfs: tcsh is not one of: bash, zsh, fish'],
    [['doctor', '--account', 'zoe'], 'signIn', 'zoe is not signed in here'],
    [['doctor', 'now'], 'usage', 'too many arguments'],
  ] as const)('cfs %j is refused in one line, and nothing is changed', async (args, reason, sentence) => {
    home.plantAccount();

    expectRefusal(await home.run('cfs', args), exitCode(reason), sentence);
    expect(existsSync(`${home.env.XDG_CONFIG_HOME}/systemd`)).toBe(false);
  });
});
