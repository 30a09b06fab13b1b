import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, it } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import { ROOT_INODE } from '../../src/base/vocabulary.ts';
import { ContentStore } from '../../src/bytes/content-store.ts';
import { Store } from '../../src/store/environment.ts';
import { step, TwoTrees } from './plain-tree.ts';
import { checkStore, ManualClock, makeTree, merge } from './tree-fixture.ts';

describe('Tree against a plain tree', () => {
  it('does with names what a plain tree does, whatever the sync did meanwhile', () => {
    fc.assert(
      fc.property(fc.array(step, { minLength: 20, maxLength: 80 }), (steps) => {
        const fixture = makeTree();
        merge(fixture, ROOT_INODE, []);
        const trees = new TwoTrees(fixture);
        for (const each of steps) trees.act(each);
        trees.compare(fixture.tree);
        checkStore(fixture.store);
      }),
      { numRuns: 300 },
    );
  }, 60_000);

  it('does so on the real store, also after a new start', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 20, maxLength: 80 }), async (steps) => {
        const directory = await mkdtemp(join(tmpdir(), 'cfs-tree-'));
        const clock = new ManualClock();
        const log = silentLogger;
        const open = async () => {
          const store = await Store.open({ directory, clock, log, segmentBytes: 256 * 1024 });
          const options = { inlineMaxBytes: 16_384, cacheBytes: 1e9, reserveBytes: 0 };
          const contents = new ContentStore({ store, directory, clock, log, options });
          return makeTree({ store, contents, clock });
        };
        try {
          let fixture = await open();
          merge(fixture, ROOT_INODE, []);
          const trees = new TwoTrees(fixture);
          for (const each of steps) trees.act(each);
          trees.compare(fixture.tree);
          await (fixture.store as Store).close();
          fixture = await open();
          trees.compare(fixture.tree);
          checkStore(fixture.store, 'by others too');
          await (fixture.store as Store).close();
        } finally {
          await rm(directory, { recursive: true });
        }
      }),
      { numRuns: 12 },
    );
  }, 60_000);
});
