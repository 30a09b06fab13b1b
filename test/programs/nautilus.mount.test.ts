import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { DesktopScreen, missingForNautilus } from '../harness/desktop-screen.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { titled } from '../harness/requirement.ts';
import type { ServerEntry } from '../harness/server-reader.ts';

/** The file manager of GNOME over a mount, by the keys that a person presses. */

const missing = missingForMounts() ?? missingForNautilus();
const POLL = { timeout: 60_000, interval: 100 };

describe.skipIf(missing !== null)(titled('Nautilus', missing), () => {
  let screen: DesktopScreen;
  let mount: MountFixture;

  beforeAll(async () => {
    screen = await DesktopScreen.start();
    mount = await MountFixture.start();
  });

  afterAll(async () => {
    await screen?.dispose();
    await mount?.dispose();
  });

  /** [S-desktop-1] [S-trash-2] */
  test('the Delete key moves to the trash without a question, and Ctrl+Z brings the file back with its history', async () => {
    onTestFailed(mount.printLogs);
    const { reader } = mount.server;
    await mount.run('mkdir docs; echo one > docs/report.txt');
    await mount.sync();
    await mount.run('echo two > docs/report.txt');
    await mount.sync();
    const before = (await reader.entries()).get('docs/report.txt') as ServerEntry;
    const versions = await reader.versionCount(before);
    const isThere = async (): Promise<boolean> => (await mount.run('ls docs')).stdout.includes('report.txt');

    await screen.open(`${mount.directory}/docs`, 'docs');
    await expect
      .poll(async () => {
        await screen.press('docs', 'ctrl+a', 'Delete');
        return isThere();
      }, POLL)
      .toBe(false);
    expect(await screen.windows()).toEqual(['docs']);
    await mount.sync();
    expect(await reader.trash()).toContain('report.txt');

    await screen.press('docs', 'ctrl+z');
    await expect.poll(isThere, POLL).toBe(true);
    expect((await mount.run('cat docs/report.txt')).stdout).toBe('two\n');
    await mount.sync();
    const after = (await reader.entries()).get('docs/report.txt') as ServerEntry;
    expect(after.url).toBe(before.url);
    expect(await reader.versionCount(after)).toBe(versions);
    expect([...(await reader.entries()).keys()].filter((path) => path.includes('.Trash'))).toEqual([]);
  });
});
