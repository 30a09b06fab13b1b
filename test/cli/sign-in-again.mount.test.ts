import { describe, expect, onTestFailed, test } from 'vitest';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { missingPrograms } from '../harness/requirement.ts';

/** A sign-in that the service takes back is a state, not an end: everything goes on here, and `cfs login` cures it. */

const CURED_MS_MAX = 60_000;

const missing = missingForMounts() ?? missingPrograms('getfattr');
describe.skipIf(missing !== null)(`signing in again${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  test('with an expired session cached files stay readable and changes queue, until cfs login without a remount', {
    timeout: 120_000,
  }, async () => {
    const mount = await MountFixture.start({ flags: ['--settle', '100ms'] });
    onTestFailed(mount.printLogs);
    try {
      const { username } = mount.server.account;
      await mount.run('echo cached > kept; mkdir folder');
      await mount.sync();
      await mount.cfs(['serve', 'user', 'revoke-tokens', username, '--data', mount.server.data]);

      await mount.run('echo queued > later; mv kept folder/kept');
      const status = async () => (await mount.cfs(['status'], { anyExitCode: true })).stdout;
      await expect.poll(status, { timeout: CURED_MS_MAX, interval: 200 }).toContain('sign-in');
      expect((await mount.run('cat folder/kept later')).stdout).toBe('cached\nqueued\n');
      expect((await mount.run('getfattr --only-values -n user.cfs.state later')).stdout).toBe('pending');
      await mount.run('echo more >> later');
      expect([...(await mount.server.reader.digests()).keys()].sort()).toEqual(['folder/', 'kept']);
      const { pid } = mount;

      await mount.cfs(['login', mount.server.account.url]);
      await mount.sync();

      expect([...(await mount.server.reader.digests()).keys()].sort()).toEqual(['folder/', 'folder/kept', 'later']);
      expect(await status()).not.toContain('sign-in');
      expect((await mount.run('cat later')).stdout).toBe('queued\nmore\n');
      expect(JSON.parse((await mount.cfs(['status', '--json'])).stdout).accounts[0].status.pid).toBe(pid);
    } finally {
      await mount.dispose();
    }
  });
});
