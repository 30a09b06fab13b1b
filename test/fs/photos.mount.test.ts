import { afterAll, beforeAll, expect, onTestFailed, test } from 'vitest';
import { pathsOf } from '../../src/config/paths.ts';
import { callControl } from '../../src/control/client.ts';
import { runningMounts } from '../../src/mount/running-mounts.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { OtherProgram } from '../harness/other-program.ts';

/** A folder of many photos, as file managers meet it. */

const PHOTOS = 500;
const PHOTO_BYTES = 5 * 1024 * 1024;
const HEADER_BYTES_MAX = 256 * 1024;

let mount: MountFixture;

beforeAll(async () => {
  mount = await MountFixture.start();
  const other = await OtherProgram.signIn(mount.server.account);
  const folder = await other.client.createFolder(other.systemFolder('2'), 'photos');
  const first = await other.client.createFilled(
    folder,
    'IMG_0000.jpg',
    Buffer.alloc(PHOTO_BYTES, 'photo'),
    'image/jpeg',
  );
  for (let at = 1; at < PHOTOS; at++) {
    const name = `IMG_${String(at).padStart(4, '0')}.jpg`;
    await other.client.create(folder, `<fileCopy source="${first}"><displayName>${name}</displayName></fileCopy>`);
  }
  await mount.cfs(['refresh']);
});

afterAll(async () => {
  await mount?.dispose();
});

/** Bytes of files that the mount has fetched so far. */
async function fetchedBytes(): Promise<number> {
  const [running] = await runningMounts(pathsOf(mount.env()));
  if (running === undefined) throw new Error('nothing is mounted');
  return (await callControl(running.socketPath, 'metrics', {})).bytes.fetched;
}

/** [S-photos-1] */
test('500 photos of 5 MiB are listed with all attributes for ls and a file manager, without fetching a byte', async () => {
  onTestFailed(mount.printLogs);

  const { stdout } = await mount.run(
    'ls -la photos | grep -c IMG_; stat -c "%s %y %F" photos/* | sort -u | wc -l; find photos -type f -size 5120k | wc -l',
  );

  expect(stdout.split('\n').slice(0, 3)).toEqual(['500', expect.stringMatching(/^\d+$/), '500']);
  expect(await fetchedBytes()).toBe(0);
});

/** [S-photos-2] */
test.each([
  ['in one read', 'dd bs=64k count=1'],
  ['in small ones', 'dd bs=4k count=16'],
])('a program that reads the headers of photos %s fetches at most 256 KiB of each', async (_how, read) => {
  onTestFailed(mount.printLogs);
  const photos = read.includes('64k') ? 'photos/IMG_00*.jpg' : 'photos/IMG_01*.jpg';
  const before = await fetchedBytes();

  await mount.run(`for photo in ${photos}; do ${read} if="$photo" of=/dev/null status=none; done`);

  const fetched = (await fetchedBytes()) - before;
  expect(fetched).toBeGreaterThan(0);
  expect(fetched / 100).toBeLessThanOrEqual(HEADER_BYTES_MAX);
});
