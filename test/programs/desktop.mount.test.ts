import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFailed } from 'vitest';
import type { CommandResult } from '../harness/command.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { missingPrograms, testUnless, titled } from '../harness/requirement.ts';

/** The mount as desktops use it: GIO, on which their file managers are built, and a file manager with its windows. */

const SESSION = new URL('./pcmanfm-session.sh', import.meta.url).pathname;
const MISSING = missingForMounts();

function missingOf(programs: readonly string[]): string | null {
  return MISSING ?? missingPrograms(...programs);
}

const gio = missingOf(['gio', 'dbus-run-session']);
const windows = missingOf(['pcmanfm', 'xvfb-run', 'xauth', 'xdotool', 'dbus-run-session']);

describe.skipIf(gio !== null && windows !== null)(
  titled('a desktop', gio !== null && windows !== null ? `${gio}; ${windows}` : null),
  () => {
    let mount: MountFixture;
    /** Of the programs of the session, not of the mount: settings, caches, sockets. */
    let home: string;

    beforeAll(async () => {
      home = mkdtempSync(join(tmpdir(), 'cfs-desktop-'));
      mount = await MountFixture.start();
    });

    afterAll(async () => {
      await mount?.dispose();
      rmSync(home, { recursive: true, force: true });
    });

    function inSession(command: string): Promise<CommandResult> {
      const env = {
        HOME: home,
        XDG_RUNTIME_DIR: home,
        XDG_CONFIG_HOME: join(home, 'config'),
        XDG_CACHE_HOME: join(home, 'cache'),
        XDG_DATA_HOME: join(home, 'data'),
        DBUS_SESSION_BUS_ADDRESS: undefined,
        DISPLAY: undefined,
        GVFS_DISABLE_FUSE: '1',
        LC_ALL: 'C.UTF-8',
      };
      return mount.run(command, { env, anyExitCode: true, timeoutMs: 110_000 });
    }

    /** [S-desktop-1] */
    testUnless(gio)('gio copies, renames, moves and deletes; its trash is refused, and the file stays', async () => {
      onTestFailed(mount.printLogs);
      const script = [
        'set -e; echo hello > a.txt',
        'gio copy a.txt b.txt; gio rename b.txt c.txt; gio mkdir sub; gio move c.txt sub/d.txt',
        'if gio trash sub/d.txt; then echo trashed; fi',
        'cat sub/d.txt; gio info -a standard::size sub/d.txt | grep -o "standard::size: 6"',
        'gio remove sub/d.txt; gio remove sub; gio list .',
      ].join('\n');

      const { code, stdout, stderr } = await inSession(`dbus-run-session -- sh -c '${script}'`);

      expect(stderr).toMatch(/Unable to find or create trash directory/);
      expect(stdout.split('\n').filter((line) => !line.startsWith('Rename'))).toEqual([
        'hello',
        'standard::size: 6',
        'a.txt',
        '',
      ]);
      expect(code).toBe(0);
      await mount.sync();
      expect([...(await mount.server.reader.entries()).keys()]).toEqual(['a.txt']);
    });

    /** [S-desktop-1] */
    testUnless(windows)('PCManFM opens the mount, copies, renames and deletes', async () => {
      onTestFailed(mount.printLogs);
      await mount.run('mkdir photos album; printf one > photos/one.txt');
      await mount.sync();

      // -noreset: without it the server begins anew whenever its last client leaves, and refuses whoever is connecting just then.
      const { code, stdout, stderr } = await inSession(
        `xvfb-run -a -s "-screen 0 1024x768x24 -noreset" dbus-run-session -- ${SESSION} "$PWD"`,
      );

      expect(stdout, stderr).toBe('copied: one\nrenamed\ndeleted\n');
      expect(code).toBe(0);
      await mount.sync();
      expect([...(await mount.server.reader.entries()).keys()].filter((path) => !path.startsWith('a.'))).toEqual(
        expect.arrayContaining(['photos', 'photos/one.txt', 'album']),
      );
      expect((await mount.server.reader.entries()).has('album/renamed.txt')).toBe(false);
    });
  },
);
