import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { ContentStore } from '../../src/bytes/content-store.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import { countReference } from '../../src/store/node-table.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();

test('a file goes only when no power cut can bring its record back', async () => {
  let letGo = () => {};
  let held: Promise<void> | null = null;
  let syncs = 0;
  const disk: Disk = {
    ...systemDisk,
    sync: async (fd) => {
      if (held !== null) syncs++;
      await held;
      await systemDisk.sync(fd);
    },
  };
  const directory = stores.directory();
  const store = await stores.open(directory, { disk });
  const options = { inlineMaxBytes: 4096, cacheBytes: 1e12 };
  const contents = new ContentStore({ store, directory, clock: systemClock, log: silentLogger, options });
  const draft = store.transact((tx) => {
    const id = contents.createDraft(tx, null);
    contents.write(id, 0, Buffer.alloc(20_000, 1));
    contents.flush(tx, id);
    countReference(tx, id, 1);
    return id;
  });
  const path = join(directory, 'drafts', draft.toString(16).padStart(2, '0'), String(draft));
  expect(existsSync(path)).toBe(true);

  held = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  store.transact((tx) => countReference(tx, draft, -1));
  contents.collect();
  await expect.poll(() => syncs, { timeout: 20_000 }).toBeGreaterThan(0);
  for (let turn = 0; turn < 100; turn++) await nextTurn();
  expect(contents.record(draft)).toBeUndefined();
  expect(existsSync(path)).toBe(true);

  letGo();
  await expect.poll(() => existsSync(path), { timeout: 20_000 }).toBe(false);
  contents.close();
});
