import { closeSync, openSync, readSync, writeSync } from 'node:fs';
import { expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import type { ContentId, ResourceUrl, VersionUrl } from '../../src/base/vocabulary.ts';
import { ContentStore } from '../../src/bytes/content-store.ts';
import { isPresent } from '../../src/content/block-reader.ts';
import { replyOf } from '../../src/fs/read-reply.ts';
import type { FileSlice, ReadReply } from '../../src/kernel/binding.ts';
import { bytesOf } from '../../src/kernel/gathered-reply.ts';
import { countReference } from '../../src/store/node-table.ts';
import { ManualClock } from '../kernel/manual-clock.ts';
import { TemporaryStores } from '../store/temporary-store.ts';

const stores = new TemporaryStores();
const FILE = 'https://service.example/file/1' as ResourceUrl;
const MIB = 1024 * 1024;

/** A version of 4 MiB that is all here, in a cache that has room for 1 MiB; what is evicted is overwritten with zeros. */
async function crowdedCache() {
  const directory = stores.directory();
  const store = await stores.open(directory);
  const clock = new ManualClock();
  let evictedBytes = 0;
  const contents = new ContentStore({
    store,
    directory,
    clock,
    log: silentLogger,
    options: { inlineMaxBytes: 4096, cacheBytes: MIB },
    holes: {
      punchHole: (fd, offset, length) => {
        writeSync(fd, Buffer.alloc(length), 0, length, offset);
        evictedBytes += length;
      },
    },
  });
  const id = store.transact((tx) => {
    const made = contents.versionContent(tx, `${FILE}/version/1` as VersionUrl, FILE, 4 * MIB);
    countReference(tx, made, 1);
    return made;
  });
  const open = contents.lease(id); // as the handle has it
  const fd = openSync(contents.fetchPath(id) as string, 'r+');
  writeSync(fd, Buffer.alloc(4 * MIB, 'x'));
  closeSync(fd);
  contents.landed(id, { start: 0, end: 4 * MIB }, null);
  return { contents, clock, id, open, evicted: () => evictedBytes };
}

function read(contents: ContentStore, id: ContentId, start: number, end: number): ReadReply {
  const pieces = contents.pieces(id, { start, end });
  if (!isPresent(pieces)) throw new Error('evicted already');
  return replyOf(pieces, contents);
}

test('bytes that were answered stay where they are until they were copied, however long that takes', async () => {
  const { contents, clock, id, open, evicted } = await crowdedCache();
  const reply = read(contents, id, 2 * MIB, 2 * MIB + 8192) as readonly FileSlice[];
  const slice = reply[0] as FileSlice;

  clock.advance(3_600_000);
  contents.collect();
  expect(evicted()).toBe(0);
  open.release(); // the handle goes on with another content
  contents.collect();
  expect(evicted()).toBe(0);
  const bytes = Buffer.alloc(8192);
  readSync(slice.fd, bytes, 0, 8192, slice.position);
  expect(bytes.equals(Buffer.alloc(8192, 'x'))).toBe(true);

  slice.sent?.();
  contents.collect();
  expect(evicted()).toBeGreaterThan(0);
});

test('the lease of a reply ends with the last of its readers, once each', async () => {
  const { contents, clock, id, evicted } = await crowdedCache();
  const [one] = read(contents, id, 0, 4096) as readonly FileSlice[];
  const [two] = read(contents, id, 0, 4096) as readonly FileSlice[];
  clock.advance(3_600_000);

  one?.sent?.();
  one?.sent?.();
  contents.collect();
  expect(evicted()).toBe(0);

  two?.sent?.();
  contents.collect();
  expect(evicted()).toBeGreaterThan(0);
});

test('a reply that cannot be read gives its leases back too', () => {
  let sent = 0;
  const broken: FileSlice = { fd: -1, position: 0, length: 1, sent: () => sent++ };

  expect(() => bytesOf([broken, Buffer.of(1), broken])).toThrow();

  expect(sent).toBe(2);
});
