import { afterAll, beforeAll, expect, onTestFailed, test } from 'vitest';
import { MountFixture } from '../harness/mount-fixture.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';

let mount: MountFixture;
let calls: SyscallProcess;

beforeAll(async () => {
  mount = await MountFixture.start({ flags: ['--settle', '1h'] });
  calls = await SyscallProcess.start(mount.directory);
});

afterAll(async () => {
  await calls?.dispose();
  await mount?.dispose();
});

async function attribute(path: string, name: string): Promise<string> {
  return Buffer.from(await calls.getxattr(path, `user.cfs.${name}`)).toString();
}

/** [S-xattr-1] */
test('user.cfs.state changes from pending to clean, and the other attributes show the remote state', async () => {
  onTestFailed(mount.printLogs);
  await mount.run('printf one > note.txt; mkdir folder');
  expect(await attribute('note.txt', 'state')).toBe('pending');
  await expect(calls.getxattr('note.txt', 'user.cfs.url')).rejects.toMatchObject({ errno: 'ENODATA' });
  await expect(calls.setxattr('note.txt', 'user.cfs.public_link', Buffer.from('on'))).rejects.toMatchObject({
    errno: 'EBUSY',
  });

  await mount.sync();

  const entry = (await mount.server.reader.entries()).get('note.txt');
  expect(await attribute('note.txt', 'state')).toBe('clean');
  expect(await attribute('note.txt', 'url')).toBe(entry?.url);
  expect(await attribute('note.txt', 'version')).toMatch(new RegExp(`^${entry?.url}/version/`));
  expect(await attribute('note.txt', 'media_type')).toMatch(/^text\/plain/);
  expect(await attribute('folder', 'state')).toBe('clean');
  expect(await attribute('folder', 'url')).toMatch(/\/folder\/:sc:/);
  await expect(calls.getxattr('folder', 'user.cfs.version')).rejects.toMatchObject({ errno: 'ENODATA' });
});

/** [S-xattr-3] */
test('a public link is switched on and off by its attribute, and works in between', async () => {
  await mount.run('printf "for everybody" > shown.txt');
  await mount.sync();
  expect(await attribute('shown.txt', 'public_link')).toBe('off');

  await calls.setxattr('shown.txt', 'user.cfs.public_link', Buffer.from('on'));

  const link = await attribute('shown.txt', 'public_link');
  expect(await (await fetch(`${link}?directDownload=true`)).text()).toBe('for everybody');
  await calls.setxattr('shown.txt', 'user.cfs.public_link', Buffer.from('off'));
  expect((await fetch(`${link}?directDownload=true`)).status).toBe(404);
  expect(await attribute('shown.txt', 'public_link')).toBe('off');
  await expect(calls.setxattr('shown.txt', 'user.cfs.public_link', Buffer.from('yes'))).rejects.toMatchObject({
    errno: 'EINVAL',
  });
  await expect(calls.setxattr('shown.txt', 'user.cfs.url', Buffer.from('other'))).rejects.toMatchObject({
    errno: 'EPERM',
  });
});

/** [S-xattr-2] */
test('the attributes are not listed, so cp -a and rsync -X copy only the user’s own attributes', async () => {
  await mount.run('printf one > source.txt');
  await calls.setxattr('source.txt', 'user.colour', Buffer.from('green'));
  await mount.sync();

  expect(await calls.listxattr('source.txt')).toEqual(['user.colour']);
  await mount.run('cp -a source.txt copy.txt; cp --preserve=xattr source.txt strict.txt');
  expect(await calls.listxattr('copy.txt')).toEqual(['user.colour']);
  expect(await attribute('copy.txt', 'state')).toBe('pending');
  expect(Buffer.from(await calls.getxattr('strict.txt', 'user.colour')).toString()).toBe('green');
});

/** [S-xattr-5] */
test("a folder's state is the worst of what lies below it, and clean again when all is pushed", async () => {
  await mount.run('mkdir -p deep/er/est beside && printf one > deep/er/est/f');
  await mount.sync();
  for (const folder of ['deep', 'deep/er', '']) expect(await attribute(folder, 'state')).toBe('clean');

  await mount.run('printf two > deep/er/est/f');
  for (const folder of ['deep', 'deep/er', 'deep/er/est', '']) expect(await attribute(folder, 'state')).toBe('pending');
  expect(await attribute('beside', 'state')).toBe('clean');
  await mount.server.setFaults([{ on: 'POST', path: 'fileVersions', times: 'always', then: { status: 413 } }]);
  await mount.cfs(['sync', '--wait'], { anyExitCode: true });
  expect(await attribute('deep/er/est/f', 'state')).toBe('parked:quota');
  await mount.run('printf x > deep/waits');
  for (const folder of ['deep', 'deep/er', '']) expect(await attribute(folder, 'state')).toBe('parked:quota');

  await mount.server.setFaults([]);
  await mount.cfs(['retry']);
  await mount.sync();
  for (const folder of ['deep', 'deep/er', 'deep/er/est', '']) expect(await attribute(folder, 'state')).toBe('clean');
});

/** [S-xattr-6] [S-evict-1] [S-evict-2] [S-evict-3] [S-xattr-7] */
test('user.cfs.here and user.cfs.pinned follow eviction, a fetch and a pin', async () => {
  await mount.run('mkdir -p kept && head -c 3145728 /dev/zero > kept/big.bin && printf new > fresh.txt');
  await mount.cfs(['sync', '--wait', `${mount.directory}/kept`]);
  expect(await attribute('kept/big.bin', 'here')).toBe('all');
  expect(await attribute('kept', 'here')).toBe('all');
  expect(await attribute('kept/big.bin', 'pinned')).toBe('none');
  const evict = (path: string) => mount.cfs(['evict', `${mount.directory}/${path}`], { anyExitCode: true });
  // A version that was just acknowledged is merged first.
  await expect.poll(async () => (await evict('kept/big.bin')).code, { timeout: 20_000 }).toBe(0);
  expect(await attribute('kept/big.bin', 'here')).toBe('none');
  expect(await attribute('kept', 'here')).toBe('none');
  expect(await evict('fresh.txt')).toMatchObject({
    code: 10,
    stderr: expect.stringContaining('has bytes that exist on this machine only'),
  });

  await mount.run('dd if=kept/big.bin iflag=direct bs=64k count=1 of=/dev/null status=none');
  expect(await attribute('kept/big.bin', 'here')).toBe('part');
  expect(await attribute('kept', 'here')).toBe('part');
  const once = await mount.cfs(['pin', '--once', `${mount.directory}/kept`]);
  expect(once.stdout).toContain('is fetched to this machine: 1 file');
  expect(await attribute('kept/big.bin', 'here')).toBe('all');
  expect(await attribute('kept', 'here')).toBe('all');
  expect(await attribute('kept/big.bin', 'pinned')).toBe('none');
  expect((await mount.status())?.pinned).toEqual([]);

  await mount.cfs(['pin', `${mount.directory}/kept`]);
  expect(await attribute('kept/big.bin', 'pinned')).toBe('folder');
  expect(await attribute('kept', 'pinned')).toBe('itself');
  expect(await evict('kept/big.bin')).toMatchObject({ code: 2, stderr: expect.stringContaining('cfs unpin ends it') });
  await mount.cfs(['unpin', `${mount.directory}/kept`]);
  await mount.cfs(['sync', '--wait', `${mount.directory}/fresh.txt`]);
  expect(await evict('fresh.txt')).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('removed the local copy'),
  });
  expect(await attribute('fresh.txt', 'here')).toBe('none');
  expect((await mount.run('cat fresh.txt')).stdout).toBe('new');
});
