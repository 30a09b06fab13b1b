import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { ApiError, TransportError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { Pins } from '../../src/fs/pins.ts';
import { SyncedSide } from '../harness/synced-side.ts';
import { MODEL_ROOT } from './model-service.ts';

/** The service gives what is moved a new address (301): the old one is nobody's from then on, or leads to the new one. */

const NEW = 'm:file/url-change' as ResourceUrl;
const NEW_FOLDER = 'm:folder/url-change' as ResourceUrl;
let synced: SyncedSide;
let from: ResourceUrl;
let to: ResourceUrl;
let file: ResourceUrl;

beforeEach(async () => {
  synced = await SyncedSide.build();
  const { service, side, mount } = synced;
  from = service.add('folder', MODEL_ROOT, 'from');
  to = service.add('folder', MODEL_ROOT, 'to');
  file = service.add('file', from, 'f', Buffer.from('old'));
  await side.freshness.refresh();
  await mount.readFile('from/f');
  await mount.readdir('to');
});
afterEach(() => synced.close());

function moveThere(name: string, parent: ResourceUrl): void {
  const { service } = synced;
  const it = service.resources.get(file);
  if (it === undefined) throw new ApiError(404, 'model', 'gone');
  service.resources.delete(file);
  service.resources.set(NEW, { ...it, url: NEW, name, parent });
}

/** Renamed here; the service has done it, and its answer is on its way. `404`: asked for again, it knows nothing of the old address. */
async function moved(heard: 'answer' | 'nothing' | '404'): Promise<() => void> {
  const { service, mount } = synced;
  let arrive: (() => void) | null = null;
  service.relocate = async (_url, _kind, parent, name) => {
    moveThere(name, parent);
    await new Promise<void>((resolve) => {
      arrive = resolve;
    });
    if (heard === 'nothing') throw new TransportError('the reply was lost');
    if (heard === '404') throw new ApiError(404, 'relocate', 'no such file');
    return NEW;
  };
  await mount.rename('from/f', 'to/f');
  for (let round = 0; round < 20 && arrive === null; round++) await synced.pass(2_000);
  if (arrive === null) throw new Error('nobody moves it');
  return arrive;
}

/** Whoever asks for the old address is told what is under the new one, and that it is there. */
function followed(): void {
  const { service } = synced;
  const look = service.look.bind(service);
  service.look = (url) => look(url === file && service.resources.has(NEW) ? NEW : url);
}

async function settled(): Promise<void> {
  for (let round = 0; round < 20; round++) await synced.pass(10_000);
  for (let round = 0; round < 3; round++) {
    await synced.pass(60_000);
    await synced.side.freshness.refresh();
  }
}

describe('a file stays one file', () => {
  test('a moved file stays one file if a listing comes before the response to the move', async () => {
    const { side, mount, sync } = synced;
    const arrive = await moved('answer');
    await side.freshness.refresh(side.store.get('resource', to));
    arrive();
    await settled();

    expect.soft(sync.status().parked).toEqual([]);
    expect((await mount.readdir('to')).map(({ name }) => name)).toEqual(['f']);
  });

  test.each(['nothing', '404'] as const)(
    'a moved file whose response is lost (%s) and that was changed meanwhile stays one file',
    async (heard) => {
      const { service, mount } = synced;
      const arrive = await moved(heard);
      await mount.writeFile('to/f', Buffer.from('ours'));
      arrive();
      await settled();
      expect(service.history(NEW)).toHaveLength(2);

      expect([...service.tree()]).toEqual([
        ['/from', null],
        ['/to', null],
        ['/to/f', 'ours'],
      ]);
    },
  );

  test('a moved file stays one file if its response is lost, the retry gets a 404 and its folder has another address', async () => {
    const { service, mount, sync } = synced;
    const { ino } = await mount.stat('from/f');
    const arrive = await moved('404');
    const relocateFile = service.relocate;
    service.relocate = async (url, kind, parent, name, signal) => {
      const it = service.resources.get(url);
      if (url !== to || it === undefined) return await relocateFile(url, kind, parent, name, signal);
      service.resources.delete(to);
      service.resources.set(NEW_FOLDER, { ...it, url: NEW_FOLDER, name, parent });
      for (const child of service.resources.values()) if (child.parent === to) child.parent = NEW_FOLDER;
      return NEW_FOLDER;
    };
    await mount.rename('to', 'renamed');
    for (let round = 0; round < 5; round++) await synced.pass(2_000);
    expect(service.resources.has(NEW_FOLDER)).toBe(true);
    arrive();
    for (let round = 0; round < 5; round++) await synced.pass(10_000);

    expect((await mount.stat('renamed/f')).ino).toBe(ino);
    await settled();
    expect(sync.status()).toMatchObject({ pending: 0, parked: [] });
    expect((await mount.stat('renamed/f')).ino).toBe(ino);
    expect(await mount.readdir('renamed')).toHaveLength(1);
  });

  test('a moved file whose response is lost stays one file if its old address redirects to the new one', async () => {
    const { service, mount, sync } = synced;
    const { ino } = await mount.stat('from/f');
    followed();
    const arrive = await moved('nothing');
    await mount.writeFile('to/f', Buffer.from('ours'));
    arrive();
    await settled();

    expect(sync.status()).toMatchObject({ pending: 0, parked: [] });
    expect(service.history(NEW)).toHaveLength(2);
    expect((await mount.stat('to/f')).ino).toBe(ino);
  });

  test('a moved file stays one file if its response is lost and another client replaced it by another file', async () => {
    const { service, mount, sync } = synced;
    const arrive = await moved('nothing');
    await mount.writeFile('to/f', Buffer.from('ours'));
    service.resources.delete(NEW);
    const another = service.add('file', to, 'f', Buffer.from('of another length'));
    arrive();
    await settled();

    expect(sync.status()).toMatchObject({ pending: 0, parked: [] });
    const texts = [...service.tree().values()].filter((text) => text !== null).toSorted();
    expect(texts).toEqual(['of another length', 'ours']);
    expect(await mount.readdir('to')).toHaveLength(2);
    expect(service.history(another)).toHaveLength(1);
  });

  test('a file that another client moved stays one file if its old address redirects to the new one', async () => {
    const { side, mount } = synced;
    moveThere('f', to);
    followed();
    await side.freshness.refresh(side.store.get('resource', from));
    await settled();

    expect((await mount.readdir('to')).map(({ name }) => name)).toEqual(['f']);
  });

  test('a push that was refused at the old address of a file moved elsewhere is repeated immediately', async () => {
    const { service, side, mount, sync } = synced;
    const createVersion = service.createVersion.bind(service);
    service.createVersion = async () => {
      throw new ApiError(403, 'model', 'not now');
    };
    await mount.writeFile('from/f', Buffer.from('ours'));
    await settled();
    expect(sync.status().parked).toHaveLength(1);
    service.createVersion = createVersion;
    moveThere('f', from);
    const listing = service.listing.bind(service);
    service.listing = (folder) => (folder === from ? [] : listing(folder));
    followed();
    await side.freshness.refresh(side.store.get('resource', from));
    await synced.pass(10_000);
    await synced.pass(10_000);

    expect(service.bytesOf(NEW)?.toString()).toBe('ours');
    expect(sync.status()).toMatchObject({ pending: 0, parked: [] });
  });

  /** [S-pin-1] */
  test.each(['here', 'elsewhere'] as const)(
    'the bytes of a pinned file that was moved %s are never evicted',
    async (where) => {
      const { side, clock, mount } = synced;
      const { ino } = await mount.stat('from/f');
      const { store, tree, freshness, reader } = side;
      const pins = new Pins({
        ...{ store, tree, freshness, reader, files: side.fileSystem.files, clock },
        ...{ changes: side.changes, pinned: side.pinned },
        ...{ log: silentLogger, shutdown: new AbortController().signal, roundMs: 60_000 },
      });
      pins.pin(ino);
      pins.start();
      await synced.pass(1);
      await expect.poll(() => pins.stateOf(ino)?.isComplete).toBe(true);
      if (where === 'here') (await moved('answer'))();
      else {
        moveThere('f', to);
        followed();
        await side.freshness.refresh(store.get('resource', from));
      }
      await settled();

      expect(tree.node(ino)?.remote?.resource).toBe(NEW);
      const content = tree.node(ino)?.local?.content;
      expect(content != null && side.pinned.keeps(content)).toBe(true);
    },
  );
});

/** [S-pin-1] */
test('a pinned file that was moved elsewhere is kept after a restart without the service, though others are missing', async () => {
  const { side, clock, service, mount } = synced;
  const { store, tree, freshness, reader } = side;
  const { ino } = await mount.stat('from/f');
  moveThere('f', to);
  followed();
  await freshness.refresh(store.get('resource', from));
  for (const name of ['a', 'b', 'c']) service.add('file', to, name, Buffer.from('not here'));
  await settled();
  expect(tree.node(ino)?.remote?.resource).toBe(NEW);
  service.history = () => {
    throw new TransportError('away');
  };
  const pins = new Pins({
    ...{ store, tree, freshness, reader, files: side.fileSystem.files, clock },
    ...{ changes: side.changes, pinned: side.pinned },
    ...{ log: silentLogger, shutdown: new AbortController().signal, roundMs: 60_000 },
  });
  const folder = (await mount.stat('to')).ino;
  pins.pin(folder);
  pins.start();
  for (let round = 0; round < 20 && pins.stateOf(folder)?.trouble == null; round++) await synced.pass(10_000);
  expect(pins.stateOf(folder)).toMatchObject({ files: 4, trouble: expect.any(String) });

  const content = tree.node(ino)?.local?.content;
  expect(content != null && side.pinned.keeps(content)).toBe(true);
  pins.stop();
});

/** What is pushed into a folder meanwhile comes when it has another address already, and meets a 404. */
describe('a folder stays one folder where its answer comes after', () => {
  const rename = (): Promise<void> => synced.mount.rename('from/f', 'from/g');
  const make = (): Promise<void> => synced.mount.writeFile('from/g', Buffer.from('ours'));
  test.each<[string, number, () => Promise<void>, string]>([
    ['that of a file which is renamed in it', 404, rename, 'old'],
    ['that of a file which is made in it', 404, make, 'ours'],
    ['that of a file which is renamed in it', 403, rename, 'old'],
    ['that of a file which is made in it', 403, make, 'ours'],
  ])('%s (%d)', async (_, status, change, bytes) => {
    const { service, mount, sync } = synced;
    const isDone = gate();
    const isRefused = gate();
    const [relocate, createFile] = [service.relocate.bind(service), service.createFile.bind(service)];
    const late = async <T>(parent: ResourceUrl, act: () => Promise<T>): Promise<T> => {
      if (parent !== from) return await act();
      await isDone.opened;
      throw new ApiError(status, 'model', 'no such folder');
    };
    service.createFile = (parent, ...rest) => late(parent, () => createFile(parent, ...rest));
    service.relocate = async (url, kind, parent, name, signal) => {
      if (url !== from) return await late(parent, () => relocate(url, kind, parent, name, signal));
      const it = service.resources.get(from);
      if (it === undefined) throw new ApiError(404, 'model', 'gone');
      service.resources.delete(from);
      service.resources.set(NEW_FOLDER, { ...it, url: NEW_FOLDER, name, parent });
      for (const child of service.resources.values()) if (child.parent === from) child.parent = NEW_FOLDER;
      isDone.open();
      await isRefused.opened;
      return NEW_FOLDER;
    };
    service.uniqueNames = false;
    await change();
    await mount.rename('from', 'renamed');
    for (let round = 0; round < 5; round++) await synced.pass(2_000);
    isRefused.open();
    await settled();

    expect(sync.status()).toMatchObject({ pending: 0, parked: [] });
    const tree = service.tree();
    expect([...tree.keys()].filter((path) => !path.includes('/', 1)).sort()).toEqual(['/renamed', '/to']);
    expect(tree.get('/renamed/g')).toBe(bytes);
    expect((await mount.readdir('')).map((entry) => entry.name).sort()).toEqual(['renamed', 'to']);
  });

  test('a folder is recreated for its new entries if its recovery was refused permanently and it is deleted', async () => {
    const { service, mount, sync } = synced;
    const look = service.look.bind(service);
    service.relocate = async () => {
      service.look = () => {
        throw new ApiError(403, 'model', 'not for you');
      };
      throw new TransportError('the reply was lost');
    };
    await mount.rename('from', 'renamed');
    await settled();
    expect(sync.status().parked).toMatchObject([{ path: 'renamed', reason: 'forbidden' }]);
    service.look = look;
    service.resources.delete(file);
    service.resources.delete(from);
    await mount.writeFile('renamed/g', Buffer.from('ours'));
    await settled();

    expect(service.tree().get('/renamed/g')).toBe('ours');
    expect(sync.status()).toMatchObject({ pending: 0, parked: [] });
  });

  test('an entry that is refused at the old address of a parked folder is parked with it', async () => {
    const { service, mount, sync } = synced;
    const refuse = () => {
      throw new ApiError(403, 'model', 'not for you');
    };
    service.relocate = async () => {
      service.look = refuse;
      throw new TransportError('the reply was lost');
    };
    await mount.rename('from', 'renamed');
    await settled();
    service.createFile = async () => refuse();
    await mount.writeFile('renamed/g', Buffer.from('ours'));
    await settled();

    expect(
      sync
        .status()
        .parked.map(({ path }) => path)
        .sort(),
    ).toEqual(['renamed', 'renamed/g']);
  });
});

function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open: () => open() };
}
