import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Inode } from '../../src/base/vocabulary.ts';
import { Intents } from '../../src/store/intents.ts';
import { ListingFence } from '../../src/tree/listing-fence.ts';
import { MemoryStore } from './memory-store.ts';
import { beginPush, endPush } from './tree-fixture.ts';

test('a listing judges a node only when it was requested after the last push of it had ended', () => {
  const store = new MemoryStore();
  const intents = new Intents(store);
  const steps = fc.array(fc.record({ what: fc.constantFrom('request', 'finish', 'push'), at: fc.nat(9) }), {
    maxLength: 60,
  });
  fc.assert(
    fc.property(steps, (made) => {
      const fence = new ListingFence({ store, intents });
      const underWay: { readonly sequence: number; readonly mayNot: Set<Inode> }[] = [];
      for (const { what, at } of made) {
        const ino = (100 + at) as Inode;
        if (what === 'request') underWay.push({ sequence: fence.nextSequence(), mayNot: new Set() });
        else if (what === 'push') {
          beginPush({ store, intents }, ino);
          endPush({ intents }, ino);
          for (const { mayNot } of underWay) mayNot.add(ino);
        } else {
          const [finished] = underWay.splice(at % Math.max(1, underWay.length), 1);
          if (finished !== undefined) fence.finish(finished.sequence);
        }
        for (const { sequence, mayNot } of underWay) {
          for (let each = 0; each < 10; each++) {
            const node = (100 + each) as Inode;
            expect(fence.mayJudge(node, sequence)).toBe(!mayNot.has(node));
          }
        }
        if (underWay.length === 0) expect(fence.remembered).toBe(0);
      }
    }),
  );
});

test('what is remembered does not grow with the pushes, though one listing or another is always on its way', () => {
  const store = new MemoryStore();
  const intents = new Intents(store);
  const fence = new ListingFence({ store, intents });
  let listing = fence.nextSequence();
  for (let round = 0; round < 100; round++) {
    for (let push = 0; push < 50; push++) {
      const ino = (100 + round * 50 + push) as Inode;
      beginPush({ store, intents }, ino);
      endPush({ intents }, ino);
    }
    const next = fence.nextSequence();
    fence.finish(listing);
    listing = next;
    expect(fence.remembered).toBeLessThanOrEqual(50);
  }
});
