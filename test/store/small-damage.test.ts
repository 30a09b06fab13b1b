import { closeSync, openSync, readdirSync, readFileSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { StorageError } from '../../src/base/errors.ts';
import { createLogger } from '../../src/base/log.ts';
import type { ContentId, Inode, ResourceUrl, VersionUrl } from '../../src/base/vocabulary.ts';
import { ContentStore } from '../../src/bytes/content-store.ts';
import type { Store } from '../../src/store/environment.ts';
import { writeNode } from '../../src/store/node-table.ts';
import { sampleLocal, sampleNode } from './sample-records.ts';
import { SeededRandom } from './seeded-random.ts';
import { TemporaryStores } from './temporary-store.ts';

const stores = new TemporaryStores();
const SIZE = 3_000;
const BYTES = Buffer.from(Array.from({ length: SIZE }, (_, at) => (at * 7 + (at >> 8)) & 0xff));
const ALL = { start: 0, end: SIZE };

function contentsOf(store: Store, directory: string, lines: string[] = [], inlineMaxBytes = 16 * 1024): ContentStore {
  const log = createLogger({ level: 'warn', destination: { write: (line: string) => void lines.push(line) } });
  const options = { inlineMaxBytes, cacheBytes: 2 ** 30 };
  return new ContentStore({ store, directory, clock: systemClock, log, options });
}

/** A store with one small content, which a node names: a version that was fetched, or a frozen draft. */
async function storeWith(kind: 'version' | 'draft'): Promise<{ directory: string; store: Store; id: ContentId }> {
  const directory = stores.directory();
  const store = await stores.open(directory);
  const contents = contentsOf(store, directory);
  const id = store.transact((tx) => {
    const content =
      kind === 'version'
        ? contents.versionContent(tx, 'http://s/v' as VersionUrl, 'http://s/f' as ResourceUrl, SIZE)
        : contents.createDraft(tx, null);
    const local = sampleLocal(1, 'f', { content, sizeBytes: SIZE });
    writeNode(tx, undefined, { ...sampleNode(2), ino: 2 as Inode, local }, 0);
    return content;
  });
  if (kind === 'version') contents.landed(id, ALL, BYTES);
  else {
    contents.write(id, 0, BYTES);
    store.transact((tx) => contents.seal(tx, id));
  }
  contents.close();
  return { directory, store, id };
}

/** Changes one bit of the small content where it lies in LMDB's file. */
function flipInIndex(directory: string, random: SeededRandom): void {
  const path = join(directory, 'index', 'data.mdb');
  const file = readFileSync(path);
  const at = file.indexOf(BYTES);
  expect(at).toBeGreaterThan(0);
  const byte = at + random.below(SIZE);
  file.writeUInt8(file.readUInt8(byte) ^ (1 << random.below(8)), byte);
  writeFileSync(path, file);
}

const SEEDS = Array.from({ length: 12 }, (_, seed) => seed + 1);

test.each(SEEDS)('a bit that flips in a small version heals by fetching it (SEED=%i)', async (seed) => {
  const { directory, store, id } = await storeWith('version');
  await store.close();
  flipInIndex(directory, new SeededRandom(seed));

  const again = await stores.open(directory);
  const lines: string[] = [];
  const contents = contentsOf(again, directory, lines);

  expect(contents.pieces(id, ALL)).toMatchObject([{ kind: 'missing', content: id }]);
  expect(contents.readAll(id, ALL)).toBeNull();
  expect(lines.filter((line) => line.includes('damaged'))).toHaveLength(1);
  contents.landed(id, ALL, BYTES);
  expect(Buffer.compare(Buffer.from(contents.readAll(id, ALL) as Uint8Array), BYTES)).toBe(0);
  contents.close();
});

test('a damaged version that is not small any more, for --inline-max is lower now, heals in a file', async () => {
  const { directory, store, id } = await storeWith('version');
  await store.close();
  flipInIndex(directory, new SeededRandom(1));

  const again = await stores.open(directory);
  const contents = contentsOf(again, directory, [], 1024);
  await contents.takeStock(new AbortController().signal);
  expect(contents.readAll(id, ALL)).toBeNull();
  const fd = openSync(contents.fetchPath(id) as string, 'r+');
  writeSync(fd, BYTES);
  closeSync(fd);
  contents.landed(id, ALL, null);

  expect(Buffer.compare(Buffer.from(contents.readAll(id, ALL) ?? []), BYTES)).toBe(0);
  contents.collect();
  expect(contents.usage().cacheBytes).toBe(4096);
  contents.close();
  await again.close();
  const third = await stores.open(directory);
  expect(contentsOf(third, directory, [], 1024).readAll(id, ALL)).not.toBeNull();
  expect(third.get('inline', id)).toBeUndefined();
});

test('a damaged version for which the disk has no room is read from memory, and not fetched again and again', async () => {
  const { directory, store, id } = await storeWith('version');
  await store.close();
  flipInIndex(directory, new SeededRandom(1));

  const again = await stores.open(directory);
  const contents = contentsOf(again, directory);
  again.transact = () => {
    throw new StorageError('no room', { full: true });
  };
  expect(contents.readAll(id, ALL)).toBeNull();
  expect(contents.fetchPath(id)).toBeNull();
  contents.landed(id, ALL, BYTES);

  expect(Buffer.compare(Buffer.from(contents.readAll(id, ALL) ?? []), BYTES)).toBe(0);
  contents.close();
});

test.each(SEEDS)('a bit that flips in a small change is EIO and one line in the log (SEED=%i)', async (seed) => {
  const { directory, store, id } = await storeWith('draft');
  await store.close();
  flipInIndex(directory, new SeededRandom(seed));

  const again = await stores.open(directory);
  const lines: string[] = [];
  const contents = contentsOf(again, directory, lines);

  for (let read = 0; read < 3; read++)
    expect(() => contents.pieces(id, ALL)).toThrow(expect.objectContaining({ errno: 'EIO' }));
  expect(lines.filter((line) => line.includes('damaged'))).toHaveLength(1);
  contents.close();
});

test.each(SEEDS)('a bit that flips in the journal never gives wrong bytes (SEED=%i)', async (seed) => {
  const { directory, store, id } = await storeWith('draft');
  const copy = stores.copyOf(directory);
  await store.close();
  const random = new SeededRandom(seed);
  const journal = join(copy, 'journal');
  for (const name of readdirSync(journal)) {
    const file = readFileSync(join(journal, name));
    const used = file.length - [...file].reverse().findIndex((byte) => byte !== 0);
    if (used > file.length) continue;
    const byte = random.below(used);
    file.writeUInt8(file.readUInt8(byte) ^ (1 << random.below(8)), byte);
    writeFileSync(join(journal, name), file);
  }

  const again = await stores.open(copy);
  const contents = contentsOf(again, copy);

  const record = again.get('content', id);
  if (record !== undefined && record.sizeBytes > 0) {
    const bytes = contents.readAll(id, { start: 0, end: record.sizeBytes });
    expect(bytes === null ? BYTES : Buffer.from(bytes)).toEqual(BYTES.subarray(0, record.sizeBytes));
  }
  contents.close();
});
