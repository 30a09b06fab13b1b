import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { BLOCK_BYTES, type ContentId } from '../../src/base/vocabulary.ts';
import { ContentStore } from '../../src/bytes/content-store.ts';
import type { Store } from '../../src/store/environment.ts';
import { SeededRandom } from './seeded-random.ts';
import { TemporaryStores } from './temporary-store.ts';

const DIST = fileURLToPath(new URL('../../dist', import.meta.url));
const PAGE_BYTES = 4096;
const RUNS = Number(process.env.CFS_RUNS ?? 20);
const OPTIONS = { inlineMaxBytes: 4096, cacheBytes: 1e9 };
const stores = new TemporaryStores();

/**
 * Writes a block and makes it survive a power cut, says so, and overwrites it for ever with the numbers that follow; nothing
 * is flushed any more. This is what a database does between an fsync and the next.
 */
const CHILD = `
const [dist, directory, value, blockBytes] = process.argv.slice(1);
const { Store } = await import(dist + '/store/environment.js');
const { ContentStore } = await import(dist + '/bytes/content-store.js');
const { systemClock: clock } = await import(dist + '/base/clock.js');
const { silentLogger: log } = await import(dist + '/base/log.js');
const { writeSync } = await import('node:fs');
const store = await Store.open({ directory, log, clock });
const contents = new ContentStore({ store, directory, log, clock, options: ${JSON.stringify(OPTIONS)} });
const block = new Uint8Array(Number(blockBytes));
const draft = store.transact((tx) => {
  const id = contents.createDraft(tx, null);
  tx.put('meta', 'draft', id);
  return id;
});
contents.write(draft, 0, block.fill(Number(value)));
contents.write(draft, block.length, block);
store.transact((tx) => contents.flush(tx, draft));
await contents.syncFile(draft);
// As a mount does now and then: whatever it knows of blocks by now is stored.
contents.collect();
await store.sync();
writeSync(1, 'synced\\n');
for (let over = Number(value) + 1; ; over = over === 250 ? 1 : over + 1) {
  contents.write(draft, 0, block.fill(over));
  await new Promise((resolve) => setImmediate(resolve));
}
`;

async function killedInMidOverwrite(directory: string, value: number, delayMs: number): Promise<void> {
  const child = spawn(
    process.execPath,
    ['--input-type=module', '-e', CHILD, DIST, directory, String(value), String(BLOCK_BYTES)],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const ended = once(child, 'exit');
  for await (const line of createInterface({ input: child.stdout })) {
    expect(line).toBe('synced');
    setTimeout(() => child.kill('SIGKILL'), delayMs);
  }
  await ended;
  expect(child.signalCode, 'the child ended by our signal').toBe('SIGKILL');
}

function contentsOf(store: Store, directory: string): ContentStore {
  return new ContentStore({ store, directory, log: silentLogger, clock: systemClock, options: OPTIONS });
}

/** The numbers that the pages of block 0 hold, in order; every page holds one. */
function pagesOf(contents: ContentStore, draft: ContentId): number[] {
  const bytes = contents.readAll(draft, { start: 0, end: 2 * BLOCK_BYTES }) as Uint8Array;
  expect(bytes.byteLength).toBe(2 * BLOCK_BYTES);
  const pages: number[] = [];
  for (let at = 0; at < BLOCK_BYTES; at += PAGE_BYTES) {
    const page = bytes.subarray(at, at + PAGE_BYTES);
    expect(
      page.every((byte) => byte === page[0]),
      `page at ${at} is whole`,
    ).toBe(true);
    pages.push(page[0] as number);
  }
  return pages;
}

test(`a synced block that is being overwritten when SIGKILL comes reads as old or new bytes, never as EIO, ${RUNS} times`, {
  timeout: 10_000 + RUNS * 3000,
}, async () => {
  const seed = Number(process.env.SEED ?? 17);
  const random = new SeededRandom(seed);
  const directory = stores.directory();
  let overwritten = 0;
  for (let run = 0; run < RUNS; run++) {
    const value = 1 + random.below(200);
    await killedInMidOverwrite(directory, value, random.below(20));

    const store = await stores.open(directory);
    const contents = contentsOf(store, directory);
    const draft = store.get('meta', 'draft') as ContentId;
    const pages = pagesOf(contents, draft);
    // A write takes its pages in order: what of it was not done yet is of the one before. (The numbers may have come round once.)
    const [newest] = pages as [number];
    const before = newest - 1 || 250;
    const kinds = new Set(pages);
    kinds.delete(newest);
    kinds.delete(before);
    expect([...kinds], `SEED=${seed}, run ${run}`).toEqual([]);
    if (newest !== value) overwritten++;

    // Frozen now, it gets its checksums from what is there, and goes on reading so.
    store.transact((tx) => contents.seal(tx, draft));
    await expect.poll(() => [...store.scan('blocks', draft)].length, { interval: 2, timeout: 25_000 }).toBe(1);
    contents.close();
    await store.close();
    const again = await stores.open(directory);
    const reread = contentsOf(again, directory);
    expect(pagesOf(reread, draft)).toEqual(pages);
    reread.close();
    await again.close();
  }
  // Otherwise nothing was tested.
  expect(overwritten).toBeGreaterThan(0);
});
