import { expect } from 'vitest';
import { O_RDONLY } from '../file-api.ts';
import { type Scenario, scenario } from '../scenario.ts';
import type { Workplace } from '../workplace.ts';
import { fails } from '../workplace.ts';

async function fill(fs: Workplace, folder: string, count: number): Promise<string[]> {
  const names = Array.from({ length: count }, (_, index) => `entry-${String(index).padStart(5, '0')}`);
  await fs.putEmpty(within(folder, names));
  return names;
}

function within(folder: string, names: readonly string[]): string[] {
  return names.map((name) => `${folder}/${name}`);
}

function countsOf(names: readonly string[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

/** CI has 10,000, `npm run soak -- conformance` 100,000. */
const ENTRIES = Number(process.env.CFS_CONFORMANCE_ENTRIES ?? 1_000);
/** In a folder that changes while it is told: as many in soak, enough for several replies of the kernel otherwise. */
const CHANGING = ENTRIES > 10_000 ? ENTRIES : Math.min(ENTRIES, 3_000);
const REMOVED_WHILE_TOLD = Math.min(ENTRIES, 2_000);
/** More than the C library asks for at once (32 KiB). */
const KEPT_BY_THE_KERNEL = 1_500;
const STATED = Math.min(ENTRIES, 1_000);
const REMOVED_PER_ROUND = 100;
const TOLD_PER_ROUND = 200;

/** Folders: mkdir(2), rmdir(2), readdir(3) also while the folder changes. */
export const folderScenarios: readonly Scenario[] = [
  scenario('mkdir makes an empty folder with its mode', async (fs) => {
    await fs.mkdir('folder', 0o750);

    expect(await fs.stat('folder')).toMatchObject({ kind: 'folder', mode: 0o750 });
    expect(await fs.names('folder')).toEqual([]);
  }),
  scenario('mkdir of a name that exists is EEXIST, whatever it names', async (fs) => {
    await fs.mkdir('folder');
    await fs.put('file');
    await fs.symlink('nowhere', 'link');

    await fails('EEXIST', fs.mkdir('folder'));
    await fails('EEXIST', fs.mkdir('file'));
    await fails('EEXIST', fs.mkdir('link'));
  }),
  scenario('mkdir in a folder that does not exist is ENOENT, below a file ENOTDIR', async (fs) => {
    await fs.put('file');

    await fails('ENOENT', fs.mkdir('missing/folder'));
    await fails('ENOTDIR', fs.mkdir('file/folder'));
  }),
  scenario('rmdir removes an empty folder', async (fs) => {
    await fs.mkdir('folder');

    await fs.rmdir('folder');

    expect(await fs.names()).toEqual([]);
    await fails('ENOENT', fs.stat('folder'));
  }),
  scenario('rmdir of a folder with a file, a folder or a symlink in it is ENOTEMPTY', async (fs) => {
    await fs.mkdir('a');
    await fs.put('a/file');
    await fs.mkdir('b');
    await fs.mkdir('b/folder');
    await fs.mkdir('c');
    await fs.symlink('x', 'c/link');

    await fails('ENOTEMPTY', fs.rmdir('a'));
    await fails('ENOTEMPTY', fs.rmdir('b'));
    await fails('ENOTEMPTY', fs.rmdir('c'));
  }),
  scenario('rmdir works once the folder has been emptied', async (fs) => {
    await fs.mkdir('folder');
    await fs.put('folder/file', 'x');
    await fs.unlink('folder/file');

    await fs.rmdir('folder');

    expect(await fs.names()).toEqual([]);
  }),
  scenario('rmdir of a file or symlink is ENOTDIR, of nothing ENOENT', async (fs) => {
    await fs.put('file');
    await fs.mkdir('folder');
    await fs.symlink('folder', 'link');

    await fails('ENOTDIR', fs.rmdir('file'));
    await fails('ENOTDIR', fs.rmdir('link'));
    await fails('ENOENT', fs.rmdir('missing'));
  }),
  scenario('rmdir of the working directory leaves it empty and closed to new names', ['process'], async (fs) => {
    await fs.mkdir('folder');
    const fd = await fs.open('folder', O_RDONLY);
    await fs.rmdir('folder');

    expect((await fs.fstat(fd)).kind).toBe('folder');
    await fails('ENOENT', fs.put('folder/file'));
  }),
  scenario('a removed folder that a process works in is opened, and is empty', ['process'], async (fs) => {
    await fs.mkdir('folder');
    const fd = await fs.open('folder', O_RDONLY);
    await fs.rmdir('folder');

    // As `ls .` does in a folder that was removed.
    const stream = await fs.process.opendirAt(fd);
    expect(await fs.process.nextEntries(stream, 10)).toEqual([]);
    await fs.process.closedir(stream);
  }),
  scenario('readdir of a file is ENOTDIR, of nothing ENOENT', async (fs) => {
    await fs.put('file');

    await fails('ENOTDIR', fs.readdir('file'));
    await fails('ENOENT', fs.readdir('missing'));
  }),
  scenario('readdir tells every entry once, with its inode and kind', async (fs) => {
    await fs.put('file', 'x');
    await fs.mkdir('folder');
    await fs.symlink('file', 'link');

    const entries = await fs.readdir('');

    expect(entries.map(({ name }) => name).sort()).toEqual(['file', 'folder', 'link']);
    for (const { name, ino, kind } of entries) {
      const stat = await fs.lstat(name);
      expect(ino).toBe(stat.ino);
      expect([stat.kind, 'unknown']).toContain(kind);
    }
  }),
  scenario('a folder stream begins with . and .. and their inodes', ['process'], async (fs) => {
    await fs.mkdir('folder');
    const stream = await fs.process.opendir('folder');
    const entries = await fs.process.nextEntries(stream, 100);
    await fs.process.closedir(stream);

    const dots = Object.fromEntries(entries.map(({ name, ino }) => [name, ino]));
    expect(Object.keys(dots).sort()).toEqual(['.', '..']);
    expect(dots['.']).toBe((await fs.stat('folder')).ino);
    expect(dots['..']).toBe((await fs.stat('')).ino);
  }),
  scenario('a listing is up to date after each change', async (fs) => {
    for (let round = 0; round < 20; round++) {
      await fs.put(`file-${round}`);
      if (round >= 5) await fs.unlink(`file-${round - 5}`);
      if (round === 10) await fs.rename('file-10', 'renamed');
      if (round === 14) await fs.rename('renamed', 'file-10');

      const expected = Array.from({ length: 20 }, (_, index) => index)
        .filter((index) => index <= round && index > round - 5)
        .map((index) => (index === 10 && round < 14 ? 'renamed' : `file-${index}`));
      expect(await fs.names()).toEqual(expected.sort());
    }
  }),
  scenario(`${STATED.toLocaleString('en')} entries are listed, stat-ed and removed`, async (fs) => {
    await fs.mkdir('folder');
    const names = await fill(fs, 'folder', STATED);

    expect(await fs.names('folder')).toEqual(names);
    for (const name of names) expect((await fs.stat(`folder/${name}`)).kind).toBe('file');
    await fs.unlinkAll(within('folder', names));
    expect(await fs.names('folder')).toEqual([]);
  }),
  scenario(`${ENTRIES.toLocaleString('en')} entries are listed exactly once each, and all removed`, async (fs) => {
    await fs.mkdir('folder');
    const names = await fill(fs, 'folder', ENTRIES);

    const listed = (await fs.readdir('folder')).map(({ name }) => name);

    expect(listed.length).toBe(ENTRIES);
    expect(listed.sort()).toEqual(names);
    await fs.unlinkAll(within('folder', names));
    await fs.rmdir('folder');
  }),
  scenario('removing what a stream tells, while it tells it, empties the folder', ['process'], async (fs) => {
    await fs.mkdir('folder');
    await fill(fs, 'folder', REMOVED_WHILE_TOLD);
    const stream = await fs.process.opendir('folder');
    let removed = 0;
    for (;;) {
      const entries = await fs.process.nextEntries(stream, 50);
      if (entries.length === 0) break;
      const told = entries.map(({ name }) => name).filter((name) => name !== '.' && name !== '..');
      await fs.unlinkAll(within('folder', told));
      removed += told.length;
    }
    await fs.process.closedir(stream);

    expect(removed).toBe(REMOVED_WHILE_TOLD);
    expect(await fs.names('folder')).toEqual([]);
  }),
  scenario(
    'removing each entry that a directory stream returns empties the folder, although others list it before and meanwhile',
    ['process'],
    async (fs) => {
      await fs.mkdir('folder');
      await fill(fs, 'folder', KEPT_BY_THE_KERNEL);
      for (let time = 0; time < 2; time++) expect((await fs.names('folder')).length).toBe(KEPT_BY_THE_KERNEL);

      const stream = await fs.process.opendir('folder');
      let removed = 0;
      for (;;) {
        const [entry] = await fs.process.nextEntries(stream, 1);
        if (entry === undefined) break;
        if (entry.name === '.' || entry.name === '..') continue;
        await fs.unlink(`folder/${entry.name}`);
        if (++removed % REMOVED_PER_ROUND !== 0) continue;
        // Another reader from the start: what the kernel kept goes.
        const beside = await fs.process.opendir('folder');
        await fs.process.nextEntries(beside, 1);
        await fs.process.closedir(beside);
      }
      await fs.process.closedir(stream);

      expect(removed).toBe(KEPT_BY_THE_KERNEL);
      expect(await fs.names('folder')).toEqual([]);
    },
  ),
  scenario(
    'a stream tells all that stays once, whatever comes and goes, and again after seekdir',
    ['process'],
    async (fs) => {
      await fs.mkdir('folder');
      const names = await fill(fs, 'folder', CHANGING);
      const goes = names.filter((_, index) => index % 3 === 0);
      const gone = new Set(goes);
      const stream = await fs.process.opendir('folder');
      const told: string[] = [];
      let middle = { position: '', told: 0 };
      for (let round = 0; ; round++) {
        const entries = await fs.process.nextEntries(stream, TOLD_PER_ROUND);
        if (entries.length === 0) break;
        told.push(...entries.map(({ name }) => name));
        if (told.length < CHANGING / 2) middle = { position: await fs.process.telldir(stream), told: told.length };
        // A file system may tell what is added meanwhile; without a limit the stream would never end.
        if (round < 10) await fs.put(`folder/new-${round}`);
        await fs.unlinkAll(within('folder', goes.splice(0, REMOVED_PER_ROUND)));
      }
      await fs.process.seekdir(stream, middle.position);
      const again: string[] = [];
      for (;;) {
        const entries = await fs.process.nextEntries(stream, TOLD_PER_ROUND);
        if (entries.length === 0) break;
        again.push(...entries.map(({ name }) => name));
      }
      await fs.process.closedir(stream);

      const stays = names.filter((name) => !gone.has(name));
      const count = countsOf(told);
      expect(stays.filter((name) => count.get(name) !== 1)).toEqual([]);
      expect([...count].filter(([, times]) => times > 1)).toEqual([]);
      const before = new Set(told.slice(0, middle.told));
      const countAgain = countsOf(again);
      expect(stays.filter((name) => countAgain.get(name) !== (before.has(name) ? undefined : 1))).toEqual([]);
    },
  ),
  scenario('telldir and seekdir come back to the same entry', ['process'], async (fs) => {
    await fs.mkdir('folder');
    await fill(fs, 'folder', Math.min(ENTRIES, 500));
    const stream = await fs.process.opendir('folder');
    await fs.process.nextEntries(stream, 200);
    const position = await fs.process.telldir(stream);
    const rest = await fs.process.nextEntries(stream, 1000);

    await fs.process.seekdir(stream, position);

    const again = await fs.process.nextEntries(stream, 1000);
    expect(again.map(({ name }) => name)).toEqual(rest.map(({ name }) => name));
    await fs.process.closedir(stream);
  }),
  scenario('rewinddir shows what changed since the stream was opened', ['process'], async (fs) => {
    await fs.mkdir('folder');
    await fs.put('folder/old');
    const stream = await fs.process.opendir('folder');
    await fs.process.nextEntries(stream, 100);
    await fs.put('folder/new');
    await fs.unlink('folder/old');

    await fs.process.rewinddir(stream);

    const names = (await fs.process.nextEntries(stream, 100)).map(({ name }) => name);
    expect(names.sort()).toEqual(['.', '..', 'new']);
    await fs.process.closedir(stream);
  }),
  scenario('a stream of a folder that was removed ends without an error', ['process'], async (fs) => {
    await fs.mkdir('folder');
    const stream = await fs.process.opendir('folder');
    await fs.rmdir('folder');

    const names = (await fs.process.nextEntries(stream, 100)).map(({ name }) => name);

    expect(names.filter((name) => name !== '.' && name !== '..')).toEqual([]);
    await fs.process.closedir(stream);
  }),
  scenario('creating, removing and renaming a child moves mtime and ctime of the folder', async (fs) => {
    await fs.mkdir('folder');
    const changes = [
      () => fs.put('folder/file'),
      () => fs.rename('folder/file', 'folder/renamed'),
      () => fs.unlink('folder/renamed'),
      () => fs.mkdir('folder/child'),
      () => fs.rmdir('folder/child'),
      () => fs.symlink('x', 'folder/link'),
    ];
    for (const [index, change] of changes.entries()) {
      const before = await fs.stat('folder');
      await fs.tick();
      await change();
      const after = await fs.stat('folder');
      expect(after.mtimeNs, `mtime after change ${index}`).toBeGreaterThan(before.mtimeNs);
      expect(after.ctimeNs, `ctime after change ${index}`).toBeGreaterThan(before.ctimeNs);
    }
  }),
  scenario('writing into a child leaves the times of the folder alone', async (fs) => {
    await fs.mkdir('folder');
    await fs.put('folder/file', 'old');
    const before = await fs.stat('folder');
    await fs.tick();

    await fs.put('folder/file', 'new');
    await fs.chmod('folder/file', 0o600);

    expect((await fs.stat('folder')).mtimeNs).toBe(before.mtimeNs);
  }),
  scenario('moving a child moves the times of both folders', async (fs) => {
    await fs.mkdir('from');
    await fs.mkdir('to');
    await fs.put('from/file');
    const from = await fs.stat('from');
    const to = await fs.stat('to');
    await fs.tick();

    await fs.rename('from/file', 'to/file');

    expect((await fs.stat('from')).mtimeNs).toBeGreaterThan(from.mtimeNs);
    expect((await fs.stat('to')).mtimeNs).toBeGreaterThan(to.mtimeNs);
  }),
  scenario('the link count of a folder counts its subfolders', async (fs) => {
    await fs.mkdir('folder');
    expect((await fs.stat('folder')).nlink).toBe(2);

    await fs.mkdir('folder/one');
    await fs.mkdir('folder/two');
    await fs.put('folder/file');
    expect((await fs.stat('folder')).nlink).toBe(4);
    await fs.rmdir('folder/one');
    await fs.rename('folder/two', 'two');

    expect((await fs.stat('folder')).nlink).toBe(2);
  }),
  scenario('rm -r of a tree while it is listed leaves nothing', async (fs) => {
    for (const folder of ['t', 't/a', 't/b', 't/a/c', 't/a/c/d']) {
      await fs.mkdir(folder);
      for (let index = 0; index < 20; index++) await fs.put(`${folder}/f${index}`, 'x');
    }

    await fs.clear('t');

    expect(await fs.names()).toEqual([]);
  }),
];
