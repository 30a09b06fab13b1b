import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { StorageError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import { BLOCK_BYTES, type Inode, type ResourceUrl, ROOT_INODE, type VersionUrl } from '../../src/base/vocabulary.ts';
import { ContentStore } from '../../src/bytes/content-store.ts';
import { concernsOneFile, exportCommand } from '../../src/cli/commands/export.ts';
import { pathsOf } from '../../src/config/paths.ts';
import { NoMountError } from '../../src/control/client.ts';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { Store } from '../../src/store/environment.ts';
import { writeNode } from '../../src/store/node-table.ts';
import { sampleLocal, sampleNode } from '../store/sample-records.ts';
import { answeringMount } from './answering-mount.ts';
import { CommandHome } from './cli-harness.ts';

let home: CommandHome;

beforeEach(() => {
  home = new CommandHome();
});

afterEach(() => home.dispose());

const SIZE = 3 * BLOCK_BYTES;
const CHANGES = [
  { at: 5, text: 'mine' },
  { at: BLOCK_BYTES - 2, text: 'over the edge' },
  { at: SIZE - 1, text: '.' },
];

/** A file of which nothing is here but what was written into it. */
async function fillStore(directory: string): Promise<void> {
  mkdirSync(directory, { recursive: true });
  const store = await Store.open({ directory, clock: systemClock, log: silentLogger });
  const options = { inlineMaxBytes: 4096, cacheBytes: 1e9 };
  const contents = new ContentStore({ store, directory, clock: systemClock, log: silentLogger, options });
  store.transact((tx) => {
    const local = sampleLocal(ROOT_INODE, '');
    writeNode(tx, undefined, sampleNode(ROOT_INODE, { kind: 'folder', localOnly: true, local }), 0);
    const file = 'https://service.example/file/1';
    const base = contents.versionContent(tx, `${file}/version/1` as VersionUrl, file as ResourceUrl, SIZE);
    const content = contents.createDraft(tx, { content: base, sizeBytes: SIZE });
    const ino = tx.nextId('inode') as Inode;
    const changed = sampleLocal(ROOT_INODE, 'letter', { content, sizeBytes: SIZE });
    writeNode(tx, undefined, { ...sampleNode(ino), local: changed }, 0);
    for (const { at, text } of CHANGES) contents.write(content, at, Buffer.from(text));
    contents.flush(tx, content);
  });
  contents.close();
  await store.close();
}

test('every changed byte is in the copy, even if the rest of its block is not here', async () => {
  await fillStore(home.plantAccount().storeDirectory);
  const directory = home.path('copy');
  const { code, warned } = await exported(directory);

  const wanted = Buffer.alloc(SIZE);
  for (const { at, text } of CHANGES) wanted.write(text, at);
  expect(Buffer.compare(readFileSync(join(directory, 'letter')), wanted)).toBe(0);
  expect(warned).toMatch(/^letter: .* of 384 KiB are not on this machine: zeros instead\n$/);
  expect(code).toBe(exitCode('store'));
});

/** [S-damage-2] */
test('files deeper than the longest possible path are copied', async () => {
  const directory = home.plantAccount().storeDirectory;
  mkdirSync(directory, { recursive: true });
  const store = await Store.open({ directory, clock: systemClock, log: silentLogger });
  const options = { inlineMaxBytes: 4096, cacheBytes: 1e9 };
  const contents = new ContentStore({ store, directory, clock: systemClock, log: silentLogger, options });
  store.transact((tx) => {
    writeNode(
      tx,
      undefined,
      sampleNode(ROOT_INODE, { kind: 'folder', localOnly: true, local: sampleLocal(ROOT_INODE, '') }),
      0,
    );
    let parent: Inode = ROOT_INODE;
    for (let depth = 0; depth < 250; depth++) {
      const ino = tx.nextId('inode') as Inode;
      writeNode(tx, undefined, sampleNode(ino, { kind: 'folder', local: sampleLocal(parent, 'd'.repeat(240)) }), 0);
      parent = ino;
    }
    const content = contents.inlineContent(tx, Buffer.from('deep'));
    const ino = tx.nextId('inode') as Inode;
    writeNode(
      tx,
      undefined,
      { ...sampleNode(ino), local: sampleLocal(parent, 'letter', { content, sizeBytes: 4 }) },
      0,
    );
  });
  contents.close();
  await store.close();

  const { code, warned } = await exported(home.path('copy'));

  expect([code, warned]).toEqual([exitCode('ok'), '']);
  const found = execFileSync('find', ['.', '-name', 'letter', '-execdir', 'cat', '{}', ';'], {
    cwd: home.path('copy'),
  });
  expect(found.toString()).toBe('deep');
  execFileSync('rm', ['-rf', 'copy'], { cwd: home.path('.') });
});

test('a file with a damaged row is named, and all other files are copied', async () => {
  const { storeDirectory } = home.plantAccount();
  await fillStore(storeDirectory);
  const store = await Store.open({ directory: storeDirectory, clock: systemClock, log: silentLogger });
  const damaged = store.transact((tx) => {
    const ino = tx.nextId('inode') as Inode;
    const local = sampleLocal(ROOT_INODE, 'garbled', { sizeBytes: 0 });
    writeNode(tx, undefined, { ...sampleNode(ino), local }, 0);
    return ino;
  });
  await store.close();
  const index = join(storeDirectory, 'index', 'data.mdb');
  const bytes = readFileSync(index);
  for (let at = bytes.indexOf('garbled'); at >= 0; at = bytes.indexOf('garbled', at)) bytes.write('mangled', at);
  writeFileSync(index, bytes);
  const { code, warned } = await exported(home.path('copy'));

  expect(code).toBe(exitCode('store'));
  expect(warned).toContain(`inode ${damaged}: not copied: the store is damaged: row node ${damaged}`);
  expect(readFileSync(home.path('copy/letter')).subarray(5, 9).toString()).toBe('mine');
});

/** [S-export-1] */
test('a file that cannot be copied is named, and all other files are copied', async () => {
  const { storeDirectory } = home.plantAccount();
  await fillStore(storeDirectory);
  const long = 'long'.repeat(70); // as a stick refuses `a:b`: with another errno, at the same place
  await addFiles(storeDirectory, long, 'after it');
  const { code, warned } = await exported(home.path('copy'));

  expect(readdirSync(home.path('copy'))).toEqual(['after it', 'letter']);
  expect(warned).toContain(`\n${long}: not copied: ENAMETOOLONG: name too long, open '`);
  expect(code).toBe(exitCode('store'));
});

test('a place of the copies that takes nothing at all ends the export', async () => {
  const { storeDirectory } = home.plantAccount();
  await fillStore(storeDirectory);
  await addFiles(storeDirectory, 'after it');
  writeFileSync(home.path('file'), '');

  await expect(exported(home.path('file/copy'))).rejects.toMatchObject({ code: 'ENOTDIR' });
});

test('a place of the copies that leads into the mount by a link is refused', async () => {
  const { name } = home.plantAccount();
  const directory = home.path('mounted');
  mkdirSync(directory);
  symlinkSync('mounted', home.path('Cloud'));
  await answeringMount(home, { name, directory }, { unsynced: () => ({ files: [], next: null }) });

  for (const place of ['Cloud', 'Cloud/copy'])
    await expect(exported(home.path(place))).rejects.toThrow('is inside the mount');
});

test.each([40, 200])(
  'a file that is %i bytes long by the time it is copied, and was 100 when it was listed, is copied as it is',
  async (length) => {
    const { name } = home.plantAccount();
    const directory = home.path('mounted');
    mkdirSync(directory);
    writeFileSync(join(directory, 'letter'), Buffer.alloc(length, 'a'));
    const files = [{ ino: 7, path: 'letter', kind: 'file', sizeBytes: 100, parked: null }];
    await answeringMount(home, { name, directory }, { unsynced: () => ({ files, next: null }) } as never);

    await exported(home.path('copy'));
    expect(readFileSync(home.path('copy/letter'), 'utf8')).toBe('a'.repeat(length));
  },
);

test.each([
  ['a name that the place does not take', error('EINVAL'), true],
  ['a file that may not be read', error('EACCES'), true],
  ['a full disk', error('ENOSPC'), false],
  ['a quota that is used up', error('EDQUOT'), false],
  ['a mount that died meanwhile', error('ENOTCONN'), false],
  ['damage in the store', new StorageError('damaged'), true],
  ['a mount that ended meanwhile', new NoMountError('ENOENT', 'gone'), false],
  ['a defect of ours', new TypeError('x is undefined'), false],
])('%s: whether the other files are copied all the same', (_what, thrown, isSo) => {
  expect(concernsOneFile(thrown)).toBe(isSo);
});

/** As Node throws it, which has no name for EDQUOT. */
function error(name: keyof typeof constants.errno): Error {
  const code = name === 'EDQUOT' ? 'UNKNOWN' : name;
  return Object.assign(new Error(code), { code, errno: -constants.errno[name], syscall: 'write' });
}

/** Empty ones, in this order. */
async function addFiles(directory: string, ...names: readonly string[]): Promise<void> {
  const store = await Store.open({ directory, clock: systemClock, log: silentLogger });
  store.transact((tx) => {
    for (const name of names) {
      const ino = tx.nextId('inode') as Inode;
      writeNode(tx, undefined, { ...sampleNode(ino), local: sampleLocal(ROOT_INODE, name) }, 0);
    }
  });
  await store.close();
}

async function exported(directory: string): Promise<{ readonly code: number; readonly warned: string }> {
  let warned = '';
  const warn = (text: string): void => {
    warned += text;
  };
  const deps = { paths: pathsOf(home.env), clock: systemClock, print: () => {}, redraw: null, warn };
  return { code: await exportCommand(deps, { directory, account: null }), warned };
}
