import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';

const missing = missingForMounts();
describe.skipIf(missing !== null)(`cfs discard${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  let mount: MountFixture;
  beforeAll(async () => {
    mount = await MountFixture.start({ flags: ['--settle', '1m'] });
  });
  afterAll(() => mount?.dispose());

  test('[S-discard-1] cfs discard lists the losses, and discards with --yes', { timeout: 60_000 }, async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run('mkdir folder; printf before > folder/kept; printf gone > folder/removed');
    await mount.cfs(['sync', '--wait']);
    await mount.run('printf "changed here" > folder/kept; rm folder/removed; printf made > folder/made');

    const told = await mount.cfs(['discard', `${mount.directory}/folder`], { anyExitCode: true });
    expect(told.code).toBe(10);
    expect(told.stdout.trim().split('\n').sort()).toEqual([
      'folder/kept returns to the version of the service (12 bytes exist nowhere else)',
      'folder/made is removed (it exists only on this machine) (4 bytes exist nowhere else)',
      'folder/removed is restored',
    ]);
    expect(told.stderr).toContain('16 bytes would be lost permanently; add --yes to discard');
    expect((await mount.run('cat folder/kept')).stdout).toBe('changed here');

    expect((await mount.cfs(['discard', `${mount.directory}/folder`, '--yes'], { anyExitCode: true })).code).toBe(0);
    expect((await mount.run('ls folder; cat folder/kept folder/removed')).stdout).toBe('kept\nremoved\nbeforegone');
    expect((await mount.cfs(['discard', mount.directory], { anyExitCode: true })).stdout).toBe(
      'nothing to discard there\n',
    );
  });
});
