import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { StorageError } from '../../src/base/errors.ts';
import type { Inode, IntentId, ResourceUrl } from '../../src/base/vocabulary.ts';
import { valueOfDamaged } from '../../src/store/record-codec.ts';
import type { DirtyRecord, IntentRecord } from '../../src/store/tables.ts';
import { sampleLocal, sampleNode } from './sample-records.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();
const [SOUND, DAMAGED] = [2 as Inode, 3 as Inode];

const intent = (name: string): IntentRecord => ({
  ...{ owner: SOUND, action: 'create-file', phase: 'sent', startedMs: 1, parentResource: 'p' as ResourceUrl, name },
  ...{ resource: null, content: null, version: null, sizeBytes: null },
});
const dirty = (detail: string): DirtyRecord => ({ sinceMs: 1, parked: { reason: 'quota', detail, atMs: 2 } });

/** [S-damage-2] */
test('a damaged row is an error, unless its presence is enough or it is dispensable; all other rows are read', async () => {
  const directory = stores.directory();
  const store = await stores.open(directory);
  store.transact((tx) => {
    for (const [ino, text] of [
      [SOUND, 'sound'],
      [DAMAGED, 'garbled'],
    ] as const) {
      tx.put('node', ino, { ...sampleNode(ino), local: sampleLocal(1, text) });
      tx.put('dirty', ino, dirty(text));
      tx.put('intent', ino as number as IntentId, intent(text));
    }
  });
  await store.close();
  const index = join(directory, 'index', 'data.mdb');
  const bytes = readFileSync(index);
  for (let at = bytes.indexOf('garbled'); at >= 0; at = bytes.indexOf('garbled', at)) bytes.write('mangled', at);
  writeFileSync(index, bytes);

  const again = await stores.open(directory);

  expect(() => again.get('node', DAMAGED)).toThrow(StorageError);
  expect(again.get('node', SOUND)?.local?.name).toBe('sound');
  expect([...again.all('dirty')]).toEqual([
    [SOUND, dirty('sound')],
    [DAMAGED, { sinceMs: 0, parked: null }],
  ]);
  expect([...again.all('intent')]).toEqual([[SOUND, intent('sound')]]);
  expect(again.get('intent', DAMAGED as number as IntentId)).toBeUndefined();
  expect([...again.damagedRows()].map(({ row }) => row).sort()).toEqual(['dirty 3', 'intent 3', 'node 3']);
  await again.close();
});

test('a damaged row of the index of local-only nodes still marks its node', () => {
  expect(valueOfDamaged('local', DAMAGED)).toBe(true);
});
