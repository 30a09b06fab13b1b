import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { OtherProgram } from '../harness/other-program.ts';

/** The kernel caches absent names for minutes. A first listing notifies it of names only where a reply may have called them absent. */

const missing = missingForMounts();
describe.skipIf(missing !== null)(`a first listing${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  let mount: MountFixture;
  let other: OtherProgram;
  beforeAll(async () => {
    mount = await MountFixture.start({ flags: ['--settle', '1m'] });
    other = await OtherProgram.signIn(mount.server.account);
  });
  afterAll(() => mount?.dispose());

  /** @param folder a folder of the service @returns what programs see, each by its name */
  async function seen(folder: string, names: readonly string[]): Promise<string> {
    const looks = names.map((name) => `cat ${folder}/${name} || true`).join('; ');
    return (await mount.run(`{ ${looks}; ls ${folder}; } 2>&1`, { anyExitCode: true })).stdout;
  }

  /** [S-fresh-4] */
  test('a name that was absent in a folder created here appears with the first listing of that folder', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run('mkdir made && echo mine > made/mine');
    expect(await seen('made', ['theirs'])).toContain('No such file');
    await mount.sync();
    expect(await seen('made', ['theirs'])).toContain('No such file'); // the kernel has it from now on
    const url = (await mount.server.reader.entries()).get('made')?.url as string;

    await other.client.createFilled(url, 'theirs', Buffer.from('theirs\n'));
    await mount.cfs(['refresh', `${mount.directory}/made`]);

    expect(await seen('made', ['theirs'])).toBe('theirs\nmine\ntheirs\n');
  });

  /** [S-fresh-4] */
  test('a name that was absent in a folder created here appears when the folder was created elsewhere, too', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run('mkdir both');
    expect(await seen('both', ['theirs'])).toContain('No such file');
    const url = await other.client.createFolder(other.systemFolder('2'), 'both');
    await other.client.createFilled(url, 'theirs', Buffer.from('theirs\n'));

    await mount.cfs(['refresh']);
    await mount.cfs(['refresh', `${mount.directory}/both`]);

    expect(await seen('both', ['theirs'])).toBe('theirs\ntheirs\n');
  });

  /** [S-fresh-4] */
  test('a name that was absent in a folder from elsewhere appears when it is created', async () => {
    onTestFailed(() => mount.printLogs());
    const url = await other.client.createFolder(other.systemFolder('2'), 'found');
    await other.client.createFilled(url, 'first', Buffer.from('first\n'));
    await mount.cfs(['refresh']);
    expect(await seen('found', ['second', 'first'])).toMatch(/No such file .*\nfirst\nfirst\n$/);

    await other.client.createFilled(url, 'second', Buffer.from('second\n'));
    await mount.cfs(['refresh', `${mount.directory}/found`]);

    expect(await seen('found', ['second', 'first'])).toBe('second\nfirst\nfirst\nsecond\n');
  });
});
