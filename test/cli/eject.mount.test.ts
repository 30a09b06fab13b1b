import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { tellFigures } from '../harness/figures.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { testUnless, titled } from '../harness/requirement.ts';

const missing = missingForMounts();
/** Set by `npm run soak -- desktop`: the drain takes its five seconds. */
const MEGABYTES = Number(process.env.CFS_EJECT_MB ?? 0);

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

  /** [S-notice-2] */
  testUnless(MEGABYTES === 0 ? 'CFS_EJECT_MB' : null)(
    'a file that is too long for the drain on a slow line causes the notice, and arrives after the next mount',
    { timeout: 300_000 },
    async () => {
      onTestFailed(mount.printLogs);
      if ((await mount.status()) !== null) await mount.unmount();
      await mount.mount(['--settle', '100ms', '--up-limit', '1MB']); // 8 Mbit/s
      const before = shown().length;
      await mount.run(`head -c ${MEGABYTES}000000 /dev/urandom > long.bin`);
      const begunMs = performance.now();
      await mount.unmountFromOutside();
      tellFigures(
        `${MEGABYTES} MB at 8 Mbit/s: notice ${((performance.now() - begunMs) / 1000).toFixed(1)} s after the eject`,
      );
      expect(shown().slice(before)).toEqual([expect.stringContaining('; 1 change is kept here and pushed after')]);

      await mount.mount(['--settle', '100ms']);
      await mount.sync();
      expect((await mount.server.reader.entries()).get('long.bin')).toBeDefined();
      await mount.unmountFromOutside();
      expect(shown()).toHaveLength(before + 1);
    },
  );
});
