import { spawnSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { runScript } from '../harness/command.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { treeDifferences, treeDigests } from '../harness/tree-digests.ts';

const absent = spawnSync('sh', ['-c', 'command -v rclone'], { stdio: 'ignore' }).status === 0 ? null : 'rclone';
const missing = missingForMounts() ?? absent;

/** Another client of the same account, written by others, at work beside the mount. */
describe.skipIf(missing !== null)(`rclone beside a mount${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  let mount: MountFixture;
  let scratch = '';
  beforeAll(async () => {
    mount = await MountFixture.start({ flags: ['--settle', '100ms', '--dir-ttl', '500ms'] });
    scratch = await mkdtemp(path.join(tmpdir(), 'cfs-rclone-'));
    const { account, reader } = mount.server;
    const { refreshToken, accessToken, user } = await reader.session();
    const { trash } = await reader.places();
    const lines = {
      type: 'sugarsync',
      app_id: account.application,
      access_key_id: account.accessKeyId,
      private_access_key: account.privateAccessKey,
      hard_delete: 'false',
      refresh_token: refreshToken,
      authorization: accessToken,
      authorization_expiry: '2099-01-01T00:00:00Z',
      user,
      root_id: `${user}/folders`,
      deleted_id: trash,
    };
    const text = Object.entries(lines).map(([key, value]) => `${key} = ${value}\n`);
    await writeFile(path.join(scratch, 'rclone.conf'), `[cloud]\n${text.join('')}`);
  });
  afterAll(async () => {
    await mount?.dispose();
    if (scratch !== '') await rm(scratch, { recursive: true });
  });

  const rclone = (command: string) =>
    runScript(`rclone --config rclone.conf --retries 1 --low-level-retries 3 ${command}`, {
      directory: scratch,
      env: { HOME: scratch },
    });

  test('each sees what the other one wrote, changed, renamed and removed', async () => {
    onTestFailed(() => mount.printLogs());
    await mount.run(`mkdir here; for n in $(seq 1 20); do echo "here $n" > "here/f$n"; done; seq 1 60000 > large`);
    await mount.sync();
    const cloud = "cloud:'Magic Briefcase'";

    await rclone(`copy ${cloud}/here got; test "$(cat got/f7)" = 'here 7'; test "$(ls got | wc -l)" = 20`);
    await rclone(`cat ${cloud}/large | tail -1 | grep -qx 60000`);
    await runScript(
      `mkdir -p put/sub; for n in $(seq 1 20); do echo "there $n" > "put/sub/t$n"; done; seq 1 50000 > put/long`,
      {
        directory: scratch,
      },
    );
    await rclone(`copy put ${cloud}/there`);
    await rclone(`deletefile ${cloud}/here/f1`);
    await rclone(`moveto ${cloud}/here/f2 ${cloud}/here/renamed`);
    await mount.cfs(['refresh']);
    await mount.run(
      `test "$(cat there/sub/t7)" = 'there 7'; test "$(ls there/sub | wc -l)" = 20; tail -1 there/long | grep -qx 50000
       test ! -e here/f1; test "$(cat here/renamed)" = 'here 2'; test ! -e here/f2
       echo changed >> there/sub/t7; mv there/long there/longer; rm here/f3`,
    );
    await mount.sync();
    await rclone(`cat ${cloud}/there/sub/t7 | tail -1 | grep -qx changed`);
    await rclone(`lsf ${cloud}/there | sort | tr '\\n' ' ' | grep -qx 'longer sub/ '`);
    await rclone(`check --size-only put/sub ${cloud}/there/sub --exclude t7`);

    expect(treeDifferences(await mount.serverTree(), await treeDigests(mount))).toEqual([]);
  });
});
