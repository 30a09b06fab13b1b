import { afterEach, beforeEach, expect, test } from 'vitest';
import { BLOCK_BYTES, type ContentId, type Extent, type Inode } from '../../src/base/vocabulary.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';
import { SeededRandom } from '../store/seeded-random.ts';
import { VersionService } from './version-service.ts';

const MIB = 1024 * 1024;
const HALF = BLOCK_BYTES / 2;
const PAGE = 4096;

let service: VersionService;
let side: FileSystemSide;
let mount: InProcessMount;

beforeEach(async () => {
  service = new VersionService();
  side = await FileSystemSide.build({ listing: service, source: service });
  mount = new InProcessMount(side.fileSystem);
});

afterEach(() => side.close());

function bytesOf(length: number): Buffer {
  const words = new Uint32Array(Math.ceil(length / 4));
  for (let at = 0; at < words.length; at++) words[at] = Math.imul(at + 1, 0x9e3779b1);
  return Buffer.from(words.buffer, 0, length);
}

/** A file whose version is known, so that each read costs the requests for its bytes only. */
async function openFile(bytes: Buffer): Promise<number> {
  service.put('file', bytes);
  const fd = await mount.open('file', 'r');
  await mount.read(fd, 0, 1);
  service.fetches.length = 0;
  return fd;
}

/** Reads and compares, and returns the extents that were requested for it. */
async function readAt(fd: number, bytes: Buffer, at: number, length = PAGE): Promise<readonly Extent[]> {
  const before = service.fetches.length;
  const read = await mount.read(fd, at, length);
  expect(Buffer.compare(read, bytes.subarray(at, at + length))).toBe(0);
  return service.fetches.slice(before).map(({ extent }) => extent);
}

async function contentOfFile(): Promise<ContentId> {
  const { ino } = await mount.stat('file');
  const content = side.store.get('node', Number(ino) as Inode)?.local?.content;
  if (content == null) throw new Error('the file has no content');
  return content;
}

async function isCached(block: number): Promise<boolean> {
  const extent = { start: block * BLOCK_BYTES, end: (block + 1) * BLOCK_BYTES };
  return side.contents.pieces(await contentOfFile(), extent).every(({ kind }) => kind === 'slice');
}

test('a short read at a random place fetches half a block, and its neighbours in the half nothing', async () => {
  const bytes = bytesOf(8 * MIB);
  const fd = await openFile(bytes);
  const at = 5 * MIB + HALF;

  expect(await readAt(fd, bytes, at + PAGE)).toEqual([{ start: at, end: at + HALF }]);
  expect(await readAt(fd, bytes, at + 9 * PAGE)).toEqual([]);
  expect(await readAt(fd, bytes, at + 5 * PAGE)).toEqual([]);
  await mount.close(fd);
});

test('both halves of a block are fetched once, and then are in the cache', async () => {
  const bytes = bytesOf(8 * MIB);
  const fd = await openFile(bytes);
  const block = 40;
  const at = block * BLOCK_BYTES;

  expect(await readAt(fd, bytes, at + HALF + 5 * PAGE)).toEqual([{ start: at + HALF, end: at + BLOCK_BYTES }]);
  expect(await isCached(block)).toBe(false);
  expect(await readAt(fd, bytes, at + 7 * PAGE)).toEqual([{ start: at, end: at + HALF }]);
  await expect.poll(() => isCached(block)).toBe(true);
  const again = await mount.open('file', 'r');
  expect(await readAt(again, bytes, at, 2 * PAGE)).toEqual([]);
  await mount.close(again);
  await mount.close(fd);
});

test('a half that has left the memory comes with its whole block, which then is in the cache', async () => {
  const bytes = bytesOf(20 * MIB);
  const fd = await openFile(bytes);
  const offsets = Array.from({ length: 140 }, (_, at) => (1 + ((at * 97) % 151)) * BLOCK_BYTES + 3 * PAGE);
  for (const at of offsets) expect((await readAt(fd, bytes, at)).map(({ start, end }) => end - start)).toEqual([HALF]);
  const first = (offsets[0] as number) - 3 * PAGE;

  expect(await readAt(fd, bytes, first + HALF + 7 * PAGE)).toEqual([{ start: first + HALF, end: first + BLOCK_BYTES }]);
  expect(await readAt(fd, bytes, first + 3 * PAGE)).toEqual([{ start: first, end: first + BLOCK_BYTES }]);
  expect(await isCached(first / BLOCK_BYTES)).toBe(true);
  await mount.close(fd);
});

test('a read across the middle of a block, one in the first block and one in a short last block fetch whole blocks', async () => {
  const bytes = bytesOf(4 * MIB + HALF);
  service.put('other', bytes);
  const fd = await openFile(bytes);
  const at = 3 * MIB;

  expect(await readAt(fd, bytes, at + HALF - 10, 20)).toEqual([{ start: at, end: at + BLOCK_BYTES }]);
  expect(await readAt(fd, bytes, 4 * MIB + 10, 20)).toEqual([{ start: 4 * MIB, end: 4 * MIB + HALF }]);
  await expect.poll(() => isCached(32)).toBe(true);
  await mount.close(fd);
  const other = await mount.open('other', 'r');
  service.fetches.length = 0;
  await mount.read(other, 5 * PAGE, PAGE);
  expect(service.fetches.map(({ extent }) => extent)).toEqual([{ start: 0, end: BLOCK_BYTES }]);
  await mount.close(other);
});

test('short reads of one half at the same time cost one request', async () => {
  const bytes = bytesOf(8 * MIB);
  const fd = await openFile(bytes);
  let open = (): void => {};
  service.gate = new Promise((resolve) => {
    open = resolve;
  });

  const reads = [1, 5, 9].map((page) => mount.read(fd, 2 * MIB + page * PAGE, PAGE));
  open();
  const [first] = await Promise.all(reads);

  expect(Buffer.compare(first as Buffer, bytes.subarray(2 * MIB + PAGE, 2 * MIB + 2 * PAGE))).toBe(0);
  const requested = service.fetches.filter(({ extent }) => extent.start <= 2 * MIB && 2 * MIB < extent.end);
  expect(requested).toHaveLength(1);
  await mount.close(fd);
});

test('a half is never counted as a part of the file that is here: the file is complete only with its blocks', async () => {
  const bytes = bytesOf(2 * MIB);
  const fd = await openFile(bytes);
  await readAt(fd, bytes, MIB + PAGE);
  const content = await contentOfFile();

  await side.reader.complete(content, { start: 0, end: MIB + 2 * PAGE }, new AbortController().signal);

  expect(side.contents.pieces(content, { start: MIB, end: MIB + 2 * PAGE }).map(({ kind }) => kind)).toEqual(['slice']);
  await mount.close(fd);
});

test('a service that ignores ranges is asked for half a block once, and then for the file', async () => {
  const bytes = bytesOf(3 * MIB);
  const fd = await openFile(bytes);
  service.ignoresRange = true;

  expect((await readAt(fd, bytes, MIB + PAGE)).map(({ start, end }) => end - start)).toEqual([HALF, BLOCK_BYTES]);
  expect(await readAt(fd, bytes, 2 * MIB + PAGE)).toEqual([]);
  expect(await readAt(fd, bytes, MIB, MIB)).toEqual([]); // the whole file came
  await mount.close(fd);
});

test('a half of a version that the service has dropped fails as any read of it', async () => {
  const { version } = service.put('file', bytesOf(8 * MIB));
  const fd = await mount.open('file', 'r');
  await mount.read(fd, 0, 1);
  service.dropVersion(version);

  await expect(mount.read(fd, 5 * MIB, PAGE)).rejects.toMatchObject({ errno: 'ESTALE' });
  await mount.close(fd);
});

test('random reads have the bytes of the file, and cost at most 64 KiB each, or whole blocks at places read repeatedly', async () => {
  const random = new SeededRandom(20261128);
  const bytes = bytesOf(12 * MIB + 70_001);
  const fd = await openFile(bytes);
  let fetched = 0;
  for (let read = 0; read < 400; read++) {
    const at = Math.floor(random.next() * bytes.byteLength);
    const length = Math.min(1 + Math.floor(random.next() * PAGE), bytes.byteLength - at);
    for (const { start, end } of await readAt(fd, bytes, at, length)) fetched += end - start;
  }
  // Each block at most as two halves that left the memory, and whole once.
  expect(fetched).toBeLessThanOrEqual(Math.ceil(bytes.byteLength / BLOCK_BYTES) * (2 * HALF + BLOCK_BYTES));
  await mount.close(fd);
});
