import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFailed } from 'vitest';
import type { CommandResult } from '../harness/command.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { missingPrograms, testUnless, titled } from '../harness/requirement.ts';
import type { ServerEntry } from '../harness/server-reader.ts';

/** The mount as desktops use it: GIO, on which their file managers are built, and a file manager with its windows. */

const SESSION = new URL('./pcmanfm-session.sh', import.meta.url).pathname;
const TRASH_SESSION = new URL('./gio-trash-session.sh', import.meta.url).pathname;
const MISSING = missingForMounts();

function missingOf(programs: readonly string[]): string | null {
  return MISSING ?? missingPrograms(...programs);
}

const gio = missingOf(['gio', 'dbus-run-session']);
const trash =
  gio ?? (existsSync('/usr/libexec/gvfsd-trash') || existsSync('/usr/lib/gvfs/gvfsd-trash') ? null : 'gvfsd-trash');
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

    function inSession(command: string, of: MountFixture = mount): Promise<CommandResult> {
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
      return of.run(command, { env, anyExitCode: true, timeoutMs: 110_000 });
    }

    /** [S-desktop-1] */
    testUnless(gio)('gio copies, renames, moves, and deletes for good', async () => {
      onTestFailed(mount.printLogs);
      const script = [
        'set -e; echo hello > a.txt',
        'gio copy a.txt b.txt; gio rename b.txt c.txt; gio mkdir sub; gio move c.txt sub/d.txt',
        'cat sub/d.txt; gio info -a standard::size sub/d.txt | grep -o "standard::size: 6"',
        'gio remove sub/d.txt; gio remove sub; gio list .',
      ].join('\n');

      const { code, stdout } = await inSession(`dbus-run-session -- sh -c '${script}'`);

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

    /** [S-trash-2] [S-trash-3] [S-trash-4] */
    testUnless(trash)('gio moves to the trash, lists it, restores with the history, and empties it', async () => {
      onTestFailed(mount.printLogs);
      const { reader } = mount.server;
      await mount.run('mkdir -p docs/deep; echo one > docs/report.txt; echo x > docs/deep/x');
      await mount.sync();
      await mount.run('echo two > docs/report.txt');
      await mount.sync();
      const before = (await reader.entries()).get('docs/report.txt') as ServerEntry;
      const versions = await reader.versionCount(before);

      expect(await inTrashSession('trash docs/report.txt docs/deep')).toEqual(['docs/deep', 'docs/report.txt']);
      await mount.sync();
      expect([...(await reader.entries()).keys()].filter((path) => path !== 'a.txt')).toEqual(['docs']);
      expect([...(await reader.trash())].filter((name) => /report|deep/.test(name)).sort()).toEqual([
        'deep',
        'report.txt',
      ]);

      expect(await inTrashSession('restore docs/report.txt')).toEqual(['two']);
      await mount.sync();
      const after = (await reader.entries()).get('docs/report.txt') as ServerEntry;
      expect(after.url).toBe(before.url);
      expect(await reader.versionCount(after)).toBe(versions);

      expect((await inTrashSession('empty')).filter((name) => name !== 'a.txt')).toEqual(['docs']);
      await mount.sync();
      expect(await reader.trash()).toContain('deep');
      expect([...(await reader.entries()).keys()].some((path) => path.includes('.Trash'))).toBe(false);
    });

    /** [S-trash-2] */
    testUnless(trash)('without the service, gio moves to the trash and restores, and the history stays', async () => {
      onTestFailed(mount.printLogs);
      const { server } = mount;
      await mount.run('mkdir -p away/deep; echo one > away/report.txt; echo x > away/deep/x');
      await mount.sync();
      await mount.run('echo two > away/report.txt');
      await mount.sync();
      const { reader } = server;
      const report = (await reader.entries()).get('away/report.txt') as ServerEntry;
      const versions = await reader.versionCount(report);

      await server.kill9();
      expect(await inTrashSession('trash away/report.txt away/deep')).toEqual(['away/deep', 'away/report.txt']);
      expect(await inTrashSession('restore away/report.txt')).toEqual(['two']);
      expect((await mount.run('ls away')).stdout).toBe('report.txt\n');
      await server.restart();
      await mount.sync();

      const again = server.reader;
      const after = await again.entries();
      expect([...after.keys()].filter((path) => path.startsWith('away'))).toEqual(['away', 'away/report.txt']);
      expect(after.get('away/report.txt')?.url).toBe(report.url);
      expect(await again.versionCount(report)).toBe(versions);
      expect(await again.trash()).toContain('deep');
      expect((await inTrashSession('empty')).filter((name) => name === 'away')).toEqual(['away']);
    });

    /** [S-trash-6] */
    testUnless(trash)(
      'with --empty-trash service, gio deletes permanently what it empties, and nothing else',
      async () => {
        onTestFailed(mount.printLogs);
        const { reader } = mount.server;
        const other = await mount.freshStore(['--empty-trash', 'service']);
        await other.run(
          'mkdir -p gone/inner; echo 1 > gone/inner/1; echo 2 > gone/2; echo 3 > emptied; echo 4 > removed',
        );
        await other.sync();
        const kept = await reader.trash();
        await other.run('rm removed');
        await inTrashSession('trash emptied gone', other);
        await other.sync();
        expect([...(await reader.trash())].sort()).toEqual([...kept, 'emptied', 'gone', 'removed'].sort());

        await inTrashSession('empty', other);
        await other.sync();
        expect([...(await reader.trash())].sort()).toEqual([...kept, 'removed'].sort());
      },
    );

    async function inTrashSession(call: string, of: MountFixture = mount): Promise<readonly string[]> {
      const { code, stdout, stderr } = await inSession(`dbus-run-session -- ${TRASH_SESSION} ${call}`, of);
      expect(code, `${stdout}${stderr}`).toBe(0);
      return stdout.split('\n').filter((line) => line !== '');
    }

    /** [S-desktop-1] */
    testUnless(windows)('PCManFM opens the mount, copies, renames and deletes', async () => {
      onTestFailed(mount.printLogs);
      await mount.run('mkdir photos album; printf one > photos/one.txt');
      await mount.sync();

      // Without the daemons of gvfs: gvfsd-trash of GLib 2.74 sometimes aborts at the end of a session, and writes into this output.
      // -noreset: without it the server begins anew whenever its last client leaves, and refuses whoever is connecting just then.
      const { code, stdout, stderr } = await inSession(
        `GIO_USE_VFS=local xvfb-run -a -s "-screen 0 1024x768x24 -noreset" dbus-run-session -- ${SESSION} "$PWD"`,
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
