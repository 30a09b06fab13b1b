import { expect } from 'vitest';
import { XATTR_CREATE, XATTR_REPLACE } from '../file-api.ts';
import { type Scenario, scenario } from '../scenario.ts';
import { expectSameBytes, fails, pattern } from '../workplace.ts';

/** Extended attributes in the `user.` namespace: getxattr(2), setxattr(2), listxattr(2), removexattr(2). */
export const xattrScenarios: readonly Scenario[] = [
  scenario('an attribute is set, read, listed and removed, on a file and a folder', async (fs) => {
    await fs.put('file', 'x');
    await fs.mkdir('folder');
    for (const name of ['file', 'folder']) {
      await fs.setxattr(name, 'user.colour', 'blue');
      expect(Buffer.from(await fs.getxattr(name, 'user.colour')).toString()).toBe('blue');
      expect(await fs.listxattr(name)).toContain('user.colour');
      await fs.removexattr(name, 'user.colour');
      await fails('ENODATA', fs.getxattr(name, 'user.colour'));
      expect(await fs.listxattr(name)).not.toContain('user.colour');
    }
  }),
  scenario('a value may be any bytes, and none', async (fs) => {
    await fs.put('file');
    await fs.setxattr('file', 'user.bytes', Buffer.from([0, 1, 255, 0, 10]));
    await fs.setxattr('file', 'user.empty', '');

    expectSameBytes(await fs.getxattr('file', 'user.bytes'), Buffer.from([0, 1, 255, 0, 10]));
    expect((await fs.getxattr('file', 'user.empty')).byteLength).toBe(0);
  }),
  scenario('a value of 3,000 bytes is kept', async (fs) => {
    await fs.put('file');
    await fs.setxattr('file', 'user.large', pattern(3000));

    expectSameBytes(await fs.getxattr('file', 'user.large'), pattern(3000));
  }),
  scenario('setting again replaces the value', async (fs) => {
    await fs.put('file');
    await fs.setxattr('file', 'user.a', 'a long first value');
    await fs.setxattr('file', 'user.a', 'short');

    expect(Buffer.from(await fs.getxattr('file', 'user.a')).toString()).toBe('short');
  }),
  scenario('XATTR_CREATE is EEXIST where it exists, XATTR_REPLACE is ENODATA where it does not', async (fs) => {
    await fs.put('file');
    await fails('ENODATA', fs.setxattr('file', 'user.a', '1', XATTR_REPLACE));
    await fs.setxattr('file', 'user.a', '1', XATTR_CREATE);
    await fails('EEXIST', fs.setxattr('file', 'user.a', '2', XATTR_CREATE));
    await fs.setxattr('file', 'user.a', '3', XATTR_REPLACE);

    expect(Buffer.from(await fs.getxattr('file', 'user.a')).toString()).toBe('3');
  }),
  scenario('reading or removing an attribute that is not there is ENODATA', async (fs) => {
    await fs.put('file');

    await fails('ENODATA', fs.getxattr('file', 'user.none'));
    await fails('ENODATA', fs.removexattr('file', 'user.none'));
  }),
  scenario('attributes of nothing are ENOENT', async (fs) => {
    await fails('ENOENT', fs.getxattr('missing', 'user.a'));
    await fails('ENOENT', fs.setxattr('missing', 'user.a', '1'));
    await fails('ENOENT', fs.listxattr('missing'));
    await fails('ENOENT', fs.removexattr('missing', 'user.a'));
  }),
  scenario('many attributes are all listed', async (fs) => {
    await fs.put('file');
    const names = Array.from({ length: 40 }, (_, index) => `user.n${index}`);
    for (const name of names) await fs.setxattr('file', name, name);

    const listed = (await fs.listxattr('file')).filter((name) => name.startsWith('user.'));
    expect(listed.sort()).toEqual(names.sort());
  }),
  scenario('attributes go with the file on rename and stay over a rewrite', async (fs) => {
    await fs.put('file', 'x');
    await fs.setxattr('file', 'user.a', 'kept');
    await fs.put('file', 'rewritten');
    await fs.rename('file', 'moved');

    expect(Buffer.from(await fs.getxattr('moved', 'user.a')).toString()).toBe('kept');
  }),
  scenario('setting an attribute moves ctime and leaves mtime', async (fs) => {
    await fs.put('file', 'x');
    const before = await fs.stat('file');
    await fs.tick();

    await fs.setxattr('file', 'user.a', '1');

    const after = await fs.stat('file');
    expect(after.mtimeNs).toBe(before.mtimeNs);
    expect(after.ctimeNs).toBeGreaterThan(before.ctimeNs);
  }),
  scenario('user attributes of a symlink are refused with EPERM', ['process'], async (fs) => {
    await fs.symlink('nowhere', 'link');

    await fails('EPERM', fs.setxattr('link', 'user.a', '1'));
  }),
  scenario('a namespace with nothing behind it is EINVAL', async (fs) => {
    await fs.put('file');

    await fails('EINVAL', fs.setxattr('file', 'user.', 'value'));
    await fails('EINVAL', fs.getxattr('file', 'user.'));
    await fails('EINVAL', fs.removexattr('file', 'user.'));
  }),
  scenario('a namespace that does not exist is EOPNOTSUPP', ['process'], async (fs) => {
    await fs.put('file');

    await fails('EOPNOTSUPP', fs.setxattr('file', 'nonsense.a', '1'));
    await fails('EOPNOTSUPP', fs.getxattr('file', 'nonsense.a'));
  }),
  scenario('the length is told to an empty buffer, a short buffer is ERANGE', ['process'], async (fs) => {
    await fs.put('file');
    await fs.setxattr('file', 'user.a', '12345');

    expect(await fs.process.getxattrInto('file', 'user.a', 0)).toBe(5);
    await fails('ERANGE', fs.process.getxattrInto('file', 'user.a', 4));
    expect((await fs.process.getxattrInto('file', 'user.a', 5)) as Uint8Array).toHaveLength(5);
  }),
  scenario('a name of 256 bytes is ERANGE', ['process'], async (fs) => {
    await fs.put('file');

    await fails('ERANGE', fs.setxattr('file', `user.${'n'.repeat(251)}`, '1'));
    await fs.setxattr('file', `user.${'n'.repeat(250)}`, '1');
  }),
];
