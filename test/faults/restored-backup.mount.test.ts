import { createHash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, onTestFailed, test } from 'vitest';
import { runCommand } from '../harness/command.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { titled } from '../harness/requirement.ts';

/** `cfs serve` is set back to a backup while a mount knows newer files and has pending changes. */

const FLAGS = ['--dir-ttl', '1s', '--entry-timeout', '0s', '--attr-timeout', '0s', '--settle', '1s'];

let mount: MountFixture;
let backup: string;

afterEach(async () => {
  await mount?.dispose();
  await rm(backup, { recursive: true, force: true });
});

/** Contents of these tests end with a line break. */
const digest = (line: string): string => createHash('sha256').update(`${line}\n`).digest('hex');

/** As docs/service.md says. */
const copy = (from: string, to: string) =>
  runCommand(['sh', '-euc', 'mkdir -p "$2"; cp -a "$1/." "$2"', 'sh', from, to]);

const missing = missingForMounts();

test.skipIf(missing !== null)(
  titled(
    'no save that the service acknowledged is lost when it is restored from a backup, and no file gets the bytes of another',
    missing,
  ),
  async () => {
    onTestFailed(() => mount?.printLogs());
    backup = await mkdtemp(join(tmpdir(), 'cfs-backup-'));
    mount = await MountFixture.start({ flags: FLAGS });
    const { server } = mount;
    await mount.run('mkdir folder; echo kept > kept; echo draft > folder/report; echo old > folder/changed');
    await mount.sync();
    await server.kill9();
    await copy(server.data, backup);
    await server.restart();
    await mount.run('echo final, and longer > folder/report; echo after the backup > folder/later');
    await mount.sync();

    await server.kill9();
    await mount.run('echo pending > folder/changed; echo pending too > new');
    await rm(server.data, { recursive: true });
    await copy(backup, server.data);
    await server.restart();
    const refreshed = await mount.cfs(['refresh', mount.directory]);
    await mount.sync();

    const served = await mount.serverTree();
    const copies = [...served.keys()].filter((path) => path.startsWith('folder/report ('));
    expect(copies).toHaveLength(1);
    expect(served).toEqual(
      new Map([
        ['folder/', 'folder'],
        ['kept', digest('kept')],
        ['folder/report', digest('draft')],
        [copies[0] as string, digest('final, and longer')],
        ['folder/changed', digest('pending')],
        ['new', digest('pending too')],
      ]),
    );
    const { stdout } = await mount.run('cat kept new folder/*');
    expect(stdout.split('\n').sort()).toEqual(
      ['', 'after the backup', 'draft', 'final, and longer', 'kept', 'pending', 'pending too'].sort(),
    );
    // What the service does not know any more waits for a person, who is told what it is.
    expect((await mount.status())?.held).toMatchObject([{ path: 'folder/later', nodes: 1 }]);
    expect(refreshed.stdout + refreshed.stderr).toContain('folder/later');
    const { stdout: log } = await mount.cfs(['log', mount.directory]);
    expect(
      log.split('\n').filter((line) => line.includes('folder/report') && line.includes(copies[0] as string)),
    ).not.toEqual([]);
  },
);
