import { expect } from 'vitest';
import { O_CREAT, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, R_OK, type User, W_OK, X_OK } from '../file-api.ts';
import { type Scenario, scenario } from '../scenario.ts';
import { fails, type Workplace } from '../workplace.ts';

const OWNER: User = { uid: 2001, gid: 3001 };
const COLLEAGUE: User = { uid: 2002, gid: 3001 };
const STRANGER: User = { uid: 2003, gid: 3003 };

/** The folder of the case as a place where anyone may create, and the three users in it. */
async function users(fs: Workplace): Promise<{ owner: Workplace; colleague: Workplace; stranger: Workplace }> {
  await fs.chmod('', 0o777);
  const owner = await fs.another(OWNER);
  const colleague = await fs.another(COLLEAGUE);
  const stranger = await fs.another(STRANGER);
  return { owner, colleague, stranger };
}

/** Permission bits with several users: what default_permissions makes the kernel check, by the bits that we keep. */
export const permissionScenarios: readonly Scenario[] = [
  scenario('owner, group and others may read by their bits', ['users'], async (fs) => {
    const { owner, colleague, stranger } = await users(fs);
    await owner.put('file', 'secret', 0o640);

    expect(await owner.text('file')).toBe('secret');
    expect(await colleague.text('file')).toBe('secret');
    await fails('EACCES', stranger.open('file', O_RDONLY));
  }),
  scenario('owner, group and others may write by their bits', ['users'], async (fs) => {
    const { owner, colleague, stranger } = await users(fs);
    await owner.put('file', 'x', 0o600);
    await owner.chmod('file', 0o620);

    await owner.put('file', 'owner');
    await colleague.close(await colleague.open('file', O_WRONLY));
    await fails('EACCES', colleague.open('file', O_RDWR));
    await fails('EACCES', stranger.open('file', O_WRONLY));
    await fails('EACCES', stranger.open('file', O_WRONLY | O_TRUNC));
    await fails('EACCES', stranger.truncate('file', 0));
    expect(await owner.text('file')).toBe('owner');
  }),
  scenario('the owner is bound by the owner bits even where others may more', ['users'], async (fs) => {
    const { owner, stranger } = await users(fs);
    await owner.put('file', 'x', 0o600);
    await owner.chmod('file', 0o066);

    await fails('EACCES', owner.open('file', O_RDONLY));
    expect(await stranger.text('file')).toBe('x');
  }),
  scenario('root may read and write whatever the bits say', ['users'], async (fs) => {
    const { owner } = await users(fs);
    await owner.put('file', 'x', 0o600);
    await owner.chmod('file', 0o000);

    await fs.put('file', 'root was here');

    expect(await fs.text('file')).toBe('root was here');
  }),
  scenario('a folder without the search bit hides what is in it', ['users'], async (fs) => {
    const { owner, stranger } = await users(fs);
    await owner.mkdir('folder', 0o700);
    await owner.put('folder/file', 'x', 0o666);
    await owner.chmod('folder', 0o704);

    await fails('EACCES', stranger.stat('folder/file'));
    await fails('EACCES', stranger.open('folder/file', O_RDONLY));
    await fails('EACCES', stranger.open('folder/new', O_WRONLY | O_CREAT));
    expect(await stranger.names('folder')).toEqual(['file']);
  }),
  scenario('a folder without the read bit is not listed but entered', ['users'], async (fs) => {
    const { owner, stranger } = await users(fs);
    await owner.mkdir('folder', 0o711);
    await owner.put('folder/file', 'x', 0o644);

    await fails('EACCES', stranger.readdir('folder'));
    expect(await stranger.text('folder/file')).toBe('x');
  }),
  scenario('a folder without the write bit takes no new names and gives none up', ['users'], async (fs) => {
    const { owner, stranger } = await users(fs);
    await owner.mkdir('folder', 0o755);
    await owner.put('folder/file', 'x', 0o666);
    await owner.mkdir('folder/child');
    await stranger.put('mine', 'x');

    await fails('EACCES', stranger.open('folder/new', O_WRONLY | O_CREAT));
    await fails('EACCES', stranger.mkdir('folder/new'));
    await fails('EACCES', stranger.symlink('x', 'folder/new'));
    await fails('EACCES', stranger.unlink('folder/file'));
    await fails('EACCES', stranger.rmdir('folder/child'));
    await fails('EACCES', stranger.rename('folder/file', 'stolen'));
    await fails('EACCES', stranger.rename('mine', 'folder/mine'));
    expect(await owner.names('folder')).toEqual(['child', 'file']);
  }),
  scenario('an existing file may be written by its own bits in a folder that may not be', ['users'], async (fs) => {
    const { owner, stranger } = await users(fs);
    await owner.mkdir('folder', 0o755);
    await owner.put('folder/file', 'x');
    await owner.chmod('folder/file', 0o666);

    await stranger.put('folder/file', 'y');

    expect(await owner.text('folder/file')).toBe('y');
  }),
  scenario('only the owner changes mode and times', ['users'], async (fs) => {
    const { owner, colleague } = await users(fs);
    await owner.put('file', 'x');
    await owner.chmod('file', 0o666);

    await fails('EPERM', colleague.chmod('file', 0o777));
    await fails('EPERM', colleague.utimes('file', 1n, 1n));
    await owner.chmod('file', 0o644);
    await owner.utimes('file', 1n, 1n);
    expect((await fs.stat('file')).mode).toBe(0o644);
  }),
  scenario('a user with write permission may set the times to now', ['users'], async (fs) => {
    const { owner, colleague, stranger } = await users(fs);
    await owner.put('file', 'x');
    await owner.chmod('file', 0o664);
    await owner.utimes('file', 1n, 1n);

    await colleague.utimes('file', 'now', 'now');

    expect((await fs.stat('file')).mtimeNs).toBeGreaterThan(1n);
    await fails('EACCES', stranger.utimes('file', 'now', 'now'));
  }),
  scenario('an ordinary user gives no file away', ['users'], async (fs) => {
    const { owner, stranger } = await users(fs);
    await owner.put('file', 'x');

    await fails('EPERM', owner.chown('file', STRANGER.uid, -1));
    await fails('EPERM', stranger.chown('file', STRANGER.uid, -1));
    await fails('EPERM', owner.chown('file', -1, STRANGER.gid));
    expect(await fs.stat('file')).toMatchObject(OWNER);
  }),
  scenario('in a sticky folder only the owner removes and renames', ['users'], async (fs) => {
    const { owner, stranger } = await users(fs);
    await fs.mkdir('shared');
    await fs.chmod('shared', 0o1777);
    await owner.put('shared/file', 'x');
    await stranger.put('shared/other', 'x');

    await fails('EPERM', stranger.unlink('shared/file'));
    await fails('EPERM', stranger.rename('shared/file', 'shared/taken'));
    await fails('EPERM', stranger.rename('shared/other', 'shared/file'));
    await owner.unlink('shared/file');
    expect(await fs.names('shared')).toEqual(['other']);
  }),
  scenario('access tells what each user may', ['users'], async (fs) => {
    const { owner, colleague, stranger } = await users(fs);
    await owner.put('file', 'x');
    await owner.chmod('file', 0o754);

    await owner.process.access('file', R_OK | W_OK | X_OK);
    await colleague.process.access('file', R_OK | X_OK);
    await fails('EACCES', colleague.process.access('file', W_OK));
    await stranger.process.access('file', R_OK);
    await fails('EACCES', stranger.process.access('file', X_OK));
  }),
  scenario('a descriptor keeps the access it was opened with', ['users'], async (fs) => {
    const { owner, stranger } = await users(fs);
    await owner.put('file', 'before');
    await owner.chmod('file', 0o666);
    const fd = await stranger.open('file', O_RDWR);

    await owner.chmod('file', 0o600);
    await stranger.write(fd, 0, 'AFTER!');

    expect(await owner.text('file')).toBe('AFTER!');
    await fails('EACCES', stranger.open('file', O_RDONLY));
  }),
  scenario('a change of mode binds other users at once', ['users'], async (fs) => {
    const { owner, stranger } = await users(fs);
    await owner.put('file', 'x');
    for (let round = 0; round < 20; round++) {
      await owner.chmod('file', 0o644);
      expect(await stranger.text('file')).toBe('x');
      await owner.chmod('file', 0o600);
      await fails('EACCES', stranger.open('file', O_RDONLY));
    }
  }),
];
