import { afterAll, beforeAll, expect, test } from 'vitest';
import { MountFixture } from '../harness/mount-fixture.ts';
import { OtherProgram } from '../harness/other-program.ts';

/** A line that brings a block in more time than the mount waits for an answer. */

const BYTES = 200_000;
const READ_TIMEOUT_S = 5;
const READ_S = 12;

let mount: MountFixture;

beforeAll(async () => {
  mount = await MountFixture.start({ flags: ['--read-timeout', `${READ_TIMEOUT_S}s`] });
  const other = await OtherProgram.signIn(mount.server.account);
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
