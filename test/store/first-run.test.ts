import { readdirSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { ContentStore } from '../../src/bytes/content-store.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();

/** A file that is synced in a folder whose own name is not on the disk is gone with that. */
test('the first fsync(2) of a new store syncs the names of all folders above the file', async () => {
  /** By folder, the names that were in it when it was synced last. */
  const synced = new Map<string, readonly string[]>();
  const disk: Disk = {
    ...systemDisk,
    syncDirectory: async (path) => {
      synced.set(path, readdirSync(path));
      await systemDisk.syncDirectory(path);
    },
  };
  const top = stores.directory();
  const directory = join(top, 'accounts', 'user@host', 'store');
  const store = await stores.open(directory, { disk });
  const hasName = (path: string): boolean => synced.get(dirname(path))?.includes(basename(path)) ?? false;
  for (let at = directory; at !== top; at = dirname(at)) expect(hasName(at), at).toBe(true);
  // What is small is safe as soon as the journal is.
  for (const name of ['journal', 'index']) expect(hasName(join(directory, name)), name).toBe(true);

  const options = { inlineMaxBytes: 4096, cacheBytes: 1e12 };
  const contents = new ContentStore({ store, directory, clock: systemClock, log: silentLogger, options, disk });
  const draft = store.transact((tx) => contents.createDraft(tx, null));
  contents.write(draft, 0, new Uint8Array(20_000));
  store.transact((tx) => contents.flush(tx, draft));
  await contents.syncFile(draft);

  const shard = join(directory, 'drafts', draft.toString(16).padStart(2, '0'));
  for (const path of [join(shard, String(draft)), shard, dirname(shard)]) expect(hasName(path), path).toBe(true);
  contents.close();
});
