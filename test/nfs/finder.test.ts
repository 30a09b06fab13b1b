import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { NfsServer } from '../../src/nfs/nfs-server.ts';
import { STATUS } from '../../src/nfs/protocol.ts';
import { AssembledMount } from '../harness/assembled-mount.ts';
import { MemoryService } from '../remote/memory-service.ts';
import { NfsClient } from './nfs-client.ts';

// Finder's calls in the order of Apple's NFS client, over a whole mount. The assertions are about what the service holds afterwards.

const COMPOSED = 'caf\u00e9';
const DECOMPOSED = 'cafe\u0301';
/** The pieces that Apple's client writes. */
const PIECE_BYTES = 32 * 1024;
const PROBES = [
  '.DS_Store',
  '.localized',
  '.hidden',
  '._.',
  '.metadata_never_index',
  '.ql_disablethumbnails',
  'Contents',
];
const NOENT = { status: STATUS.noent };
const EXIST = { status: STATUS.exist };

let service: MemoryService;
let assembled: AssembledMount;
let server: NfsServer;
let client: NfsClient;
let root: Buffer;

beforeEach(() => serve('darwin'));

async function serve(platform: NodeJS.Platform): Promise<void> {
  service = new MemoryService();
  assembled = await AssembledMount.build(service);
  server = await NfsServer.start(
    assembled.parts.mounted,
    { readOnly: false, allowOther: false },
    { log: silentLogger, clock: systemClock, platform },
  );
  client = await NfsClient.connect(server.exported.port);
  root = await client.mnt(server.exported.path);
  server.admit();
  assembled.parts.mounted.init?.(server.invalidator);
}

afterEach(async () => {
  client.close();
  await server.close();
  await assembled.close();
});

/** The paths of everything that the service holds, with the numbers of versions of files. */
async function held(): Promise<Record<string, number | null>> {
  await server.opens.settle();
  await assembled.converge();
  const paths: Record<string, number | null> = {};
  const walk = async (folder: ResourceUrl, path: string): Promise<void> => {
    for (const { url, name, kind } of await service.list(folder)) {
      paths[path + name] = kind === 'folder' ? null : (await service.versions(url)).length;
      if (kind === 'folder') await walk(url, `${path + name}/`);
    }
  };
  await walk((await service.user()).home, '');
  return paths;
}

async function localNames(folder: Buffer): Promise<string[]> {
  return (await client.names(folder)).filter((name) => name !== '.' && name !== '..').sort();
}

/** What Finder asks when it opens a window. */
async function browse(folder: Buffer): Promise<void> {
  for (const probe of PROBES) await expect(client.lookup(folder, probe)).rejects.toMatchObject(NOENT);
  for (const name of (await client.entries(folder)).keys()) {
    if (name === '.' || name === '..') continue;
    await client.access(await client.lookup(folder, name));
    await client.lookup(folder, `._${name}`).catch(() => null);
  }
}

/** A file that is dragged into a window: exclusive creation, its `._*` file, the bytes, and then mode and time. */
async function dragIn(folder: Buffer, name: string, bytes: Buffer): Promise<Buffer> {
  await expect(client.lookup(folder, name)).rejects.toMatchObject(NOENT);
  const file = await client.create(folder, name, Buffer.from('verifier'));
  await client.setattr(file, { mode: 0o600 });
  const double = await client.create(folder, `._${name}`, Buffer.from('another.'));
  await client.write(double, 0, `tags of ${name}`, 2);
  for (let at = 0; at < bytes.byteLength; at += PIECE_BYTES)
    await client.write(file, at, bytes.subarray(at, at + PIECE_BYTES));
  await client.commit(file);
  await client.setattr(file, { mtime: { sec: 1_600_000_000, nsec: 0 } });
  await client.setattr(file, { mode: 0o644 });
  return file;
}

async function textOf(file: Buffer): Promise<string> {
  return (await client.read(file, 0, 1_000)).bytes.toString();
}

describe('Finder', () => {
  test('a file that is dragged in reaches the service once, without its `._*` file', async () => {
    const bytes = Buffer.alloc(100_000, 'bytes ');
    await browse(root);
    const file = await dragIn(root, 'picture.jpg', bytes);
    await client.create(root, '.DS_Store', Buffer.from('verifier'));

    expect(await held()).toEqual({ 'picture.jpg': 1 });
    expect(await localNames(root)).toEqual(['.DS_Store', '._picture.jpg', 'picture.jpg']);
    expect((await client.read(file, 0, 200_000)).bytes.equals(bytes)).toBe(true);
    expect(await client.getattr(file)).toMatchObject({ mode: 0o644, mtime: { sec: 1_600_000_000 } });
  });

  test('a folder is created in a folder that was renamed meanwhile, by its old handle', async () => {
    const folder = await client.mkdir(root, 'untitled folder');
    await client.rename(root, 'untitled folder', root, 'trip');
    await browse(folder);
    await client.mkdir(folder, 'untitled folder');

    expect(await held()).toEqual({ trip: null, 'trip/untitled folder': null });
  });

  test('a save by way of a folder beside the file is a version of that file', async () => {
    await dragIn(root, 'letter.txt', Buffer.from('first'));
    await held();

    const aside = await client.mkdir(root, 'letter.txt.sb-1a2b3c4d-5e6f7g');
    const saved = await client.create(aside, 'letter.txt', Buffer.from('verifier'));
    await client.write(saved, 0, 'second');
    await client.commit(saved);
    await client.rename(aside, 'letter.txt', root, 'letter.txt');
    await client.rmdir(root, 'letter.txt.sb-1a2b3c4d-5e6f7g');

    expect(await held()).toEqual({ 'letter.txt': 2 });
    expect(await textOf(await client.lookup(root, 'letter.txt'))).toBe('second');
  });

  test('a file that is removed while it is open keeps its bytes, and its `._*` file goes', async () => {
    const file = await dragIn(root, 'film.mov', Buffer.from('frames'));
    await held();
    await client.rename(root, 'film.mov', root, '.nfs.20051001.0001');

    expect(await localNames(root)).toEqual([]);
    expect(await textOf(file)).toBe('frames');
    await client.remove(root, '.nfs.20051001.0001');
  });

  test('a glance at the head of a picture reads only that', async () => {
    const bytes = Buffer.from(Array.from({ length: 70_000 }, (_, at) => at % 251));
    const file = await dragIn(root, 'picture.jpg', bytes);

    expect((await client.read(file, 0, 4_096)).bytes.equals(bytes.subarray(0, 4_096))).toBe(true);
    expect(await client.read(file, 69_990, 4_096)).toEqual({ bytes: bytes.subarray(69_990), isEnd: true });
  });
});

describe('`._*` files', () => {
  test('follow a rename', async () => {
    await dragIn(root, 'old', Buffer.from('bytes'));
    const folder = await client.mkdir(root, 'folder');
    await client.rename(root, 'old', folder, 'new');

    expect(await localNames(root)).toEqual(['folder']);
    expect(await localNames(folder)).toEqual(['._new', 'new']);
    expect(await textOf(await client.lookup(folder, '._new'))).toBe('tags of old');
  });

  test('are replaced or removed with a file that is replaced', async () => {
    await dragIn(root, 'one', Buffer.from('bytes'));
    await dragIn(root, 'two', Buffer.from('bytes'));
    await client.rename(root, 'one', root, 'two');
    expect(await textOf(await client.lookup(root, '._two'))).toBe('tags of one');

    await client.create(root, 'plain');
    await client.rename(root, 'plain', root, 'two');
    expect(await localNames(root)).toEqual(['two']);
  });

  test('go with a file, and with a folder', async () => {
    await dragIn(root, 'file', Buffer.from('bytes'));
    await client.mkdir(root, 'folder');
    await client.create(root, '._folder');
    await client.remove(root, 'file');
    await client.rmdir(root, 'folder');

    expect(await localNames(root)).toEqual([]);
  });

  test('go with a file that another machine deletes', async () => {
    await dragIn(root, 'file', Buffer.from('bytes'));
    await dragIn(root, 'other', Buffer.from('bytes'));
    await held();
    const [gone] = (await service.list((await service.user()).home)).filter(({ name }) => name === 'file');
    if (gone === undefined) throw new Error('the file was not pushed');
    await service.deleteForever(gone.url);
    await assembled.parts.freshness.refresh();

    await expect.poll(() => localNames(root)).toEqual(['._other', 'other']);
  });

  test('stay beside their file for a client that does not know them', async () => {
    client.close();
    await server.close();
    await assembled.close();
    await serve('linux');
    await dragIn(root, 'old', Buffer.from('bytes'));
    await client.rename(root, 'old', root, 'new');
    await client.remove(root, 'new');

    expect(await localNames(root)).toEqual(['._old']);
  });
});

describe('composed and decomposed names', () => {
  test.each([
    [COMPOSED, DECOMPOSED],
    [DECOMPOSED, COMPOSED],
  ])('%j is found as %j, and a listing has the bytes of its creation', async (made, asked) => {
    const file = await client.create(root, made);

    expect(await client.lookup(root, asked)).toEqual(file);
    expect(await localNames(root)).toEqual([made]);
    expect(await held()).toEqual({ [made]: 1 });
  });

  test('a second file whose name differs only in that is EXIST', async () => {
    await client.create(root, COMPOSED);
    const folder = await client.mkdir(root, `${COMPOSED}s`);

    await expect(client.create(root, DECOMPOSED)).rejects.toMatchObject(EXIST);
    await expect(client.mkdir(root, `${DECOMPOSED}s`)).rejects.toMatchObject(EXIST);
    await expect(client.symlink(root, DECOMPOSED, 'target')).rejects.toMatchObject(EXIST);
    expect(await localNames(folder)).toEqual([]);
  });

  test('the other form renames, replaces and removes the file', async () => {
    const file = await client.create(root, COMPOSED);
    await client.rename(root, DECOMPOSED, root, 'plain');
    expect(await localNames(root)).toEqual(['plain']);

    await client.create(root, COMPOSED);
    await client.rename(root, 'plain', root, DECOMPOSED);
    expect(await localNames(root)).toEqual([COMPOSED]);
    expect(await client.lookup(root, COMPOSED)).toEqual(file);

    await client.remove(root, DECOMPOSED);
    await client.mkdir(root, COMPOSED);
    await client.rmdir(root, DECOMPOSED);
    expect(await localNames(root)).toEqual([]);
  });

  test('a name whose decomposed form is longer than 255 bytes is looked up as it is', async () => {
    await expect(client.lookup(root, '\u00e9'.repeat(127))).rejects.toMatchObject(NOENT);
  });

  test('two files of the service that differ only in that are each found by their own name', async () => {
    const { home } = await service.user();
    for (const name of [COMPOSED, DECOMPOSED]) await service.createFolder(home, name);
    await assembled.parts.freshness.refresh();

    expect(await localNames(root)).toEqual([COMPOSED, DECOMPOSED].sort());
    expect(await client.lookup(root, COMPOSED)).not.toEqual(await client.lookup(root, DECOMPOSED));
  });
});
