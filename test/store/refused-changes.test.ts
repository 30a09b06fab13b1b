import { expect, test } from 'vitest';
import type { ContentId } from '../../src/base/vocabulary.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import { countReference } from '../../src/store/node-table.ts';
import { type ContentPlace, openPlace } from './content-place.ts';
import { TemporaryStores } from './temporary-store.ts';

/** A change of which no record could be kept, as a full disk has it at close(2): its writer was told that it is lost. */

const stores = new TemporaryStores();
const ALL = { start: 0, end: Number.MAX_SAFE_INTEGER };
const KEPT = new Uint8Array(20_000).fill(1);

function keptDraft({ store, contents }: ContentPlace): ContentId {
  return store.transact((tx) => {
    const id = contents.createDraft(tx, null);
    contents.write(id, 0, KEPT);
    contents.flush(tx, id);
    countReference(tx, id, 1);
    return id;
  });
}

test('a refused change is dropped even while an abandoned sync of earlier bytes runs', async () => {
  let isSyncing = false;
  let letGo = () => {};
  const held = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  const disk: Disk = {
    ...systemDisk,
    sync: async (fd) => {
      isSyncing = true;
      await held;
      await systemDisk.sync(fd);
    },
  };
  const place = await openPlace(stores, {}, undefined, { disk });
  const { store, contents } = place;
  const id = keptDraft(place);
  const handle = contents.lease(id, 'changing');
  const synced = contents.syncFile(id);
  await expect.poll(() => isSyncing).toBe(true);

  contents.write(id, 20_000, new Uint8Array(10).fill(2));
  handle.release();

  expect(contents.putDown(id)).toBe(true);
  expect(contents.sizeOf(id)).toBe(KEPT.byteLength);
  letGo();
  await synced;
  contents.collect();
  // It is pushed.
  store.transact((tx) => contents.seal(tx, id));
  expect(contents.readAll(id, ALL)).toEqual(KEPT);
  contents.close();
});

test('a refused change stays while another writer has the file open, whose close(2) reports it', async () => {
  const place = await openPlace(stores);
  const { contents } = place;
  const id = keptDraft(place);
  const [first, second] = [contents.lease(id, 'changing'), contents.lease(id, 'changing')];
  contents.write(id, 20_000, new Uint8Array(10).fill(2));

  first.release();
  expect(contents.putDown(id)).toBe(false);
  expect(contents.sizeOf(id)).toBe(20_010);

  second.release();
  expect(contents.putDown(id)).toBe(true);
  expect(contents.readAll(id, ALL)).toEqual(KEPT);
  contents.close();
});
