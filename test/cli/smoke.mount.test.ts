import { expect, test } from 'vitest';
import { runCommand } from '../harness/command.ts';
import { MountFixture } from '../harness/mount-fixture.ts';

/** The whole way once: what runs on every Node that is supported. */
test('what is saved in a mount reaches the service, a fresh mount reads it back, and nothing stays mounted', async () => {
  const mount = await MountFixture.start();
  try {
    await mount.run('mkdir -p letters/old; printf hello > letters/one.txt; head -c 3000000 /dev/urandom > big.bin');
    const { stdout: sums } = await mount.run('cat letters/one.txt big.bin | sha256sum');
    await mount.sync();
    expect([...(await mount.serverTree()).keys()].sort()).toEqual(
      expect.arrayContaining(['big.bin', 'letters/one.txt']),
    );

    const second = await mount.freshStore();
    expect((await second.run('cat letters/one.txt big.bin | sha256sum')).stdout).toBe(sums);

    expect((await mount.unmount()).code).toBe(0);
    // What Node or V8 prints about itself lands in the log, between its JSON lines.
    const [log = ''] = (await mount.logs()).split('--- server ---');
    const lines = log.split('\n').filter((line) => line !== '' && line !== '--- mount ---');
    expect(lines.length).toBeGreaterThan(1);
    expect(lines.filter((line) => !line.startsWith('{'))).toEqual([]);
    expect((await runCommand(['grep', '-c', mount.directory, '/proc/mounts'], { anyExitCode: true })).stdout).toBe(
      '0\n',
    );
  } catch (error) {
    await mount.printLogs(); // they go with the mount
    throw error;
  } finally {
    await mount.dispose();
  }
});
