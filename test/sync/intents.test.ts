import { expect, test } from 'vitest';
import type { Inode, ResourceUrl } from '../../src/base/vocabulary.ts';
import type { UploadRecord } from '../../src/store/tables.ts';
import { DirtyIndex } from '../../src/sync/dirty-index.ts';
import { Intents } from '../../src/sync/intents.ts';
import { PushMarks } from '../../src/tree/push-marks.ts';
import { MemoryStore } from '../tree/memory-store.ts';

test('of all that was begun only that of the same file is looked at for who goes before it', () => {
  const store = new MemoryStore();
  const intents = new Intents({ store, index: new DirtyIndex(store), marks: new PushMarks({ store }) });
  let looks = 0;
  const url = (ino: number): ResourceUrl => `http://127.0.0.1/${ino}` as ResourceUrl;
  const record = (ino: number): UploadRecord => ({
    ...{ action: 'new-version', startedMs: ino, parentResource: null, name: null, content: null, version: null },
    get resource() {
      looks += 1;
      return url(ino);
    },
  });
  const remote = { parent: 1 as Inode, name: 'f', shownAs: 'f', sizeBytes: null, modified: null };
  const node = { ino: 5000 as Inode, kind: 'file', localOnly: false, local: null } as const;
  store.transact((tx) => {
    for (let ino = 2; ino < 1_000; ino++) intents.put(tx, ino as Inode, record(ino));
    const facet = { ...remote, resource: url(500), mediaType: null, content: null, createdHereMs: null };
    tx.put('node', node.ino, { ...node, remote: facet });
  });
  looks = 0;

  expect(intents.predecessor(node.ino)).toBe(500);
  expect(looks).toBeLessThan(10);
  intents.forget(500 as Inode);
  expect(intents.predecessor(node.ino)).toBe(null);
});
