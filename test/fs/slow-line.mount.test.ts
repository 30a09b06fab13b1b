import { afterAll, beforeAll, expect, test } from 'vitest';
import { MountFixture } from '../harness/mount-fixture.ts';
import { OtherProgram } from '../harness/other-program.ts';

/** A line that brings a block in more time than the mount waits for an answer. */

const BYTES = 200_000;
const READ_TIMEOUT_S = 5;
const READ_S = 12;

/** Of the answers to requests about files: the delay in ms, and bytes per second. */
const LINES = [
  [0, null],
  [0, 2_500_000],
  [20, null],
  [60, 6_250_000],
  [200, null],
  [200, 2_500_000],
] as const;
/** A photo. */
const PHOTO_BYTES = 299_000;

let mount: MountFixture;
let other: OtherProgram;

beforeAll(async () => {
  mount = await MountFixture.start({
    flags: ['--read-timeout', `${READ_TIMEOUT_S}s`],
    serverFlags: ['--log-level', 'debug'],
  });
  other = await OtherProgram.signIn(mount.server.account);
  const bytes = Buffer.alloc(BYTES, 'slow but sure ');
  await other.client.createFilled(other.systemFolder('2'), 'slow.bin', bytes, 'application/octet-stream');
  await mount.cfs(['refresh']);
});

afterAll(async () => {
  await mount?.dispose();
});

/** [S-read-6] */
test('one read(2) waits for its bytes as long as some arrive', async () => {
  await mount.server.setFaults([
    { on: 'GET', path: 'fileVersionData', times: 'always', then: { bandwidthBytesPerSecond: BYTES / READ_S } },
  ]);

  const read = await mount.run(`dd if=slow.bin bs=${BYTES} count=1 iflag=direct | wc -c`);

  expect(read.stdout.trim()).toBe(String(BYTES));
});

test.each(LINES)(
  'on a line of %i ms and %s bytes/s a photo is one request for its bytes',
  async (delayMs, bandwidth) => {
    await mount.server.setFaults([]);
    const line = { delayMs, ...(bandwidth !== null && { bandwidthBytesPerSecond: bandwidth }) };
    const paths = ['fileVersions', 'fileVersionData', 'fileData'] as const;
    for (const size of ['4k', '64k', '1M']) {
      const name = `${delayMs}-${bandwidth}-${size}.jpg`;
      const url = await other.client.createFilled(
        other.systemFolder('2'),
        name,
        Buffer.alloc(PHOTO_BYTES, name),
        'image/jpeg',
      );
      await mount.cfs(['refresh', mount.directory]);
      await mount.server.setFaults(paths.map((path) => ({ on: 'GET', path, times: 'always', then: line })));
      const from = (await mount.server.requestsSoFar()).length;

      const read = await mount.run(`dd if=${name} bs=${size} status=none | wc -c`);

      expect(read.stdout.trim()).toBe(String(PHOTO_BYTES));
      const isOfBytes = (request: string): boolean =>
        request.includes(new URL(url).pathname) && request.endsWith('/data');
      // A request is logged when its response has ended.
      const requests = async () => (await mount.server.requestsSoFar()).slice(from).filter(isOfBytes).length;
      await expect.poll(requests, { timeout: 30_000 }).toBe(1);
    }
  },
);
