import { afterAll, beforeAll, expect, onTestFailed, test } from 'vitest';
import type { Administration } from '../../src/server/administration.ts';
import { openAdministration } from '../../src/server/local-back-end.ts';
import { MountFixture } from '../harness/mount-fixture.ts';
import { OtherProgram } from '../harness/other-program.ts';
import { ReferenceServer } from '../harness/reference-server.ts';

/** The whole account of somebody who has a computer, and to whom somebody else shares two folders. */

const OWNER = 'owner@example.com';
let server: ReferenceServer;
let mount: MountFixture;
/** The one who shares. */
let owner: OtherProgram;

beforeAll(async () => {
  server = await ReferenceServer.start();
  const { username, url } = server.account;
  const data = await openAdministration({ dataDirectory: server.data });
  const { administration } = data;
  await administration.addUser(OWNER, 'secret', { nickname: 'Ada Lovelace', scryptCost: 1024 });
  const application = await administration.addApplication('test', { owner: OWNER });
  const keys = await administration.addKeyPair(OWNER);
  await administration.addWorkspace(username, 'Laptop', { syncFolders: ['Documents'] });
  await administration.share(OWNER, '2', username, { writeAllowed: false });
  await administration.share(OWNER, '3', username, { writeAllowed: true });
  await data.close();

  owner = await OtherProgram.signIn({ url, username: OWNER, password: 'secret', application, ...keys });
  await owner.client.createFilled(owner.systemFolder('2'), 'read.txt', 'from Ada');
  await owner.client.createFilled(owner.systemFolder('3'), 'photo.txt', 'a photo');
  mount = await MountFixture.start({ server, flags: ['--root', 'account'] });
});

afterAll(async () => {
  await mount?.dispose();
  await server?.dispose();
});

async function administer(change: (administration: Administration) => Promise<void>): Promise<void> {
  const data = await openAdministration({ dataDirectory: server.data });
  await change(data.administration);
  await data.close();
}

async function lines(script: string): Promise<string[]> {
  return (await mount.run(script)).stdout.split('\n').filter((line) => line !== '');
}

async function refusal(script: string): Promise<string> {
  const { code, stderr } = await mount.run(`LC_ALL=C; export LC_ALL; ${script}`, { anyExitCode: true });
  expect(code, script).not.toBe(0);
  return stderr;
}

/** [S-account-1] */
test('the account shows sync folders, workspaces and shares by their owner, and no trash', async () => {
  onTestFailed(mount.printLogs);

  expect(await lines('ls')).toEqual([
    'Documents',
    'Magic Briefcase',
    'Mobile Photos',
    'Shared with me',
    'Web Archive',
    'Workspaces',
  ]);
  expect(await lines('ls Workspaces/Laptop; readlink Workspaces/Laptop/Documents')).toEqual([
    'Documents',
    '../../Documents',
  ]);
  expect(await lines('ls "Shared with me" "Shared with me/Ada Lovelace"')).toEqual([
    'Shared with me:',
    'Ada Lovelace',
    'Shared with me/Ada Lovelace:',
    'Magic Briefcase',
    'Mobile Photos',
  ]);
  expect(await lines('cat "Shared with me/Ada Lovelace/Magic Briefcase/read.txt"')).toEqual(['from Ada']);
});

/** [S-fresh-4] */
test('cfs trash restore makes the file visible at the reported place immediately', async () => {
  onTestFailed(mount.printLogs);
  await mount.run('printf there > "Magic Briefcase/back.txt"');
  await mount.sync();
  await mount.run('rm "Magic Briefcase/back.txt"');
  await mount.sync();

  const { stdout } = await mount.cfs(['trash', 'restore', 'back.txt']);

  expect(stdout).toBe('back.txt is back in Magic Briefcase\n');
  expect(await lines('cat "Magic Briefcase/back.txt"')).toEqual(['there']);
  await mount.run('rm "Magic Briefcase/back.txt"');
  await mount.sync();
});

/** [S-account-2] */
test('files can be moved between own folders and into a writable share', async () => {
  onTestFailed(mount.printLogs);
  await mount.run(
    'printf one > Documents/one.txt; mkdir Documents/sub; printf two > Workspaces/Laptop/Documents/two.txt',
  );
  await mount.sync();

  await mount.run('mv Documents/one.txt "Magic Briefcase/"; mv Documents/sub "Mobile Photos/"');
  const shared = '"Shared with me/Ada Lovelace/Mobile Photos"';
  await mount.run(`printf three > ${shared}/three.txt; printf "a better photo" > ${shared}/photo.txt`);
  await mount.sync();

  expect([...(await server.reader.entries()).keys()]).toEqual(['one.txt']);
  const listing = await owner.client.get(`${owner.systemFolder('3')}/contents`);
  expect(listing.text).toContain('<displayName>three.txt</displayName>');
  await mount.run(`rm ${shared}/three.txt`);
  await mount.sync();
  expect((await owner.client.get(`${owner.systemFolder('3')}/contents`)).text).not.toContain('three.txt');
  expect((await mount.status())?.parked).toEqual([]);
});

/** [S-account-3] */
test.each([
  'printf x > new.txt',
  'mkdir new',
  'rmdir Documents',
  'mv Documents Papers',
  'mkdir Workspaces/Desktop',
  'rm Workspaces/Laptop/Documents',
  'printf x > "Shared with me/new.txt"',
  'rmdir "Shared with me/Ada Lovelace/Mobile Photos"',
  'mv "Shared with me" Shares',
])('%s is refused with EPERM, and nothing is parked', async (script) => {
  expect(await refusal(script)).toMatch(/Operation not permitted/);
  expect((await mount.status())?.pending.count).toBe(0);
});

/** [S-account-4] */
test.each([
  'printf x > new.txt',
  'printf x > read.txt',
  'printf x >> read.txt',
  'rm -f read.txt',
  'mkdir new',
  'mv read.txt other.txt',
  'truncate -s 1 read.txt',
  'ln -s read.txt link',
  'mv read.txt ../../../Documents/',
])('in a share for reading, %s is refused with EROFS', async (script) => {
  expect(await refusal(`cd "Shared with me/Ada Lovelace/Magic Briefcase"; ${script}`)).toMatch(/Read-only file system/);
});

/** [S-account-4] */
test('a read-only share stays read-only after a restart without the service, and nothing can be moved across its border', async () => {
  onTestFailed(mount.printLogs);
  await mount.unmount();
  await server.pause();
  try {
    await mount.mount(['--root', 'account', '--read-timeout', '1s']);
    const folder = 'cd "Shared with me/Ada Lovelace/Magic Briefcase"';
    expect(await refusal(`${folder}; printf x > new.txt`)).toMatch(/Read-only file system/);
    expect(await refusal('mkdir new')).toMatch(/Operation not permitted/);
  } finally {
    server.resume();
  }
  const across =
    'perl -e \'rename "Documents/two.txt", "Shared with me/Ada Lovelace/Mobile Photos/two.txt" or die "$!"\'';
  expect(await refusal(across)).toMatch(/cross-device link/);
  await mount.run('mv Documents/two.txt "Shared with me/Ada Lovelace/Mobile Photos/"');
  await mount.sync();
  expect((await owner.client.get(`${owner.systemFolder('3')}/contents`)).text).toContain('two.txt');
});

/** [S-account-4] */
test('a share follows what its owner allows, and goes when it is taken back', async () => {
  onTestFailed(mount.printLogs);
  const person = 'Shared with me/Ada Lovelace';
  const share = `${person}/Mobile Photos`;
  await mount.run(`ls "${share}"`);

  await administer(async (administration) => {
    await administration.share(OWNER, '3', server.account.username, { writeAllowed: false });
  });
  await mount.cfs(['refresh', `${mount.directory}/${person}`]);
  expect(await refusal(`printf x > "${share}/late.txt"`)).toMatch(/Read-only file system/);

  await administer((administration) => administration.unshare(OWNER, '3', server.account.username));
  await mount.cfs(['refresh', `${mount.directory}/${person}`]);
  expect(await lines(`ls "${person}"`)).toEqual(['Magic Briefcase']);
  expect((await mount.status())?.parked).toEqual([]);
});
