import { readFileSync, renameSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, onTestFailed, test, vi } from 'vitest';
import { accountPaths, pathsOf } from '../../../src/config/paths.ts';
import { accountNames } from '../../../src/mount/account-file.ts';
import { MountFixture } from '../../harness/mount-fixture.ts';
import { guardsOf } from '../guards.ts';

// A mount over NFS with the client of a real kernel. The tests build on each other.

const GONE_MS_MAX = 120_000;

describe('a mount over NFS', () => {
  let mount: MountFixture;
  beforeAll(async () => {
    mount = await MountFixture.start({ flags: ['--binding', 'nfs'] });
  });
  afterAll(() => mount?.dispose());

  const isMounted = (): boolean => readFileSync('/proc/mounts', 'utf8').includes(` ${mount.directory} nfs `);

  async function output(script: string): Promise<string> {
    return (await mount.run(script)).stdout;
  }

  test('reads what it wrote, in several requests', async () => {
    await mount.run('head -c 3000000 /dev/urandom > /run/bytes; cp /run/bytes copy; cmp /run/bytes copy');
  });

  test('keeps handles valid when their folder is renamed', async () => {
    expect(
      await output('mkdir folder; cd folder; echo 1 > a; mv ../folder ../renamed; echo 2 > b; ls ../renamed'),
    ).toBe('a\nb\n');
  });

  test('removes the name of an open file immediately, and leaves no .nfs file', async () => {
    const script = 'exec 5<> open; echo before >&5; rm open; echo after >&5; ls -A; cat /proc/self/fdinfo/5';
    expect(await output(`cd renamed; ${script}`)).toMatch(/^a\nb\npos:\s13\n/);
  });

  test('removes a folder whose listing takes several replies', async () => {
    await mount.run('mkdir many; cd many; seq 200 | xargs touch; cd ..; rm -r many; test ! -e many');
  });

  test('refuses other users without --allow-other', async () => {
    const script = `if su -s /bin/sh nobody -c "ls '${mount.directory}'"; then exit 1; fi 2>&1`;
    // The client takes a root without attributes for one that no longer exists.
    expect(await output(script)).toMatch(/Permission denied|Stale file handle/);
  });

  test('pushes what was written and closed', async () => {
    await mount.sync();
    const written = (await output('sha256sum copy')).split(' ')[0];
    expect((await mount.serverTree()).get('copy')).toBe(written);
  });

  test('is taken away by the next mount when its process and guard are dead, and then has everything', async () => {
    onTestFailed(() => mount.printLogs());
    for (const guard of guardsOf(mount.directory)) process.kill(guard, 'SIGKILL');
    await mount.kill9();
    expect(isMounted()).toBe(true);

    await mount.mount();

    expect(readFileSync('/proc/mounts', 'utf8').split(` ${mount.directory} nfs `)).toHaveLength(2);
    await mount.run('cmp /run/bytes copy; test "$(cat renamed/b)" = 2');
  });

  test('is taken away when its process is killed and cannot be started again', {
    timeout: 2 * GONE_MS_MAX,
  }, async () => {
    onTestFailed(() => mount.printLogs());
    const paths = pathsOf(mount.env());
    for (const name of accountNames(paths)) {
      const { accountFile } = accountPaths(paths, name);
      renameSync(accountFile, `${accountFile}.away`);
    }

    await mount.kill9();

    await vi.waitUntil(() => !isMounted(), { timeout: GONE_MS_MAX, interval: 100 });
  });
});
