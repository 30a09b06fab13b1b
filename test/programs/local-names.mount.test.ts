import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, onTestFailed, onTestFinished, test } from 'vitest';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';

/** Programs that save by a new file and rename(2), over names that stay on this machine and over names that travel. */

const MOVE_AWAY = `import os,sys
open('save.tmp','w').write('new\\n'); os.replace('save.tmp', sys.argv[1])`;

const SAVES: readonly { readonly by: string; readonly command: (name: string) => string }[] = [
  { by: 'sed', command: (name) => `sed -i s/old/new/ '${name}'` },
  { by: 'perl', command: (name) => `perl -i -pe s/old/new/ '${name}'` },
  { by: 'python3', command: (name) => `python3 -c "${MOVE_AWAY}" '${name}'` },
  { by: 'mv', command: (name) => `echo new > save.tmp; mv -f save.tmp '${name}'` },
];

const RENAMEAT2 = process.arch === 'arm64' ? 276 : 316;
const EXCHANGE = `perl -e 'exit(syscall(${RENAMEAT2}, -100, $ARGV[0], -100, $ARGV[1], 2) == 0 ? 0 : 1)'`;

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

function isMissing(program: string): boolean {
  return spawnSync('sh', ['-c', `command -v ${program}`]).status !== 0;
}

const missing = missingForMounts();
describe.skipIf(missing !== null)(`names that stay local${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  let mount: MountFixture;
  beforeEach(async () => {
    mount = await MountFixture.start({ flags: ['--settle', '50ms'] });
    onTestFailed(() => mount.printLogs());
  });
  afterEach(() => mount?.dispose());

  /** `path: digest` of all that the service has. */
  async function there(): Promise<Record<string, string>> {
    await mount.sync();
    const tree = await mount.serverTree();
    return Object.fromEntries([...tree].sort());
  }

  for (const { by, command } of SAVES) {
    test.skipIf(isMissing(by))(`${by} saves over a local file, which stays local`, async () => {
      for (const name of ['desktop.ini', '.DS_Store']) {
        await mount.run(`echo old > '${name}'; ${command(name)}`);
        expect((await mount.run(`cat '${name}'; ls -A`)).stdout).toBe(`new\n${name}\n`);
        expect(await there()).toEqual({});
        await mount.run(`rm '${name}'`);
      }
    });

    test.skipIf(isMissing(by))(`${by} saves a version of a file that travels under such a name`, async () => {
      await mount.run(`echo old > notes`);
      await mount.sync();
      await mount.run(`mv notes desktop.ini`);
      await mount.run(command('desktop.ini'));
      expect(await there()).toEqual({ 'desktop.ini': digestOf('new\n') });
      const url = (await mount.run(`getfattr --only-values -n user.cfs.url desktop.ini`)).stdout;
      expect(url).toMatch(/^http/);
    });
  }

  test('what was sent of the save goes to the trash, and a kill in between changes nothing', async () => {
    await mount.run('echo old > desktop.ini; echo new > save.tmp');
    await mount.sync();
    await mount.run('mv save.tmp desktop.ini');
    await mount.kill9();
    await mount.mount();
    expect((await mount.run('cat desktop.ini; ls -A')).stdout).toBe('new\ndesktop.ini\n');
    expect(await there()).toEqual({});
  });

  test.skipIf(isMissing('perl'))('an exchange leaves each name as local-only or pushed as before', async () => {
    await mount.run('echo here > .DS_Store; echo there > notes');
    await mount.sync();
    await mount.run(`${EXCHANGE} .DS_Store notes`);
    expect((await mount.run('cat .DS_Store notes')).stdout).toBe('there\nhere\n');
    expect(await there()).toEqual({ notes: digestOf('here\n') });
  });

  test('local-only files are counted, named and exported, and their state is local', async () => {
    await mount.run('echo here > .DS_Store; echo travels > notes');
    await mount.sync();
    expect((await mount.status())?.local).toEqual({ count: 1, bytes: 5, paths: ['.DS_Store'] });
    const state = 'getfattr --only-values -n user.cfs.state';
    expect((await mount.run(`${state} .DS_Store; ${state} notes`)).stdout).toBe('localclean');
    expect((await mount.cfs(['status'])).stdout).toMatch(
      /^ {2}local {6}1 \(5 B\) only on this machine because of their names: \.DS_Store$/m,
    );
    const copies = await mkdtemp(join(tmpdir(), 'cfs-copies-'));
    onTestFinished(() => rm(copies, { recursive: true }));

    await mount.cfs(['export', copies]);

    expect(await readdir(copies)).toEqual(['.DS_Store']);
    await mount.run('rm .DS_Store');
    expect((await mount.status())?.local?.count).toBe(0);
  });
});
