import { existsSync, mkdirSync, readFileSync, readlinkSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { runCommand } from '../harness/command.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { ReferenceServer } from '../harness/reference-server.ts';
import { PROJECT, textOf } from '../imports.ts';
import { CommandHome } from './cli-harness.ts';

/** What people do beside their files: sign in and out, look how it stands, get their bytes out. */

const CFS = join(PROJECT, 'dist/cli/cfs.js');
let server: ReferenceServer;
let mount: MountFixture | null = null;

beforeAll(async () => {
  server = await ReferenceServer.start();
});

afterEach(async () => {
  await mount?.dispose();
  mount = null;
});

afterAll(async () => {
  await server.dispose();
});

async function mounted(...flags: string[]): Promise<MountFixture> {
  mount = await MountFixture.start({ server, flags });
  return mount;
}

/** [S-export-1] */
test('cfs export copies all unpushed bytes, with and without a mount, also while the service is unreachable', async () => {
  const own = await mounted('--settle', '1h');
  const { directory } = own;
  await own.run('mkdir -p new/deep && head -c 300000 /dev/urandom > new/large && printf small > new/deep/small');
  await own.run(`ln -s target link && printf old > kept && printf x > "$(printf 'a\\nb')"`);
  const digests = async (folder: string): Promise<string> =>
    (await runCommand(['sh', '-c', `cd "${folder}" && find . -type f -print0 | sort -z | xargs -0 sha256sum`])).stdout;
  const [running, stopped] = [join(directory, '../one'), join(directory, '../two')];
  await server.pause();
  try {
    const beside = await own.cfs(['export', running]);
    expect(beside.stdout).toMatch(/^\d+ copied to .*\(293 KiB\)\n$/);
    expect(beside.stderr).toBe('');
    await own.unmount(['--now']);
    expect((await own.cfs(['export', stopped])).stdout).toBe(beside.stdout.replace(running, stopped));
  } finally {
    server.resume();
  }
  const exported = await digests(running);
  expect(await digests(stopped)).toBe(exported);
  expect(readlinkSync(join(stopped, 'link'))).toBe('target');
  await own.mount();
  expect((await own.run(`find . -type f -print0 | sort -z | xargs -0 sha256sum`)).stdout).toBe(exported);
  await own.sync();
  expect((await own.cfs(['export', join(directory, '../three')])).stdout).toBe('nothing exists only on this machine\n');
});

/** [S-export-1] */
test('bytes that cfs export cannot get are zeros in the copy, are named, and set the exit code', async () => {
  const own = await mounted('--settle', '1h');
  await own.run('head -c 8000000 /dev/urandom > base.bin');
  await own.sync();
  const other = await own.freshStore();
  // Which version it is, and its end.
  expect((await other.run('tail -c 1 base.bin | wc -c')).stdout).toBe('1\n');
  await server.pause();
  try {
    await other.run(`printf mine | dd of=base.bin bs=1 seek=7999000 conv=notrunc status=none`);
    await other.unmount(['--now']);
    const copy = join(other.directory, '../copy');

    const result = await other.cfs(['export', copy], { anyExitCode: true });

    expect(result.code).toBe(exitCode('store'));
    expect(result.stderr).toMatch(/^base\.bin: [\d.]+ MiB of 7\.6 MiB are not on this machine: zeros instead\n$/);
    const bytes = readFileSync(join(copy, 'base.bin'));
    expect(bytes).toHaveLength(8_000_000);
    expect(bytes.subarray(7_999_000, 7_999_004).toString()).toBe('mine');
    expect(bytes.subarray(0, 100_000).every((byte) => byte === 0)).toBe(true);
  } finally {
    server.resume();
  }
});

/** [S-export-1] */
test('with a running mount, a change shorter than a page is exported exactly, although the rest of its block is not here', async () => {
  const own = await mounted('--settle', '1h');
  await own.run('head -c 3000000 /dev/urandom > base.bin');
  await own.sync();
  const other = await own.freshStore(['--settle', '1h', '--read-timeout', '1s']);
  // Which version it is, and its end; a second is little for a first listing.
  await expect.poll(async () => (await other.run('tail -c 1 base.bin | wc -c')).stdout).toBe('1\n');
  await server.pause();
  try {
    await other.run(`printf mine | dd of=base.bin bs=4 seek=1000005 oflag=seek_bytes conv=notrunc status=none`);
    const copy = join(other.directory, '../copy');

    const result = await other.cfs(['export', copy], { anyExitCode: true });

    expect(result.code).toBe(exitCode('store'));
    expect(result.stderr).toMatch(/^base\.bin: [\d.]+ MiB of 2\.9 MiB are not on this machine: zeros instead\n$/);
    const bytes = readFileSync(join(copy, 'base.bin'));
    expect(bytes).toHaveLength(3_000_000);
    const around = Buffer.alloc(1_000);
    around.write('mine', 500);
    expect(Buffer.compare(bytes.subarray(1_000_005 - 500, 1_000_005 + 500), around)).toBe(0);
  } finally {
    server.resume();
  }
});

/** [S-export-1] */
test('changes below --root account are exported, and protected from cfs logout --forget', async () => {
  const own = await mounted('--settle', '1h', '--root', 'account');
  const beside = (name: string): string => join(own.directory, '..', name);
  const folder = (await own.run('ls')).stdout.split('\n').find((name) => /briefcase/i.test(name)) ?? '';
  await own.run(`printf whole > "${folder}/whole.txt"`);
  await own.unmount(['--now']);

  const refused = await own.cfs(['logout', '--forget'], { anyExitCode: true });
  expect(refused.code).toBe(exitCode('pending'));
  expect(refused.stderr).toContain('only on this machine');
  await own.cfs(['export', beside('stopped')]);
  expect(readFileSync(beside(`stopped/root=account/${folder}/whole.txt`), 'utf8')).toBe('whole');

  await own.mount(['--settle', '1h']);
  await own.run('printf mine > mine.txt');
  expect((await own.cfs(['export', beside('mounted')])).stdout).toMatch(/^2 copied /);
  expect(readFileSync(beside('mounted/mine.txt'), 'utf8')).toBe('mine');
  expect(readFileSync(beside(`mounted/root=account/${folder}/whole.txt`), 'utf8')).toBe('whole');
});

/** [S-logout-1] */
test('cfs logout removes token and keys and keeps unpushed changes; --forget removes everything that is pushed', async () => {
  const own = await mounted('--settle', '1h');
  const { directory } = own;
  await own.run('printf later > later.txt');
  await own.unmount(['--now']);
  const state = join(directory, '../state/cfs/accounts');
  const name = (await runCommand(['ls', state])).stdout.trim();

  const refused = await own.cfs(['logout', '--forget'], { anyExitCode: true });
  expect(refused.code).toBe(exitCode('pending'));
  expect(refused.stderr).toMatch(/only on this machine: first mount and run cfs sync --wait, or run cfs export DIR\n$/);
  const out = await own.cfs(['logout']);
  expect(out.stderr).toMatch(/^\d+ not pushed yet: kept here, and pushed after the next cfs login and mount\n$/);
  expect(existsSync(join(state, name, 'account.json'))).toBe(false);
  expect((await own.cfs(['accounts'])).stdout).toBe('not signed in: run cfs login URL\n');

  await own.cfs(['login', server.account.url]);
  await own.mount();
  await own.sync();
  expect([...(await own.serverTree()).keys()]).toContain('later.txt');
  await own.unmount();
  expect((await own.cfs(['logout', '--forget'])).code).toBe(0);
  expect(existsSync(join(state, name))).toBe(false);
});

test('several accounts side by side: a path says which is meant, and without one the command asks', async () => {
  const first = await mounted();
  const other = await ReferenceServer.start();
  const directory = join(first.directory, '../other');
  mkdirSync(directory);
  try {
    const { account } = other;
    const env = {
      CFS_USERNAME: account.username,
      CFS_PASSWORD: account.password,
      CFS_APPLICATION: account.application,
      CFS_ACCESS_KEY_ID: account.accessKeyId,
      CFS_PRIVATE_ACCESS_KEY: account.privateAccessKey,
    };
    await first.cfs(['login', account.url], { env });
    const { stdout } = await first.cfs(['accounts', '--json']);
    const { accounts } = JSON.parse(stdout) as { accounts: { name: string; directory: string | null }[] };
    const second = accounts.find(({ directory }) => directory === null)?.name ?? '';
    await runCommand([process.execPath, join(PROJECT, 'dist/cli/cfs-mount.js'), '--account', second, directory], {
      env: first.env(),
    });
    await runCommand(['sh', '-c', `printf two > "${directory}/two.txt"; printf one > "${first.directory}/one.txt"`]);

    for (const args of [['sync', '--wait'], ['umount'], ['log-level']]) {
      const asked = await first.cfs(args, { anyExitCode: true });
      expect([asked.code, asked.stderr]).toEqual([
        exitCode('usage'),
        expect.stringMatching(/several mounts are running/),
      ]);
    }
    const ambiguous = await first.cfs(['trash', 'list'], { anyExitCode: true });
    expect(ambiguous.stderr).toMatch(/several accounts match: choose one with --account/);
    await first.cfs(['sync', '--wait', join(directory, 'two.txt')]);
    expect([...(await other.reader.digests()).keys()]).toEqual(['two.txt']);
    expect((await first.cfs(['metrics'])).stdout.match(/^cfs_online\{account="[^"]+"\} 1$/gm)).toHaveLength(2);
    expect((await first.cfs(['umount', directory])).code).toBe(0);
  } finally {
    await runCommand(['fusermount3', '-uz', directory], { anyExitCode: true });
    await other.dispose();
  }
});

test('cfs login takes what is not secret from flags, the password from standard input and the key from a file', async () => {
  const home = new CommandHome();
  try {
    const { url, username, password, application, accessKeyId, privateAccessKey } = server.account;
    writeFileSync(home.path('key'), `${privateAccessKey}\n`, { mode: 0o600 });
    const args = ['login', url, '--username', username, '--password-stdin', '--application', application];

    const result = await home.run(
      'cfs',
      [...args, '--access-key-id', accessKeyId, '--private-access-key-file', home.path('key')],
      { input: `${password}\nnot part of it\n` },
    );

    expect(result).toMatchObject({ code: 0, stderr: '' });
    const [name = ''] = /account (.*)\)/.exec(result.stdout)?.slice(1) ?? [];
    const file = home.path(`state/cfs/accounts/${name}/account.json`);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(readFileSync(file, 'utf8')).toContain(privateAccessKey);
    expect((await runCommand(['grep', '-rlF', password, home.directory], { anyExitCode: true })).stdout).toBe('');
  } finally {
    home.dispose();
  }
});

/** [S-status-1] */
test('cfs status --json has the documented fields, and --watch prints a line after each change', async () => {
  const own = await mounted('--settle', '1h');
  const out = join(own.directory, '../watched');
  const script = `"${process.execPath}" "${CFS}" status --watch --json > "${out}" & watcher=$!
    until grep -q '"count":0' "${out}"; do sleep 0.05; done
    printf x > "${own.directory}/seen.txt"
    until grep -q 'seen.txt' "${out}"; do sleep 0.05; done
    kill -TERM $watcher; wait $watcher; echo "ended with $?"`;

  const { stdout } = await runCommand(['bash', '-c', script], { env: own.env() });

  expect(stdout).toBe('ended with 0\n');
  const lines = readFileSync(out, 'utf8').trimEnd().split('\n');
  expect(new Set(lines).size).toBe(lines.length);
  await expect
    .poll(async () => fieldsOf(JSON.parse((await own.cfs(['status', '--json'])).stdout)), { timeout: 30_000 })
    .toContain('accounts[].status.quota.limitBytes');
  const documented = [...textOf('docs/commands.md').matchAll(/^\| `([^`]+)` \|/gm)].map(([, field = '']) => field);
  const fields = fieldsOf(JSON.parse((await own.cfs(['status', '--json'])).stdout));
  expect(fields.filter((field) => !documented.includes(field))).toEqual([]);
});

/** [S-metrics-1] */
test('cfs metrics counts operations and requests, and cfs log-level changes the log of a running mount', async () => {
  const own = await mounted('--settle', '1h');
  const counted = async (sample: string): Promise<number> => {
    const { stdout } = await own.cfs(['metrics']);
    return Number(
      stdout
        .split('\n')
        .find((line) => line.replace(/account="[^"]*",?/, '').startsWith(`${sample} `))
        ?.split(' ')
        .at(-1),
    );
  };
  await own.run('head -c 100000 /dev/urandom > counted.bin');
  expect(await counted('cfs_changes{state="pending"}')).toBe(1);
  await own.sync();

  expect(await counted('cfs_bytes_total{direction="up"}')).toBe(100_000);
  expect(await counted('cfs_changes{state="pending"}')).toBe(0);
  expect(await counted('cfs_operation_seconds_count{operation="create"}')).toBe(1);
  expect(await counted('cfs_requests_total{}')).toBeGreaterThan(3);

  const log = join(own.directory, '../state/cfs/accounts');
  const debugLines = async (): Promise<string> =>
    (await runCommand(['sh', '-c', `cat "${log}"/*/mount.log | grep -c '"level":20'`], { anyExitCode: true })).stdout;
  expect((await own.cfs(['log-level'])).stdout).toBe('info\n');
  await own.run('mkdir .Trash-1', { anyExitCode: true });
  expect(await debugLines()).toBe('0\n');
  expect((await own.cfs(['log-level', 'debug'])).stdout).toBe('debug\n');
  await own.run('mkdir .Trash-2', { anyExitCode: true });
  expect(await debugLines()).not.toBe('0\n');
});

/** The paths of all values: `accounts[].name`. */
function fieldsOf(value: unknown, path = ''): readonly string[] {
  if (Array.isArray(value)) return value.flatMap((item) => fieldsOf(item, `${path}[]`));
  if (typeof value !== 'object' || value === null) return [path];
  return Object.entries(value).flatMap(([key, inner]) => fieldsOf(inner, path === '' ? key : `${path}.${key}`));
}
