import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { titled } from '../harness/requirement.ts';

const missing = missingForMounts();

describe.skipIf(missing !== null)(titled('an eject', missing), () => {
  let mount: MountFixture;
  let programs: string;

  beforeAll(async () => {
    programs = mkdtempSync(join(tmpdir(), 'cfs-eject-'));
    const notify = join(programs, 'notify-send');
    // It takes longer than the end of a process that does not wait for it.
    writeFileSync(
      notify,
      `#!/bin/sh\nfor last; do :; done; sleep 0.5; printf '%s\\n' "$last" >> '${join(programs, 'shown')}'\n`,
    );
    chmodSync(notify, 0o755);
    const PATH = `${programs}${delimiter}${process.env.PATH}`;
    mount = await MountFixture.start({
      flags: ['--settle', '10m', '--drain', '0s'],
      env: { PATH, DBUS_SESSION_BUS_ADDRESS: 'unix:path=/nowhere' },
    });
  });

  afterAll(async () => {
    await mount?.dispose();
    rmSync(programs, { recursive: true, force: true });
  });

  /** The texts of all notices so far. */
  function shown(): readonly string[] {
    const file = join(programs, 'shown');
    return existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : [];
  }

  /** [S-notice-2] */
  test('only an unmount from outside that leaves changes here causes a notice, with their number', async () => {
    onTestFailed(mount.printLogs);
    await mount.unmountFromOutside();
    expect(shown()).toEqual([]);

    await mount.mount();
    await mount.run('echo one > one.txt; echo two > two.txt');
    await mount.unmountFromOutside();

    const left = `unmounted ${mount.directory}; 2 changes are kept here and pushed after the next mount`;
    const notice = `${left}. To push now, run: cfs-mount ${mount.directory}`;
    expect(shown()).toEqual([notice]);

    await mount.mount();
    await mount.run('echo three > three.txt');
    await mount.unmount(['--now']);
    expect(shown()).toEqual([notice]);

    await mount.mount();
    await mount.sync();
    await mount.unmountFromOutside();
    expect(shown()).toEqual([notice]);
  });
});
