import { join } from 'node:path';
import { afterEach, describe, expect, onTestFailed, test } from 'vitest';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { missingPrograms, titled } from '../harness/requirement.ts';

/** Faults that were reported from the field, on a real mount of a real `cfs serve`. */

const missing = missingForMounts() ?? missingPrograms('getfattr', 'setfattr');

const FLAGS = ['--dir-ttl', '1s', '--entry-timeout', '0s', '--attr-timeout', '0s', '--settle', '1s'];

let mount: MountFixture;
afterEach(() => mount?.dispose());

/** Every request is answered in the service's place. */
const answerAll = (status: number) => mount.server.setFaults([{ on: '*', times: 'always', then: { status } }]);

/** The request log of the mount's server, up to now. */
async function countOf(request: RegExp): Promise<number> {
  return (await mount.server.requestsSoFar()).filter((each) => request.test(each)).length;
}

describe.skipIf(missing !== null)(titled('gateways', missing), () => {
  test('a gateway that answers 404 to everything takes no name, inode number, time, mode, attribute, pin or local file', async () => {
    onTestFailed(() => mount?.printLogs());
    mount = await MountFixture.start({ flags: FLAGS, serverFlags: ['--log-level', 'debug'] });
    await mount.run(`
      for folder in a b c; do mkdir $folder; for n in 1 2 3 4 5 6; do echo $folder$n > $folder/$n; done; done
      touch -d '2001-02-03 04:05:06.789' a/1; chmod 751 a/2; setfattr -n user.tag -v red a/3
      echo only here > b/.note.swp`);
    expect((await mount.cfs(['pin', join(mount.directory, 'c')])).code).toBe(0);
    await mount.sync();
    const state = async (): Promise<string> => {
      const { stdout } = await mount.run(`
        find . -mindepth 1 -not -path './.versions*' -printf '%p %i %m %T@ %s\\n' | sort
        getfattr -n user.tag --only-values a/3; cat b/.note.swp`);
      return stdout;
    };
    await mount.run('ls -lR > /dev/null');
    const before = await state();

    await answerAll(404);
    const asked = await countOf(/contents/);
    // Each of the four folders is listed several times, once per --dir-ttl: this takes seconds.
    for (let round = 0; (await countOf(/contents/)) - asked < 16 && round < 200; round++)
      await mount.run('ls -lR > /dev/null 2>&1 || true; echo saved > a/saved || true; sleep 0.1');
    await mount.server.setFaults([]);
    expect((await mount.cfs(['refresh', mount.directory])).code).toBe(0);
    await mount.sync();

    const after = (await state()).split('\n');
    expect(after.filter((line) => !line.startsWith('./a/saved') && !/^\.\/a \d/.test(line))).toEqual(
      before.split('\n').filter((line) => !/^\.\/a \d/.test(line)),
    );
    const status = await mount.status();
    expect(status?.pinned).toMatchObject([{ path: 'c', isComplete: true }]);
    expect(status).toMatchObject({ parked: [], held: [] });
    expect((await mount.serverTree()).has('a/saved')).toBe(true);
  });

  test.each([403, 401])(
    'a gateway that answers %i to every request for eight seconds needs no person',
    async (status) => {
      onTestFailed(() => mount?.printLogs());
      mount = await MountFixture.start({ flags: FLAGS, serverFlags: ['--log-level', 'debug'] });
      await mount.run('echo one > edited; echo two > renamed; mkdir folder');
      await mount.sync();

      await answerAll(status);
      const asked = (await mount.server.requestsSoFar()).length;
      await mount.run('echo new > created; echo other > edited; mv renamed folder/; mkdir made');
      await mount.run('sleep 8');
      const during = await mount.status();
      expect((await mount.server.requestsSoFar()).length).toBeGreaterThan(asked);
      await mount.server.setFaults([]);
      await mount.sync();

      expect(during).toMatchObject({ parked: [] });
      expect(during?.pending.count).toBeGreaterThan(0);
      expect(await mount.status()).toMatchObject({
        parked: [],
        pending: { count: 0 },
        connection: { state: 'online' },
      });
      expect([...(await mount.serverTree()).keys()].sort()).toEqual([
        'created',
        'edited',
        'folder/',
        'folder/renamed',
        'made/',
      ]);
    },
  );

  test('a refusal that is the last before a gateway recovers parks nothing', async () => {
    onTestFailed(() => mount?.printLogs());
    mount = await MountFixture.start({ flags: FLAGS });
    await mount.server.setFaults([{ on: 'POST', times: 1, then: { status: 403 } }]);
    await mount.run('echo new > created');
    await mount.sync();

    expect(await mount.status()).toMatchObject({ parked: [], pending: { count: 0 } });
    expect([...(await mount.serverTree()).keys()]).toEqual(['created']);
  });
});
