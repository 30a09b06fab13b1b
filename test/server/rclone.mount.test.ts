import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { signUp, type TestUser } from './raw-client.ts';

/**
 * rclone's sugarsync backend: a client that nobody here wrote, against our server. Client and server of ours share
 * `src/protocol` and could share a misreading; this one shares nothing.
 *
 * rclone waits 10 ms between requests, so this is no quick test. All five URLs stand in its configuration, so that it never asks for the host that is compiled into it.
 */

const rclone = '/usr/bin/rclone';
const isThere = existsSync(rclone);
if (!isThere) console.warn('skipped: rclone is not installed (Debian package rclone)');

const directory = mkdtempSync(join(tmpdir(), 'cfs-rclone-'));
let server: ReferenceServer;
let user: TestUser;

beforeAll(async () => {
  server = await ReferenceServer.open({ dataDirectory: join(directory, 'server') });
  user = await signUp(server, 'a@example.com');
  writeFileSync(
    join(directory, 'rclone.conf'),
    [
      '[sugar]',
      'type = sugarsync',
      `app_id = ${user.application}`,
      'access_key_id = unused',
      'private_access_key = unused',
      'hard_delete = false',
      `refresh_token = ${user.refreshToken}`,
      `authorization = ${user.client.token}`,
      'authorization_expiry = 2099-01-01T00:00:00Z',
      `user = ${server.origin}/user/${user.uid}`,
      `root_id = ${server.origin}/user/${user.uid}/folders`,
      `deleted_id = ${user.folder('9')}`,
      '',
    ].join('\n'),
  );
});

afterAll(async () => {
  await server.close();
  rmSync(directory, { recursive: true });
});

/** @returns what it printed. @throws with what it said, for any exit code but 0 */
async function run(command: string[], input = ''): Promise<string> {
  const args = ['--config', join(directory, 'rclone.conf'), '--retries', '1', '--low-level-retries', '1', ...command];
  const env = { PATH: process.env.PATH, HOME: directory };
  const child = promisify(execFile)(rclone, args, { env, timeout: 300_000, maxBuffer: 16 * 1024 * 1024 });
  child.child.stdin?.end(input);
  return (await child).stdout;
}

function localFile(path: string, data: string | Uint8Array): string {
  const full = join(directory, path);
  mkdirSync(dirname(full), { recursive: true });
  writeFileSync(full, data);
  return full;
}

describe.skipIf(!isThere)('rclone', () => {
  test('lists, makes, reads, copies, moves and deletes', async () => {
    const up = localFile('up.txt', 'hello from outside');

    await run(['mkdir', 'sugar:Test']);
    await run(['mkdir', 'sugar:Test/dir/deeper']);
    await run(['copyto', up, 'sugar:Test/dir/up.txt']);
    expect(await run(['cat', 'sugar:Test/dir/up.txt'])).toBe('hello from outside');
    expect(await run(['cat', '--offset', '6', '--count', '4', 'sugar:Test/dir/up.txt'])).toBe('from');

    await run(['rcat', 'sugar:Test/dir/stream.txt'], 'x'.repeat(300_000));
    await run(['copyto', 'sugar:Test/dir/up.txt', 'sugar:Test/dir/copy.txt']);
    await run(['moveto', 'sugar:Test/dir/copy.txt', 'sugar:Test/renamed.txt']);
    await run(['moveto', 'sugar:Test/dir/deeper', 'sugar:Test/deeper2']);
    expect((await run(['lsf', '-R', '--format', 'ps', 'sugar:Test'])).split('\n').sort()).toEqual([
      '',
      'deeper2/;-1',
      'dir/;-1',
      'dir/stream.txt;300000',
      'dir/up.txt;18',
      'renamed.txt;18',
    ]);

    await run(['deletefile', 'sugar:Test/dir/up.txt']);
    await run(['--sugarsync-hard-delete', 'deletefile', 'sugar:Test/renamed.txt']);
    await run(['rmdir', 'sugar:Test/deeper2']);
    await run(['purge', 'sugar:Test/dir']);
    expect(await run(['lsf', '-R', 'sugar:Test'])).toBe('');
    expect((await run(['lsf', 'sugar:Deleted Files'])).split('\n').sort()).toEqual(['', 'dir/', 'up.txt']);
  });

  test('an overwrite is a new version', async () => {
    const up = localFile('v.txt', 'one');
    await run(['mkdir', 'sugar:Versions']);
    await run(['copyto', up, 'sugar:Versions/v.txt']);
    localFile('v.txt', 'two, longer');
    await run(['copyto', up, 'sugar:Versions/v.txt']);

    expect(await run(['cat', 'sugar:Versions/v.txt'])).toBe('two, longer');
    expect(server.requests.count({ method: 'PUT', kind: 'fileData', status: 204 })).toBeGreaterThanOrEqual(2);
  });

  test('makes a public link that works', async () => {
    await run(['mkdir', 'sugar:Shown']);
    await run(['copyto', localFile('l.txt', 'to all'), 'sugar:Shown/l.txt']);

    const link = (await run(['link', 'sugar:Shown/l.txt'])).trim();

    expect(await (await fetch(`${link}?directDownload=true`)).text()).toBe('to all');
  });

  test('syncs 500 files both ways and finds them equal', { timeout: 390_000 }, async () => {
    const names = [
      'plain',
      'spa ce',
      'ünïcode',
      'quo"te',
      "apo'strophe",
      'amp&ersand',
      '100%',
      'a#b',
      'q?mark',
      '+plus',
      'semi;colon',
    ];
    for (let index = 0; index < 500; index++) {
      const name = `${names[index % names.length]} ${index}`;
      localFile(join('tree', `dir ${index % 7}`, name), Buffer.alloc((index * 37) % 5000, index));
    }
    const tree = join(directory, 'tree');
    const back = join(directory, 'back');

    await run(['mkdir', 'sugar:Sync']);
    await run(['sync', '--transfers', '8', tree, 'sugar:Sync']);
    await run(['check', '--download', tree, 'sugar:Sync']);
    await run(['sync', '--transfers', '8', 'sugar:Sync', back]);
    await run(['check', '--download', back, 'sugar:Sync']);

    const sample = join('dir 3', 'quo"te 3');
    expect(readFileSync(join(back, sample))).toEqual(readFileSync(join(tree, sample)));
  });
});
