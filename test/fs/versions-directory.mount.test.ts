import { afterAll, beforeAll, expect, onTestFailed, test } from 'vitest';
import { MountFixture } from '../harness/mount-fixture.ts';
import { OtherProgram } from '../harness/other-program.ts';

/** A listing and a history in which nothing is wrong take less on any machine. */
const READ_TIMEOUT = ['--read-timeout', '5s'];

let mount: MountFixture;

beforeAll(async () => {
  mount = await MountFixture.start({ flags: READ_TIMEOUT });
});

afterAll(async () => {
  await mount?.dispose();
});

async function lines(script: string): Promise<string[]> {
  return (await mount.run(script)).stdout.split('\n').filter((line) => line !== '');
}

/** [S-versions-1] */
test('.versions shows the versions of a file, each with its time and length, and cp brings one back', async () => {
  onTestFailed(mount.printLogs);
  await mount.run('mkdir docs; printf first > docs/report.odt');
  await mount.sync();
  await mount.run('printf "second, longer" > docs/report.odt');
  await mount.sync();

  const names = await lines('ls .versions/docs/report.odt');
  expect(names).toHaveLength(2);
  for (const name of names) expect(name).toMatch(/^\d{4}-\d\d-\d\dT\d\d\.\d\d\.\d\dZ(-\d+)?$/);
  const told = await lines('cd .versions/docs/report.odt; for f in *; do echo "$(stat -c %s "$f") $(cat "$f")"; done');
  expect(told.sort()).toEqual(['14 second, longer', '5 first']);
  const [time] = await lines(
    'date -u -d "@$(stat -c %Y .versions/docs/report.odt/$(ls .versions/docs/report.odt | head -1))" +%Y-%m-%dT%H.%M.%SZ',
  );
  expect(names[0]?.slice(0, 20)).toBe(time);

  await mount.run('cp "$(grep -lx first .versions/docs/report.odt/*)" docs/report.odt');

  expect(await lines('cat docs/report.odt')).toEqual(['first']);
  await mount.sync();
  expect(await lines('ls .versions/docs/report.odt')).toHaveLength(3);
});

/** [S-versions-2] */
test('.versions is listed only with --show-versions, and its inode numbers stay the same', async () => {
  await mount.run('printf one > listed.txt');
  await mount.sync();
  expect(await lines('ls -a')).not.toContain('.versions');
  expect(await lines('find . -name .versions')).toEqual([]);
  const numbers = await lines('stat -c %i .versions .versions/listed.txt .versions/listed.txt/*');

  await mount.unmount();
  await mount.mount(['--show-versions', ...READ_TIMEOUT]);

  expect(await lines('ls -a | grep -cx .versions')).toEqual(['1']);
  expect(await lines('ls -a | sort | uniq -d')).toEqual([]);
  expect(await lines('stat -c %i .versions .versions/listed.txt .versions/listed.txt/*')).toEqual(numbers);
});

/** [S-versions-3] */
test.each([
  'printf x > .versions/new',
  'mkdir .versions/new',
  'printf x > .versions/kept.txt/$(ls .versions/kept.txt)',
  'rm -f .versions/kept.txt/*',
  'rm -rf .versions/kept.txt',
  'rmdir .versions',
  'mv kept.txt .versions/other.txt',
  'mv .versions/kept.txt/* moved.txt',
  'mv -T .versions gone',
  'chmod u+w .versions/kept.txt/*',
  'ln -s kept.txt .versions/link',
])('%s is refused with EROFS', async (script) => {
  if ((await mount.run('test -e kept.txt', { anyExitCode: true })).code !== 0) {
    await mount.run('printf kept > kept.txt');
    await mount.sync();
  }

  const { code, stderr } = await mount.run(`LC_ALL=C; export LC_ALL; ${script}`, { anyExitCode: true });

  expect(code).not.toBe(0);
  // For an ordinary user, the kernel checks the modes first.
  expect(stderr).toMatch(
    process.getuid?.() === 0 ? /Read-only file system/ : /Read-only file system|Permission denied/,
  );
  expect(await lines('cat kept.txt .versions/kept.txt/*')).toEqual(['keptkept']);
});

/** [S-versions-4] */
test('without the service an unknown history is ETIMEDOUT, and files are unaffected', async () => {
  await mount.run('printf one > offline.txt');
  await mount.sync();
  await mount.server.pause();
  try {
    const { code, stderr } = await mount.run('LC_ALL=C ls .versions/offline.txt', { anyExitCode: true });
    expect(code).not.toBe(0);
    expect(stderr).toMatch(/timed out/);
    expect(await lines('cat offline.txt')).toEqual(['one']);
  } finally {
    mount.server.resume();
  }
});

/** [S-versions-5] */
test('a user folder that is called .versions hides that of the mount', async () => {
  const other = await OtherProgram.signIn(mount.server.account);
  await mount.run('ls .versions');
  const folder = await other.client.createFolder(other.systemFolder('2'), '.versions');
  await other.client.createFilled(folder, 'file.txt', 'own');

  await mount.cfs(['refresh']);

  expect(await lines('ls .versions')).toEqual(['file.txt']);
  expect(await lines('cat .versions/file.txt')).toEqual(['own']);
});
