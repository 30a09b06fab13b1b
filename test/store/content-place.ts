import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { ContentId, ResourceUrl, VersionUrl } from '../../src/base/vocabulary.ts';
import { ContentStore, type ContentStoreDeps, type ContentStoreOptions } from '../../src/bytes/content-store.ts';
import type { Store } from '../../src/store/environment.ts';
import { countReference } from '../../src/store/node-table.ts';
import type { TemporaryStores } from './temporary-store.ts';

/** A real store with its contents. */
export interface ContentPlace {
  readonly directory: string;
  readonly store: Store;
  readonly contents: ContentStore;
}

export async function openPlace(
  stores: TemporaryStores,
  options: Partial<ContentStoreOptions> = {},
  directory: string = stores.directory(),
  deps: Partial<ContentStoreDeps> = {},
): Promise<ContentPlace> {
  const store = await stores.open(directory);
  const contents = new ContentStore({
    store,
    directory,
    clock: systemClock,
    log: silentLogger,
    options: { inlineMaxBytes: 4096, cacheBytes: 1e12, ...options },
    ...deps,
  });
  return { directory, store, contents };
}

/** A version of `file` that somebody refers to. */
export function referredVersion(
  { store, contents }: ContentPlace,
  file: ResourceUrl,
  sizeBytes: number,
  name: string,
): ContentId {
  return store.transact((tx) => {
    const id = contents.versionContent(tx, `${file}/version/${name}` as VersionUrl, file, sizeBytes);
    countReference(tx, id, 1);
    return id;
  });
}
