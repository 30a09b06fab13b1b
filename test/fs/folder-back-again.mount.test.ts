import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterAll, afterEach, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { OtherProgram } from '../harness/other-program.ts';

/**
 * A folder that was deleted here while a program sits in it, and is there again. The kernel lets nobody into what it has of such a folder (S_DEAD),
 * also not by the name: unless it is another one to it, the folder is empty for everybody.
 */

const missing = missingForMounts();
describe.skipIf(missing !== null)(
  `a folder that is there again${missing === null ? '' : ` (needs: ${missing})`}`,
  () => {
    let mount: MountFixture;
    let other: OtherProgram;
    const sitting: ChildProcess[] = [];
    beforeAll(async () => {
      // Nothing that is deleted here is heard of by the service.
      mount = await MountFixture.start({ flags: ['--settle', '1m'] });
      other = await OtherProgram.signIn(mount.server.account);
    });
    afterEach(async () => {
      for (const child of sitting.splice(0)) {
        child.kill('SIGKILL');
        await once(child, 'exit');
      }
    });
    afterAll(() => mount?.dispose());

    /** A shell whose working directory is `folder`. */
    async function sitsIn(folder: string): Promise<void> {
      const shell = spawn('sh', [
        '-c',
        'cd "$1" && echo there && exec sleep 600',
        'sh',
        `${mount.directory}/${folder}`,
      ]);
      sitting.push(shell);
      await once(shell.stdout, 'data');
    }

    const GONE = {
      'was removed': (folder: string) => `rm -r ${folder}`,
      'was replaced by another': (folder: string) =>
        `mkdir ${folder}.new; rm -r ${folder}/*; mv -T ${folder}.new ${folder}; rmdir ${folder}`,
    };

    /** [S-delete-7] */
    test.each(Object.keys(GONE) as (keyof typeof GONE)[])(
      'a folder that %s and is back after cfs discard can be used by its name',
      async (how) => {
        onTestFailed(() => mount.printLogs());
        const folder = `discarded-${Object.keys(GONE).indexOf(how)}`;
        await mount.run(`mkdir -p ${folder}/below; echo kept > ${folder}/file; echo deep > ${folder}/below/file`);
        await mount.sync();
        await sitsIn(folder);
        await sitsIn(`${folder}/below`);
        await mount.run(GONE[how](folder));

        await mount.cfs(['discard', mount.directory, '--yes']);

        await mount.run(
          `echo new > ${folder}/new; mkdir ${folder}/folder; mv ${folder}/new ${folder}/below/new; chmod 750 ${folder}`,
        );
        expect((await mount.run(`ls ${folder} ${folder}/below; cat ${folder}/file ${folder}/below/*`)).stdout).toBe(
          `${folder}:\nbelow\nfile\nfolder\n\n${folder}/below:\nfile\nnew\nkept\ndeep\nnew\n`,
        );
        expect((await mount.run(`stat -c '%h %a' ${folder}`)).stdout).toBe('1 750\n');
        await mount.sync();
        // As when it was removed for the first time.
        await sitsIn(folder);
        await mount.run(`rm -r ${folder}`);
        await mount.cfs(['discard', mount.directory, '--yes']);
        expect((await mount.run(`cat ${folder}/below/new`)).stdout).toBe('new\n');
      },
    );

    /** [S-delete-7] */
    test('a removed folder that is back because of a remote save in it can be used by its name', async () => {
      onTestFailed(() => mount.printLogs());
      const url = await other.client.createFolder(other.systemFolder('2'), 'shared');
      await other.client.createFilled(url, 'file', Buffer.from('kept\n'));
      await mount.cfs(['refresh']);
      await mount.run('cat shared/file');
      await sitsIn('shared');
      await mount.run('rm -r shared');

      await other.client.createFilled(url, 'theirs', Buffer.from('theirs\n'));
      await mount.cfs(['refresh']);

      const heard = async () => (await mount.run('ls shared; cat shared/theirs', { anyExitCode: true })).stdout;
      await expect.poll(heard).toBe('theirs\ntheirs\n');
    });
  },
);
