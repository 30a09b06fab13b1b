import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { installDesktop } from '../../src/cli/commands/desktop.ts';
import { DesktopScreen, missingForNautilus } from '../harness/desktop-screen.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { OtherProgram } from '../harness/other-program.ts';
import { titled } from '../harness/requirement.ts';
import type { ServerEntry } from '../harness/server-reader.ts';

/** The file manager of GNOME over a mount, by the keys that a person presses. */

// A type of its own: without the package its declarations are missing too.
const name: string = 'sharp';
// biome-ignore lint/suspicious/noExplicitAny: as above
const sharp: any = await import(name).then(
  (library) => library.default,
  () => null,
);
const missing = missingForMounts() ?? missingForNautilus();
const POLL = { timeout: 60_000, interval: 100 };

describe.skipIf(missing !== null)(titled('Nautilus', missing), () => {
  let screen: DesktopScreen;
  let mount: MountFixture;

  beforeAll(async () => {
    screen = await DesktopScreen.start();
    // Before the first window: a file manager reads the entries when it starts.
    installDesktop({ env: { ...process.env, ...screen.env }, print: () => {} });
    mount = await MountFixture.start();
  });

  afterAll(async () => {
    await screen?.dispose();
    await mount?.dispose();
  });

  afterEach(() => screen.closeAll());

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

  describe.skipIf(sharp === null)(
    titled('shows pictures', sharp === null ? 'the optional package sharp' : null),
    () => {
      let pictures: MountFixture;
      let other: OtherProgram;
      let picture: Buffer;

      beforeAll(async () => {
        const { XDG_CACHE_HOME = '', XDG_DATA_HOME = '', HOME = '' } = screen.env;
        pictures = await MountFixture.start({
          serverFlags: ['--log-level', 'debug'],
          env: { XDG_CACHE_HOME, XDG_DATA_HOME, HOME },
        });
        other = await OtherProgram.signIn(pictures.server.account);
        // Red, and not small: a thumbnail of it is no icon, and its bytes are not fetched by chance.
        const red = await sharp({ create: { width: 1200, height: 900, channels: 3, background: '#d01010' } })
          .jpeg()
          .toBuffer();
        picture = Buffer.concat([red, Buffer.alloc(300_000 - red.byteLength)]);
      });

      afterAll(() => pictures?.dispose());

      async function folderOf(name: string, count: number): Promise<string> {
        const folder = await other.client.createFolder(other.systemFolder('2'), name);
        for (let at = 0; at < count; at++)
          await other.client.createFilled(folder, `IMG_${String(at).padStart(4, '0')}.jpg`, picture, 'image/jpeg');
        await pictures.cfs(['refresh']);
        return folder;
      }

      /** Requests for bytes since request `from`: of the small forms and of whole files, each with its address. */
      async function dataRequests(from: number): Promise<{ readonly small: string[]; readonly whole: string[] }> {
        const asked = (await pictures.server.requestsSoFar())
          .slice(from)
          .filter((each) => /^GET .*\/data(\?|$)/.test(each));
        return {
          small: asked.filter((each) => !each.includes('/version/')),
          whole: asked.filter((each) => each.includes('/version/')),
        };
      }

      const shown = (): number => Math.round(screen.dots(0xd0, 0x10, 0x10) / DOTS_OF_PICTURE);

      /** [S-desktop-2] */
      test('a folder of pictures shows them without reading the files', async () => {
        onTestFailed(pictures.printLogs);
        await folderOf('holiday', 30);
        const from = (await pictures.server.requestsSoFar()).length;
        await screen.open(`${pictures.directory}/holiday`, 'holiday');

        await expect.poll(shown, POLL).toBeGreaterThanOrEqual(VISIBLE);
        // Those that the window does not show are fetched ahead.
        await expect.poll(async () => (await dataRequests(from)).small.length, POLL).toBe(30);
        const { small, whole } = await dataRequests(from);
        expect(whole).toEqual([]);
        expect(new Set(small).size).toBe(30);
      });

      /** [S-notify-1] */
      test('a window that is not touched shows what another program adds and deletes', async () => {
        onTestFailed(pictures.printLogs);
        const folder = await folderOf('live', 2);
        await screen.open(`${pictures.directory}/live`, 'live');
        await expect.poll(shown, POLL).toBe(2);
        const learns = () => pictures.cfs(['refresh', `${pictures.directory}/live`]);

        const added = await other.client.createFilled(folder, 'IMG_0002.jpg', picture, 'image/jpeg');
        await other.client.createFilled(folder, 'IMG_0003.jpg', picture, 'image/jpeg');
        await learns();
        await expect.poll(shown, POLL).toBe(4);
        await other.client.send('DELETE', added);
        await learns();
        await expect.poll(shown, POLL).toBe(3);
      });

      /** [S-desktop-3] */
      test('a folder of which the service makes no small forms shows its pictures, with one request of a form for each', async () => {
        onTestFailed(pictures.printLogs);
        await folderOf('plain', 8);
        await pictures.server.setFaults([{ on: 'GET', path: 'fileData', times: 'always', then: { status: 406 } }]);
        const from = (await pictures.server.requestsSoFar()).length;
        await screen.open(`${pictures.directory}/plain`, 'plain');

        await expect.poll(shown, POLL).toBe(8);
        const { small, whole } = await dataRequests(from);
        // The same rule refuses the first bytes of each picture, which are requested together with its version.
        expect([small.length, new Set(small).size]).toEqual([16, 8]);
        expect([whole.length, new Set(whole).size]).toEqual([8, 8]);
        await pictures.server.setFaults([]);
      });

      /** [S-desktop-5] */
      test('pictures that a desktop took for broken while the service hung are shown when it answers, without a key', async () => {
        onTestFailed(pictures.printLogs);
        await folderOf('outage', 2);
        await pictures.run('ls -l outage');
        await pictures.server.pause();
        await screen.open(`${pictures.directory}/outage`, 'outage');
        const failed = (): number => filesBelow(join(screen.home, 'cache/thumbnails/fail'));
        await expect.poll(failed, POLL).toBe(2);
        expect(shown()).toBe(0);

        pictures.server.resume();
        await expect.poll(failed, POLL).toBe(0);
        await expect.poll(shown, POLL).toBe(2);
      });
    },
  );
});

/** Of a thumbnail in the icon view: 96 × 72. */
const DOTS_OF_PICTURE = 6_912;
/** Pictures that the window shows at least. */
const VISIBLE = 12;

function filesBelow(folder: string): number {
  if (!existsSync(folder)) return 0;
  return readdirSync(folder, { recursive: true }).filter((name) => String(name).endsWith('.png')).length;
}
