import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFailed, test } from 'vitest';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { runCommand } from '../harness/command.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { PROJECT } from '../imports.ts';

/** What the mount does only at a person's word: try again what is parked, and believe that many files at once are gone. */

let mount: MountFixture;

beforeAll(async () => {
  // It is told when to look: what it saw by itself while another machine deletes would be some of that, and believed.
  mount = await MountFixture.start({ flags: ['--settle', '1h', '--dir-ttl', '1h'] });
});

afterAll(() => mount?.dispose());

/** On the data of the running service, as whoever runs it would. */
async function setQuota(bytes: string): Promise<void> {
  const { data, account } = mount.server;
  const cfs = join(PROJECT, 'dist/cli/cfs.js');
  await runCommand([process.execPath, cfs, 'serve', 'user', 'quota', account.username, bytes, '--data', data]);
}

test('what is parked is told with its reason and an exit code, and cfs retry pushes it once that is gone', async () => {
  onTestFailed(mount.printLogs);
  await setQuota('10KiB');
  await mount.run('head -c 50000 /dev/urandom > large.bin');

  const refused = await mount.cfs(['sync', '--wait'], { anyExitCode: true });
  expect([refused.code, refused.stdout]).toEqual([
    exitCode('parked'),
    '1 change is parked and needs you: cfs status says why\n',
  ]);
  expect(refused.stderr).toMatch(/^parked: large\.bin: quota: the account has no storage left for it \(.+\)\n$/);
  const status = await mount.cfs(['status'], { anyExitCode: true });
  expect([status.code, status.stdout]).toEqual([
    exitCode('parked'),
    expect.stringMatching(
      /parked {5}needs you \(cfs retry, cfs discard\): upload large\.bin: quota: the\s+account has no storage left for it \(/,
    ),
  ]);
  expect(status.stdout).toMatch(/^ {2}pending {4}nothing$/m); // and not: the service has everything

  const { code, stderr } = await mount.unmount(['--now']);
  expect([code, stderr]).toEqual([
    exitCode('parked'),
    '1 change parked; kept here: after the next mount cfs status shows the reason, cfs retry retries\n  upload large.bin\n',
  ]);
  await mount.mount();

  await setQuota('1GiB');
  expect((await mount.cfs(['retry'])).stdout).toBe('retrying 1 parked change\n');
  await mount.sync();
  expect([...(await mount.serverTree()).keys()]).toContain('large.bin');
  expect((await mount.cfs(['retry'])).stdout).toBe('nothing is parked\n');
});

test('many files that vanish from the service stay here until cfs refresh --accept', async () => {
  onTestFailed(mount.printLogs);
  await mount.run('mkdir many; for n in $(seq 120); do echo $n > many/$n; done');
  await mount.sync();
  const other = await mount.freshStore();
  await other.run('rm many/*');
  await other.sync();
  const left = async (): Promise<string> => (await mount.run('ls many | wc -l')).stdout;

  const held =
    'held back: more than 100 removals in many, kept here: check the service, then run cfs refresh --accept\n';
  expect((await mount.cfs(['refresh', join(mount.directory, 'many')])).stderr).toBe(held);
  expect(await left()).toBe('120\n');
  const { stdout } = await mount.cfs(['status'], { anyExitCode: true });
  expect(stdout).toMatch(/^ {2}held back {2}more than 100 removals in many, kept here/m);
  expect(await mount.logs()).toContain('"type":"held-back"');
  expect((await mount.cfs(['refresh', '--accept', join(mount.directory, 'many')])).stderr).toBe('');
  expect(await left()).toBe('0\n');
});

test('a folder of many files that is moved to the trash elsewhere is removed without a question', async () => {
  onTestFailed(mount.printLogs);
  await mount.run('mkdir modules; for n in $(seq 120); do echo $n > modules/$n; done');
  await mount.sync();
  await mount.run('ls modules');
  const other = await mount.freshStore();
  await other.run('rm -r modules');
  await other.sync();

  expect((await mount.cfs(['refresh'])).stderr).toBe('');
  expect((await mount.run('ls')).stdout).not.toContain('modules');
});
