import { expect } from 'vitest';
import { O_CREAT, O_RDONLY, O_RDWR, O_WRONLY } from '../file-api.ts';
import { type Scenario, scenario } from '../scenario.ts';
import { fails, type Workplace } from '../workplace.ts';

/** Every call that takes a path, on a path that leads through something it cannot pass. */
const CALLS: Readonly<Record<string, (fs: Workplace, path: string) => Promise<unknown>>> = {
  open: (fs, path) => fs.open(path, O_RDONLY),
  'open with O_CREAT': (fs, path) => fs.open(path, O_WRONLY | O_CREAT),
  stat: (fs, path) => fs.stat(path),
  lstat: (fs, path) => fs.lstat(path),
  readdir: (fs, path) => fs.readdir(path),
  truncate: (fs, path) => fs.truncate(path, 0),
  mkdir: (fs, path) => fs.mkdir(path),
  rmdir: (fs, path) => fs.rmdir(path),
  unlink: (fs, path) => fs.unlink(path),
  'rename from': (fs, path) => fs.rename(path, 'elsewhere'),
  'rename to': (fs, path) => fs.rename('file', path),
  symlink: (fs, path) => fs.symlink('target', path),
  readlink: (fs, path) => fs.readlink(path),
  chmod: (fs, path) => fs.chmod(path, 0o600),
  chown: (fs, path) => fs.chown(path, -1, -1),
  utimes: (fs, path) => fs.utimes(path, 1n, 2n),
  statfs: (fs, path) => fs.statfs(path),
  getxattr: (fs, path) => fs.getxattr(path, 'user.name'),
  setxattr: (fs, path) => fs.setxattr(path, 'user.name', 'value'),
  listxattr: (fs, path) => fs.listxattr(path),
  removexattr: (fs, path) => fs.removexattr(path, 'user.name'),
  access: (fs, path) => fs.process.access(path, 0),
  mknod: (fs, path) => fs.process.mknod(path, 0o100644),
  'link to': (fs, path) => fs.link('file', path),
};

const SOMEBODY = { uid: 12_345, gid: 12_345 };

/** What stands in the way, and what every call says to it. */
const WAYS: readonly {
  readonly what: string;
  readonly errno: string;
  /** @returns the path behind it */
  prepare(fs: Workplace): Promise<string>;
}[] = [
  { what: 'a folder that is not there', errno: 'ENOENT', prepare: async () => 'missing/name' },
  { what: 'a file', errno: 'ENOTDIR', prepare: async () => 'file/name' },
  {
    what: 'a symlink that leads nowhere',
    errno: 'ENOENT',
    prepare: async (fs) => {
      await fs.symlink('nowhere', 'dangling');
      return 'dangling/name';
    },
  },
  {
    what: 'symlinks in a circle',
    errno: 'ELOOP',
    prepare: async (fs) => {
      await fs.symlink('two', 'one');
      await fs.symlink('one', 'two');
      return 'one/name';
    },
  },
  { what: 'a name of 256 bytes', errno: 'ENAMETOOLONG', prepare: async () => `${'n'.repeat(256)}/name` },
];

/** Operation × errno, as far as the way to the name decides it. */
const onTheWay: readonly Scenario[] = WAYS.flatMap(({ what, errno, prepare }) =>
  Object.entries(CALLS).map(([call, run]) =>
    scenario(`${call} through ${what} is ${errno}`, ['process'], async (fs) => {
      await fs.put('file', 'kept');
      const path = await prepare(fs);

      await fails(errno, run(fs, path));

      expect(await fs.text('file')).toBe('kept');
    }),
  ),
);

const unsearchable: readonly Scenario[] = Object.entries(CALLS)
  // link(2) is another matter: it is EPERM here before anybody looks at the path (documented-differences.ts).
  .filter(([call]) => call !== 'link to')
  .map(([call, run]) =>
    scenario(`${call} in a folder that may not be searched is EACCES`, ['process', 'users'], async (fs) => {
      await fs.chmod('', 0o777);
      await fs.mkdir('closed', 0o777);
      await fs.put('closed/name', 'kept');
      await fs.chmod('closed', 0o666);
      const other = await fs.another(SOMEBODY);
      await other.put('file', '');

      await fails('EACCES', run(other, 'closed/name'));

      await fs.chmod('closed', 0o777);
      expect(await fs.text('closed/name')).toBe('kept');
    }),
  );

const unwritable: readonly Scenario[] = (
  [
    ['open with O_CREAT', (fs) => fs.open('closed/new', O_RDWR | O_CREAT)],
    ['mkdir', (fs) => fs.mkdir('closed/new')],
    ['symlink', (fs) => fs.symlink('x', 'closed/new')],
    ['mknod', (fs) => fs.process.mknod('closed/new', 0o100644)],
    ['unlink', (fs) => fs.unlink('closed/file')],
    ['rmdir', (fs) => fs.rmdir('closed/folder')],
    ['rename from', (fs) => fs.rename('closed/file', 'moved')],
    ['rename to', (fs) => fs.rename('mine', 'closed/new')],
    ['rename over', (fs) => fs.rename('mine', 'closed/file')],
  ] satisfies [string, (fs: Workplace) => Promise<unknown>][]
).map(([call, run]) =>
  scenario(`${call} in a folder that may not be written is EACCES`, ['process', 'users'], async (fs) => {
    await fs.chmod('', 0o777);
    await fs.mkdir('closed', 0o755);
    await fs.put('closed/file', 'kept', 0o666);
    await fs.mkdir('closed/folder', 0o777);
    const other = await fs.another(SOMEBODY);
    await other.put('mine', 'mine');

    await fails('EACCES', run(other));

    expect(await fs.names('closed')).toEqual(['file', 'folder']);
    expect(await fs.text('mine')).toBe('mine');
  }),
);

const rest: readonly Scenario[] = [
  scenario('rmdir of . is EINVAL, of .. ENOTEMPTY', ['process'], async (fs) => {
    await fs.mkdir('folder');
    await fs.mkdir('folder/inner');

    await fails('EINVAL', fs.rmdir('folder/.'));
    await fails('ENOTEMPTY', fs.rmdir('folder/inner/..'));

    expect(await fs.names('folder')).toEqual(['inner']);
  }),
  scenario('rename of . or .. is EBUSY or EINVAL, and nothing moves', ['process'], async (fs) => {
    await fs.mkdir('folder');

    await fails(['EBUSY', 'EINVAL'], fs.rename('folder/.', 'other'));
    await fails(['EBUSY', 'EINVAL'], fs.rename('folder/..', 'other'));
    await fails(['EBUSY', 'EINVAL', 'ENOTEMPTY', 'EEXIST'], fs.rename('folder', 'folder/..'));

    expect(await fs.names()).toEqual(['folder']);
  }),
  scenario('moving a folder of somebody else to another parent is EACCES', ['process', 'users'], async (fs) => {
    // Its `..` changes, so one has to be allowed to write into it, not only into both parents.
    await fs.mkdir('from', 0o777);
    await fs.chmod('from', 0o777);
    await fs.mkdir('to', 0o777);
    await fs.chmod('to', 0o777);
    await fs.mkdir('from/folder', 0o755);
    const other = await fs.another(SOMEBODY);

    await fails('EACCES', other.rename('from/folder', 'to/folder'));
    await other.rename('from/folder', 'from/renamed');

    expect(await fs.names('from')).toEqual(['renamed']);
  }),
  scenario('in a sticky folder nobody replaces what belongs to another', ['process', 'users'], async (fs) => {
    await fs.mkdir('sticky', 0o777);
    await fs.chmod('sticky', 0o1777);
    await fs.put('sticky/theirs', 'kept', 0o666);
    const other = await fs.another(SOMEBODY);
    await other.put('sticky/mine', 'mine');

    await fails('EPERM', other.rename('sticky/mine', 'sticky/theirs'));

    expect(await fs.text('sticky/theirs')).toBe('kept');
  }),
  scenario(
    'a file that may not be read is EACCES to open and to copy, and its size is told',
    ['process', 'users'],
    async (fs) => {
      await fs.chmod('', 0o777);
      await fs.put('secret', 'bytes', 0o600);
      await fs.chmod('secret', 0o600);
      const other = await fs.another(SOMEBODY);

      await fails('EACCES', other.open('secret', O_RDONLY));
      await fails('EACCES', other.truncate('secret', 0));
      await fails('EACCES', other.getxattr('secret', 'user.x'));

      expect((await other.stat('secret')).sizeBytes).toBe(5);
    },
  ),
];

export const errnoScenarios: readonly Scenario[] = [...onTheWay, ...unsearchable, ...unwritable, ...rest];
