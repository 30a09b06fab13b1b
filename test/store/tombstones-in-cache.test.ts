import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { type Inode, type ResourceUrl, ROOT_INODE, timespecOfMs } from '../../src/base/vocabulary.ts';
import type { LocalFacet, NodeRecord } from '../../src/store/tables.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();

/** More than the store caches of decoded nodes. */
const MANY = 21_000;
const AT_ONCE = 1_000;
const time = timespecOfMs(0);

function nodeOf(ino: number, local: Partial<LocalFacet> | null): NodeRecord {
  const name = `file-${ino}`;
  const facts = { parent: ROOT_INODE, name, mode: 0o644, uid: 1, gid: 1, atime: time, mtime: time, ctime: time };
  return {
    ino: ino as Inode,
    kind: 'file',
    localOnly: false,
    local: local === null ? null : { ...facts, xattrs: null, content: null, sizeBytes: 1, ...local },
    remote: {
      ...{ resource: `https://service/file/${ino}` as ResourceUrl, parent: ROOT_INODE, name, shownAs: name },
      ...{ sizeBytes: 1, modified: null, mediaType: null, content: null, createdHereMs: null },
    },
  };
}

test('removals replace no other node in the cache of decoded nodes', async () => {
  const store = await stores.open(stores.directory(), { clock: systemClock });
  store.transact((tx) => tx.put('node', 2 as Inode, nodeOf(2, {})));
  await store.drain();
  const cached = store.get('node', 2 as Inode);
  expect(store.get('node', 2 as Inode)).toBe(cached);

  for (let first = 3; first < MANY; first += AT_ONCE) {
    store.transact((tx) => {
      for (let ino = first; ino < first + AT_ONCE; ino++) tx.put('node', ino as Inode, nodeOf(ino, null));
    });
    await store.drain();
  }

  expect(store.get('node', 2 as Inode)).toBe(cached);
  expect(store.get('node', (MANY - 1) as Inode)).toEqual(nodeOf(MANY - 1, null));
}, 60_000);
