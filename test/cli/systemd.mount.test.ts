import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runCommand } from '../harness/command.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { PROJECT } from '../imports.ts';

/** `cfs service` with systemd itself, where there is one; what the mount says to any manager is in service.mount.test.ts. */

const SESSION = new URL('./systemd-session.sh', import.meta.url).pathname;
const SYSTEMD = '/lib/systemd/systemd';
const missing = !existsSync(SYSTEMD) ? 'systemd' : process.getuid?.() !== 0 ? 'root' : null;

let mount: MountFixture;

beforeAll(async () => {
  if (missing !== null) return;
  mount = await MountFixture.start();
  await mount.unmount();
});

afterAll(() => mount?.dispose());

test.skipIf(missing !== null)(
  `systemd starts the service, hears that it is ready, starts it again when it was killed, and ends it${missing === null ? '' : ` (needs: ${missing})`}`,
  async (context) => {
    const cfs = join(PROJECT, 'dist/cli/cfs.js');

    const { stdout } = await runCommand(['unshare', '--mount', SESSION, mount.directory, process.execPath, cfs], {
      env: mount.env(),
      timeoutMs: 110_000,
    });

    // A container may have systemd and no cgroups for it.
    if (stdout.startsWith('no manager:')) context.skip(stdout.trim());
    expect(stdout.trimEnd().split('\n')).toEqual([
      'wrote',
      `mounted at ${mount.directory}, now and whenever you sign in to this machine`,
      'for a mount without a session of yours: loginctl enable-linger',
      'active running, enabled: enabled',
      `says: mounted ${mount.server.account.username} at ${mount.directory}`,
      'pushed',
      'started again: hello',
      'removed',
      'not-found inactive',
    ]);
    const units = readdirSync(join(mount.env().XDG_CONFIG_HOME ?? '', 'systemd/user'));
    expect(units.filter((name) => name.endsWith('.service'))).toEqual([]);
    expect([...(await mount.serverTree()).keys()]).toEqual(['file']);
  },
);
