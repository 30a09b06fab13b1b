import { afterAll, beforeAll, expect, onTestFailed, test } from 'vitest';
import type { PinnedPath } from '../../src/control/status-model.ts';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { OtherProgram } from '../harness/other-program.ts';

const FLAGS = ['--dir-ttl', '1s', '--read-timeout', '5s', '--cache-size', '1MiB', '--settle', '100ms'];
const MIB = 1024 * 1024;

let mount: MountFixture;
let other: OtherProgram;
let folder: string;

beforeAll(async () => {
  mount = await MountFixture.start({ flags: FLAGS });
  other = await OtherProgram.signIn(mount.server.account);
  folder = await other.client.createFolder(other.systemFolder('2'), 'album');
  await other.client.createFolder(folder, 'inner');
  for (const name of ['one.bin', 'two.bin']) await other.client.createFilled(folder, name, filledWith(name, 2 * MIB));
  await other.client.createFilled(other.systemFolder('2'), 'loose.bin', filledWith('loose', 3 * MIB));
  await mount.cfs(['refresh']);
});

afterAll(async () => {
  await mount?.dispose();
});

function filledWith(text: string, bytes: number): Buffer {
  return Buffer.alloc(bytes, `${text} `);
}

async function pinned(): Promise<readonly PinnedPath[]> {
  return (await mount.status())?.pinned ?? [];
}

/** What can be read of a file while the service does not answer: its first word. @throws Error for a read that fails */
async function wordOffline(path: string): Promise<string> {
  await mount.server.pause();
  try {
    // Not from the kernel's memory: what is on this machine is what is asked for.
    const { stdout } = await mount.run(`dd if=${path} iflag=direct bs=128k status=none | md5sum; head -c 8 ${path}`);
    return stdout.slice(-8).trim();
  } finally {
    mount.server.resume();
  }
}

/** [S-pin-1] */
test('pinned files are fetched completely, and stay when other files fill the cache', async () => {
  onTestFailed(mount.printLogs);

  const { stdout } = await mount.cfs(['pin', `${mount.directory}/album`]);

  expect(stdout).toBe(`${mount.directory}/album is kept on this machine: 2 files, 4 MiB\n`);
  expect(await pinned()).toMatchObject([
    { path: 'album', files: 2, filesHere: 2, bytesHere: 4 * MIB, isComplete: true },
  ]);
  await mount.run('for i in 1 2 3; do dd if=loose.bin iflag=direct of=/dev/null bs=128k status=none; done');
  expect(await wordOffline('album/one.bin')).toBe('one.bin');
  expect(await wordOffline('album/two.bin')).toBe('two.bin');
  expect((await mount.cfs(['status'])).stdout).toMatch(/pinned {5}album: here, 2 files, 4 MiB/);
});

/** [S-pin-2] */
test('new versions and new files in a pinned folder are fetched without a read, also after a restart', async () => {
  onTestFailed(mount.printLogs);
  const file = (await mount.server.reader.entries()).get('album/one.bin')?.url ?? '';
  await other.client.send('PUT', `${file}/data`, { body: filledWith('newer', 3 * MIB) });
  await expect
    .poll(pinned, { timeout: 20_000, interval: 200 })
    .toMatchObject([{ bytesHere: 5 * MIB, isComplete: true }]);
  expect(await wordOffline('album/one.bin')).toBe('newer ne');

  await mount.unmount();
  await other.client.createFilled(folder, 'three.bin', filledWith('three', MIB));
  await mount.mount();

  await expect.poll(pinned, { timeout: 20_000, interval: 200 }).toMatchObject([{ files: 3, bytesHere: 6 * MIB }]);
  // Fetched within two seconds of its change, when nobody can be sure that it is the newest: what is here is here.
  expect(await wordOffline('album/three.bin')).toBe('three th');
});

/** [S-pin-3] */
test('a renamed file stays pinned, an unpinned one does not, and without the service pin reports the missing bytes', async () => {
  await mount.run('mv album pictures');
  await mount.sync();
  await expect.poll(pinned, { timeout: 20_000, interval: 200 }).toMatchObject([{ path: 'pictures', isComplete: true }]);

  expect((await mount.cfs(['unpin', `${mount.directory}/pictures`])).stdout).toBe(
    `${mount.directory}/pictures is no longer pinned\n`,
  );
  expect(await pinned()).toEqual([]);
  await other.client.createFilled(other.systemFolder('2'), 'late.bin', filledWith('late', 3 * MIB));
  await mount.cfs(['refresh']);
  await mount.server.pause();
  try {
    const result = await mount.cfs(['pin', `${mount.directory}/late.bin`], { anyExitCode: true });
    expect(result.code).toBe(exitCode('pending'));
    expect(result.stderr).toMatch(/0 of 1 files, 0 B of 3 MiB; the rest is fetched when the service can be reached/);
  } finally {
    mount.server.resume();
  }
  await expect.poll(pinned, { timeout: 30_000, interval: 200 }).toMatchObject([{ path: 'late.bin', isComplete: true }]);
});

test('what nobody has looked at yet is pinned and refreshed by its path', async () => {
  const outer = await other.client.createFolder(other.systemFolder('2'), 'outer');
  const inner = await other.client.createFolder(outer, 'inner');
  await other.client.createFilled(inner, 'seen', filledWith('seen', MIB));

  const { stdout } = await mount.cfs(['pin', `${mount.directory}/outer/inner`]);
  expect(stdout).toBe(`${mount.directory}/outer/inner is kept on this machine: 1 file, 1 MiB\n`);

  await other.client.createFilled(inner, 'new', filledWith('new', 10));
  await mount.cfs(['refresh', `${mount.directory}/outer/inner/new`]);
  expect((await mount.run('ls outer/inner')).stdout).toBe('new\nseen\n');
  const missing = await mount.cfs(['pin', `${mount.directory}/outer/missing`], { anyExitCode: true });
  expect(missing).toMatchObject({
    code: exitCode('missing'),
    stderr: 'cfs: there is no outer/missing in this mount\n',
  });
});
