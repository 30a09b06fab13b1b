import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { open as openLmdb, type RootDatabase } from 'lmdb';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { type ContentId, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { checkStore } from '../../src/bytes/consistency-check.ts';
import { ContentStore } from '../../src/bytes/content-store.ts';
import { systemDisk } from '../../src/store/disk.ts';
import type { Store } from '../../src/store/environment.ts';
import { migrate, storedSchema } from '../../src/store/migration.ts';
import { encodeKey } from '../../src/store/row-key.ts';
import { SCHEMA_VERSION } from '../../src/store/schema-version.ts';
import { unmountedStore } from '../../src/store/unmounted-store.ts';
import { pathOf } from '../../src/sync/sync-event.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();

/** What the program of an older layout left when it was killed: some of it in LMDB, the newest file in the journal only. */
function imageOf(layout: number): string {
  const directory = stores.directory();
  const image = fileURLToPath(new URL(`images/layout-${layout}.tar.gz`, import.meta.url));
  const { status, stderr } = spawnSync('tar', ['-xzf', image, '-C', directory], { encoding: 'utf8' });
  if (status !== 0) throw new Error(stderr);
  return directory;
}

function bytesByName(store: Store, directory: string): Record<string, string> {
  const options = { inlineMaxBytes: 32 * 1024, cacheBytes: 2 ** 30 };
  const contents = new ContentStore({ store, directory, clock: systemClock, log: silentLogger, options });
  const found: Record<string, string> = {};
  for (const [name, ino] of store.scan('name', ROOT_INODE)) {
    const local = store.get('node', ino)?.local;
    const bytes = local?.content == null ? null : contents.readAll(local.content, { start: 0, end: 2 ** 20 });
    found[name] = bytes === null ? 'not here' : `${bytes.byteLength} x ${[...new Set(Buffer.from(bytes).toString())]}`;
  }
  contents.close();
  return found;
}

const OF_THE_IMAGE = {
  'in-the-journal': '7000 x j',
  large: '200000 x l',
  'taken-over': '5000 x a',
  version: '3000 x v',
};

/** Without bytes. `journal.part` is only in the journal; `folder.part` is a folder with a file. */
const LOCAL_OF_THE_IMAGE = { 'fifo.part': 'not here', 'folder.part': 'not here', 'journal.part': 'not here' };

test.each([
  [1, OF_THE_IMAGE],
  [2, { ...OF_THE_IMAGE, 'large-version': '200000 x w' }],
  [3, { ...OF_THE_IMAGE, 'large-version': '200000 x w' }],
  [4, { ...OF_THE_IMAGE, 'large-version': '200000 x w', ...LOCAL_OF_THE_IMAGE }],
])(
  'a store of layout %i is migrated to the current one, with the records that only its journal has',
  async (layout, files) => {
    const directory = imageOf(layout);
    const store = await stores.open(directory);

    expect(bytesByName(store, directory)).toEqual(files);
    expect([...store.damagedRows()]).toEqual([]);
    expect([...checkStore(store)]).toEqual([]);
    expect(store.get('meta', 'schema')).toBe(SCHEMA_VERSION);

    await store.close();
    const again = await stores.open(directory);
    expect(bytesByName(again, directory)).toEqual(files);
    await again.close();
  },
);

/** What layout 3 kept of operations in flight: two uploads, a creation, and three discarded versions. */
function expectIntentsOfLayout3(store: Store): void {
  const url = (name: string) => `http://127.0.0.1:9/file/${name}`;
  const none = { parentResource: null, name: null, resource: null, content: null, version: null, sizeBytes: null };
  const [fill, upload, creation, ...discarded] = [...store.all('intent')];
  expect(fill).toEqual([
    4,
    {
      ...{ ...none, owner: 4, action: 'fill', phase: 'begun', startedMs: 2000 },
      ...{ resource: url('two'), content: 3 },
    },
  ]);
  expect(upload).toEqual([
    6,
    {
      ...{ ...none, owner: 6, action: 'new-version', phase: 'sent', startedMs: 1000 },
      ...{ resource: url('one'), content: 5, version: `${url('one')}/version/1` },
    },
  ]);
  expect(creation).toEqual([
    900,
    {
      ...{ ...none, owner: 900, action: 'create-folder', phase: 'sent', startedMs: 3000 },
      ...{ parentResource: url('root'), name: 'made' },
    },
  ]);
  expect(discarded.map(([, { phase, version }]) => [phase, version])).toEqual(
    [1, 2, 3].map((n) => ['abandoned', `${url('gone')}/version/${n}`]),
  );
  expect(store.get('meta', 'discarded-versions')).toBeUndefined();
  const ids = [...store.all('intent')].map(([id]) => id as number);
  expect(store.transact((tx) => tx.nextId('intent'))).toBeGreaterThan(Math.max(...ids));
}

test('a store of layout 3 keeps its operations in flight, each with an identity and an owner', async () => {
  const store = await stores.open(imageOf(3));

  expectIntentsOfLayout3(store);
});

test('a store of layout 4 lists what stays on this machine, also before it is migrated', async () => {
  const directory = imageOf(4);
  expect((await unmountedStore(directory)).local).toBe(2); // as LMDB knows: the third is in the journal
  const store = await stores.open(directory);

  const paths = [...store.all('local')].map(([ino]) => pathOf(store, ino));
  expect(paths).toEqual(['folder.part', 'folder.part/inside', 'journal.part']);

  await store.close();
  expect((await unmountedStore(directory)).local).toBe(3);
});

test('a migration from layout 3 that is killed before any of its transactions loses no operation in flight', async () => {
  for (let n = 1, isOver = false; !isOver; n++) {
    const directory = imageOf(3);
    const database = openLmdb<Buffer, Buffer>({
      path: join(directory, 'index'),
      noSubdir: false,
      encoding: 'binary',
      keyEncoding: 'binary',
    });
    const deps = { directory, segmentBytes: 64 * 1024, disk: systemDisk, clock: systemClock, log: silentLogger };
    isOver = await migrate({ ...deps, database: killedAt(database, n) }).then(
      () => true,
      () => false,
    );
    await database.close();

    const store = await stores.open(directory);
    expectIntentsOfLayout3(store);
    await store.close();
    expect(n).toBeLessThan(20);
  }
});

test('small bytes that were damaged before a migration are so after it', async () => {
  const directory = imageOf(2);
  const index = join(directory, 'index', 'data.mdb');
  const file = readFileSync(index);
  const at = file.indexOf('aaaa');
  expect(at).toBeGreaterThan(0);
  file.writeUInt8(0, at + 100);
  writeFileSync(index, file);

  const store = await stores.open(directory);

  const damaged = [...store.all('inline')].filter(([, bytes]) => bytes === 'damaged');
  expect(damaged).toHaveLength(1);
  expect([...store.damagedRows()]).toHaveLength(1);
});

/** A database whose n-th transaction does not happen, nor any after it: the process was killed. */
function killedAt(database: RootDatabase<Buffer, Buffer>, n: number): RootDatabase<Buffer, Buffer> {
  let transactions = 0;
  return new Proxy(database, {
    get(target, name) {
      const value = target[name as keyof typeof target] as unknown;
      if (name === 'transactionSync' && ++transactions >= n) throw new Error('killed');
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

test('a migration that is killed between any two of its transactions is gone on with by the next start', async () => {
  const EXTRA = 1_300;
  for (let n = 1, isOver = false; !isOver; n++) {
    const directory = imageOf(1);
    const database = openLmdb<Buffer, Buffer>({
      path: join(directory, 'index'),
      noSubdir: false,
      encoding: 'binary',
      keyEncoding: 'binary',
    });
    const content = (extra: number) => (1_000 + extra) as ContentId;
    database.transactionSync(() => {
      for (let extra = 0; extra < EXTRA; extra++)
        database.putSync(encodeKey('inline', content(extra)), Buffer.from(`old ${extra}`));
    });
    const deps = {
      directory,
      segmentBytes: 64 * 1024,
      disk: systemDisk,
      clock: systemClock,
      log: silentLogger,
    };
    isOver = await migrate({ ...deps, database: killedAt(database, n) }).then(
      () => true,
      () => false,
    );
    // From the first rewritten row on an older program must not open it.
    if (n > 2) expect(storedSchema(database)).toBeGreaterThan(1);
    await database.close();

    const store = await stores.open(directory);
    for (let extra = 0; extra < EXTRA; extra++)
      expect(Buffer.from(store.get('inline', content(extra)) as Uint8Array).toString()).toBe(`old ${extra}`);
    expect(bytesByName(store, directory)).toEqual(OF_THE_IMAGE);
    await store.close();
    expect(n).toBeLessThan(20);
  }
});
