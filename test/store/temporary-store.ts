import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { Store, type StoreOptions } from '../../src/store/environment.ts';
import { FAST_DISK } from '../harness/fast-disk.ts';

/** Directories and stores that end with the test that made them. */
export class TemporaryStores {
  #directories: string[] = [];
  #stores: Store[] = [];

  constructor() {
    afterEach(async () => {
      for (const store of this.#stores) await store.close();
      for (const directory of this.#directories) rmSync(directory, { recursive: true, force: true });
      this.#stores = [];
      this.#directories = [];
    });
  }

  directory(below: string = FAST_DISK): string {
    const directory = mkdtempSync(join(below, 'cfs-store-'));
    this.#directories.push(directory);
    return directory;
  }

  async open(directory: string = this.directory(), options: Partial<StoreOptions> = {}): Promise<Store> {
    const store = await Store.open({
      directory,
      log: silentLogger,
      clock: systemClock,
      segmentBytes: 64 * 1024,
      ...options,
    });
    this.#stores.push(store);
    return store;
  }

  /** What SIGKILL would leave of a store: the files as they are, in another place. */
  copyOf(directory: string): string {
    const copy = this.directory();
    cpSync(directory, copy, { recursive: true });
    return copy;
  }
}
