import { expect, test } from 'vitest';
import { StorageError } from '../../src/base/errors.ts';
import type { ContentId, Inode, IntentId } from '../../src/base/vocabulary.ts';
import type { Store } from '../../src/store/environment.ts';
import type { StoreReader } from '../../src/store/tables.ts';
import { sampleContent, sampleLocal, sampleNode, sampleRemote } from './sample-records.ts';
import { SeededRandom } from './seeded-random.ts';
import { TemporaryStores } from './temporary-store.ts';

/**
 * The store is, to those who use it, a few maps that change whole records at a time. The model says only that; the store must
 * agree with it whatever LMDB has taken over, after an orderly end and after SIGKILL.
 */
class MapModel {
  readonly nodes = new Map<number, unknown>();
  readonly names = new Map<string, number>();
  readonly inline = new Map<number, Uint8Array>();

  copy(): MapModel {
    const copy = new MapModel();
    for (const key of ['nodes', 'names', 'inline'] as const) {
      for (const [k, v] of this[key]) (copy[key] as Map<unknown, unknown>).set(k, v);
    }
    return copy;
  }

  /** Second members below `parent` in the order of their UTF-8 bytes. */
  namesIn(parent: number, after?: string): (readonly [string, number])[] {
    return [...this.names]
      .map(([key, ino]) => [JSON.parse(key) as [number, string], ino] as const)
      .filter(([[first]]) => first === parent)
      .map(([[, name], ino]) => [name, ino] as const)
      .sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
      .filter(([name]) => after === undefined || Buffer.compare(Buffer.from(name), Buffer.from(after)) > 0);
  }
}

const NAMES = ['a', 'b', 'aa', 'é', 'z', 'Ω', '\uffee', '😀', '😁', 'a\u0001', 'long'.repeat(60), '.', '名前'];
const SEEDS = [1, 3];
const stores = new TemporaryStores();

test.each(SEEDS)('a store behaves as maps that change a record at a time (SEED=%i)', async (seed) => {
  const random = new SeededRandom(seed);
  let directory = stores.directory();
  let store = await stores.open(directory);
  let model = new MapModel();

  for (let step = 0; step < 90; step++) {
    const trace = `seed ${seed}, step ${step}`;
    switch (
      random.pick(['change', 'change', 'change', 'change', 'change', 'fail', 'turn', 'settle', 'reopen', 'crash'])
    ) {
      case 'change':
        for (let count = random.below(8); count >= 0; count--) model = change(store, model, random, trace);
        break;
      case 'fail': {
        const before = model.copy();
        expect(() =>
          store.transact((tx) => {
            mutate(tx, before.copy(), random);
            throw new Error('changed my mind');
          }),
        ).toThrow('changed my mind');
        break;
      }
      case 'turn':
        await new Promise((resolve) => setImmediate(resolve));
        break;
      case 'settle':
        await store.drain();
        break;
      case 'reopen':
        if (random.below(4) > 0) break;
        await store.close();
        store = await stores.open(directory);
        break;
      case 'crash': {
        if (random.below(4) > 0) break;
        const copy = stores.copyOf(directory);
        await store.close();
        directory = copy;
        store = await stores.open(directory);
        break;
      }
    }
    compare(store, model, random, trace);
  }
  compareAll(store, model);
});

test('every field of every record comes back, from the overlay, from LMDB and from the journal', async () => {
  const directory = stores.directory();
  const store = await stores.open(directory);
  const node = sampleNode(2, {
    kind: 'symlink',
    localOnly: true,
    local: sampleLocal(1, 'ä', {
      xattrs: { 'user.x': Uint8Array.of(0, 255) },
      content: 9 as ContentId,
      sizeBytes: 2 ** 45,
    }),
    remote: sampleRemote(1, 'raw/name', { shownAs: 'raw_name', content: 8 as ContentId, createdHereMs: 5 }),
  });
  const rareFields = [sampleRemote(1, 'a'), sampleRemote(1, 'b', { nameBefore: 'c' })];
  const intent = {
    owner: 2 as Inode,
    action: 'trash',
    phase: 'sent',
    startedMs: 1,
    parentResource: null,
    name: null,
    resource: null,
    content: 3 as ContentId,
    version: null,
    sizeBytes: null,
  } as const;
  const abandoned = {
    ...intent,
    action: 'fill',
    phase: 'abandoned',
    content: null,
    sizeBytes: 7,
  } as const;
  const dirty = { sinceMs: 1.5, parked: { reason: 'quota', detail: 'full', atMs: 3 } } as const;
  store.transact((tx) => {
    tx.put('node', node.ino, node);
    tx.put('node', 3 as Inode, { ...sampleNode(3), local: null });
    for (const [at, rare] of rareFields.entries())
      tx.put('node', (20 + at) as Inode, sampleNode(20 + at, { remote: rare }));
    tx.put('content', 7 as ContentId, sampleContent());
    tx.put('intent', 2 as IntentId, intent);
    tx.put('intent', 3 as IntentId, abandoned);
    tx.put('dirty', 2 as Inode, dirty);
    tx.put('dirty', 3 as Inode, { sinceMs: 1, parked: null });
    tx.put('folder', 1 as Inode, { listedMs: 1_700_000_000_000 });
    tx.put('garbage', 5 as ContentId, true);
    tx.put('meta', 'account', 'someone');
    tx.put('blocks', [5 as ContentId, 3], Uint8Array.of(1, 2, 3));
  });
  const check = (reader: StoreReader) => {
    expect(reader.get('node', 2 as Inode)).toEqual(node);
    expect(reader.get('node', 3 as Inode)).toEqual({ ...sampleNode(3), local: null });
    for (const [at, rare] of rareFields.entries()) {
      expect(reader.get('node', (20 + at) as Inode)).toEqual(sampleNode(20 + at, { remote: rare }));
    }
    expect(reader.get('content', 7 as ContentId)).toEqual(sampleContent());
    expect(reader.get('intent', 2 as IntentId)).toEqual(intent);
    expect(reader.get('intent', 3 as IntentId)).toEqual(abandoned);
    expect(reader.get('dirty', 2 as Inode)).toEqual(dirty);
    expect(reader.get('dirty', 3 as Inode)).toEqual({ sinceMs: 1, parked: null });
    expect(reader.get('folder', 1 as Inode)).toEqual({ listedMs: 1_700_000_000_000 });
    expect(reader.get('garbage', 5 as ContentId)).toBe(true);
    expect(reader.get('meta', 'account')).toBe('someone');
    expect([...reader.scan('blocks', 5 as ContentId)]).toEqual([[3, Uint8Array.of(1, 2, 3)]]);
  };

  check(store);
  const crashed = await stores.open(stores.copyOf(directory));
  check(crashed);
  await store.close();
  check(await stores.open(directory));
});

test('a closed store says so, to readers, scanners and writers', async () => {
  const store = await stores.open();
  store.transact((tx) => tx.put('name', [1 as Inode, 'a'], 2 as Inode));
  const scan = store.scan('name', 1 as Inode);
  await store.close();

  expect(() => store.get('name', [1 as Inode, 'a'])).toThrow(StorageError);
  expect(() => [...scan]).toThrow(StorageError);
  expect(() => store.transact((tx) => tx.put('meta', 'a', 1))).toThrow(StorageError);
});

test('ids are never given twice, not after a crash and not after a change that failed', async () => {
  let directory = stores.directory();
  const given = new Set<number>();
  for (let run = 0; run < 4; run++) {
    const store = await stores.open(directory);
    for (let i = 0; i < 1500; i++) {
      const id = store.transact((tx) => tx.nextId('inode'));
      expect(given.has(id), `id ${id} in run ${run}`).toBe(false);
      given.add(id);
      if (i % 700 === 0) {
        expect(() =>
          store.transact((tx) => {
            tx.nextId('inode');
            throw new Error('no');
          }),
        ).toThrow();
      }
    }
    directory = stores.copyOf(directory);
  }
  expect(given.has(1)).toBe(false); // the root's
});

test('a scan of a large folder crosses its chunks without loss, while changes lie over it', async () => {
  const store = await stores.open();
  const name = (i: number) => `n${String(i).padStart(5, '0')}`;
  store.transact((tx) => {
    for (let i = 0; i < 1000; i++) tx.put('name', [1 as Inode, name(i)], (i + 10) as Inode);
  });
  await store.drain();
  store.transact((tx) => {
    for (let i = 0; i < 1000; i += 3) tx.remove('name', [1 as Inode, name(i)]);
    for (let i = 1; i < 1000; i += 3) tx.put('name', [1 as Inode, name(i)], (i + 5000) as Inode);
    tx.put('name', [1 as Inode, 'zzz'], 7 as Inode);
    tx.put('name', [2 as Inode, 'elsewhere'], 8 as Inode);

    const seen = [...tx.scan('name', 1 as Inode)];
    expect(seen).toHaveLength(1000 - 334 + 1);
    expect(seen[0]).toEqual([name(1), 5001]);
    expect(seen.at(-1)).toEqual(['zzz', 7]);
  });

  expect([...store.scan('name', 1 as Inode)]).toHaveLength(667);
  expect([...store.scan('name', 1 as Inode, name(997))]).toEqual([
    [name(998), 1008],
    ['zzz', 7],
  ]);
});

function change(store: Store, model: MapModel, random: SeededRandom, trace: string): MapModel {
  const next = model.copy();
  store.transact((tx) => {
    mutate(tx, next, random);
    compare(tx, next, random, `${trace}, inside`);
  });
  return next;
}

function mutate(tx: Parameters<Parameters<Store['transact']>[0]>[0], model: MapModel, random: SeededRandom): void {
  for (let rows = random.below(5); rows >= 0; rows--) {
    const ino = (1 + random.below(40)) as Inode;
    const parent = (1 + random.below(3)) as Inode;
    const name = random.pick(NAMES);
    switch (random.pick(['node', 'no node', 'name', 'no name', 'inline'])) {
      case 'node': {
        const node = sampleNode(ino, { remote: random.below(2) === 0 ? null : sampleRemote(parent, name) });
        tx.put('node', ino, node);
        model.nodes.set(ino, node);
        break;
      }
      case 'no node':
        tx.remove('node', ino);
        model.nodes.delete(ino);
        break;
      case 'name':
        tx.put('name', [parent, name], ino);
        model.names.set(JSON.stringify([parent, name]), ino);
        break;
      case 'no name':
        tx.remove('name', [parent, name]);
        model.names.delete(JSON.stringify([parent, name]));
        break;
      case 'inline': {
        const bytes = random.bytes(random.below(3000));
        tx.put('inline', ino as unknown as ContentId, bytes);
        model.inline.set(ino, bytes);
        break;
      }
    }
  }
}

function compare(reader: StoreReader, model: MapModel, random: SeededRandom, trace: string): void {
  const ino = (1 + random.below(40)) as Inode;
  const parent = (1 + random.below(3)) as Inode;
  const name = random.pick(NAMES);
  const after = random.below(2) === 0 ? undefined : random.pick(NAMES);
  expect(reader.get('node', ino), trace).toEqual(model.nodes.get(ino));
  expect(reader.get('name', [parent, name]), trace).toBe(model.names.get(JSON.stringify([parent, name])));
  expect(reader.get('inline', ino as unknown as ContentId), trace).toEqual(model.inline.get(ino));
  expect([...reader.scan('name', parent, after)], trace).toEqual(model.namesIn(parent, after));
}

function compareAll(reader: StoreReader, model: MapModel): void {
  expect(new Map(reader.all('node'))).toEqual(model.nodes);
  expect(new Map([...reader.all('name')].map(([key, ino]) => [JSON.stringify(key), ino]))).toEqual(model.names);
  expect(new Map(reader.all('inline'))).toEqual(model.inline);
}
