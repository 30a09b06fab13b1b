import { beforeEach, expect, test } from 'vitest';
import { FsError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import { type Inode, type ResourceUrl, ROOT_INODE, type VersionUrl } from '../../src/base/vocabulary.ts';
import { RefusedReads } from '../../src/fs/refused-reads.ts';
import { type CachedPicture, type ThumbnailCache, ThumbnailsAhead } from '../../src/fs/thumbnails-ahead.ts';
import type { NodeRecord } from '../../src/store/tables.ts';
import { NodeChanges } from '../../src/tree/node-changes.ts';
import { type Fixture, file, makeTree, merge } from '../tree/tree-fixture.ts';

const QUIET_MS = 5_000;

let fixture: Fixture;
/** Requests to the service, in order: the names. */
let requests: string[];
/** Gives the answer to a request; by default 10 bytes. */
let answer: (name: string) => Promise<Uint8Array | null>;
let cache: ThumbnailCache & {
  readonly kept: string[];
  readonly retried: string[];
  isInstalled: boolean;
  had: string[];
};
let ahead: ThumbnailsAhead;

beforeEach(() => {
  fixture = makeTree();
  requests = [];
  answer = async () => Buffer.alloc(10);
  cache = {
    kept: [],
    retried: [],
    isInstalled: true,
    had: [],
    async missing(pictures: readonly CachedPicture[]) {
      if (!this.isInstalled) return [];
      return pictures.flatMap(({ path }, at) => (this.had.includes(path) ? [] : [at]));
    },
    async keep({ path }) {
      this.kept.push(path);
    },
    async retry(paths) {
      this.retried.push(...paths);
      return paths;
    },
  };
  const { tree, store, clock } = fixture;
  ahead = new ThumbnailsAhead({
    ...{ tree, store, cache, clock, log: silentLogger, shutdown: new AbortController().signal },
    fetch: (picture) => ask(picture.split('/').at(-1) ?? ''),
  });
});

function ask(name: string): Promise<Uint8Array | null> {
  requests.push(name);
  return answer(name);
}

/** Pictures in the root: `p000`, `p001`… and as many files of another kind. */
function fill(count: number): void {
  const names = Array.from({ length: count }, (_, at) => `p${String(at).padStart(3, '0')}`);
  merge(fixture, ROOT_INODE, [
    ...names.map((name) => file(name, name)),
    ...names.map((name) => file(`x${name}`, `x${name}`)),
  ]);
}

const sourceOf = ({ local, remote }: NodeRecord): ResourceUrl | VersionUrl | null =>
  local?.name.startsWith('p') ? (remote?.resource ?? null) : null;

function read(name: string): Promise<Uint8Array | null> {
  const node = fixture.tree.child(ROOT_INODE, name);
  if (node === undefined) throw new Error(`no ${name}`);
  return ahead.read(node, sourceOf, () => ask(name));
}

/** Until the requests of the pictures that follow are over. */
async function settled(count: number): Promise<void> {
  await expect.poll(() => requests.length, { interval: 1 }).toBe(count);
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
  expect(requests).toHaveLength(count);
}

async function quiet(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) {
    fixture.clock.advance(QUIET_MS);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** [S-desktop-4] */
test('the first read fetches the pictures that follow, at most 200, and each is requested once', async () => {
  fill(450);

  await read('p100');
  await settled(201);
  for (let at = 101; at < 301; at++) await read(`p${at}`);
  expect(new Set(requests).size).toBe(201);
  expect(requests).toHaveLength(201);
  await read('p301');
  // 148 to the end of the folder, then 52 from its beginning.
  await settled(402);
  expect(requests.slice(202)).toContain('p051');
  expect(requests.slice(202)).not.toContain('p052');
});

test('pictures that programs read at the same moment are requested once', async () => {
  fill(6);
  const late: (() => void)[] = [];
  answer = (name) =>
    new Promise((resolve) => {
      if (name === 'p001') late.push(() => resolve(Buffer.alloc(10)));
      else resolve(Buffer.alloc(10));
    });
  let look: (() => void) | null = null;
  const missing = cache.missing.bind(cache);
  cache.missing = async (pictures) => {
    await new Promise<void>((resolve) => {
      look = resolve;
    });
    return missing(pictures);
  };

  const reading = [read('p001')];
  await read('p000');
  // While the batch is still being chosen.
  await expect.poll(() => look, { interval: 1 }).not.toBeNull();
  await read('p002');
  (look as (() => void) | null)?.();
  await settled(6);
  for (const end of late) end();
  await Promise.all(reading);
  expect([...requests].sort()).toEqual(['p000', 'p001', 'p002', 'p003', 'p004', 'p005']);
});

test('a read of a picture whose turn has not come asks itself, and starts no second batch', async () => {
  fill(300);
  let goOn = (): void => {};
  const held = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  answer = async (name) => {
    if (name !== 'p000' && name !== 'p150') await held;
    return Buffer.alloc(10);
  };

  await read('p000');
  await settled(5);
  await read('p150');
  goOn();
  await settled(201);

  expect(new Set(requests).size).toBe(201);
  expect(requests).not.toContain('p201');
});

/** [S-desktop-4] */
test('what no program has read is cached when the folder has been quiet for five seconds, and nothing else', async () => {
  fill(4);
  cache.had = ['p003'];

  await read('p000');
  await settled(3);
  await read('p001');
  expect(cache.kept).toEqual([]);
  await quiet();

  expect(requests).toEqual(['p000', 'p001', 'p002']);
  expect(cache.kept).toEqual(['p002']);
});

/** [S-desktop-4] */
test('without the desktop integration, a read fetches nothing ahead', async () => {
  fill(10);
  cache.isInstalled = false;

  await read('p000');
  await read('p001');
  await quiet();

  expect(requests).toEqual(['p000', 'p001']);
  expect(cache.kept).toEqual([]);
});

test('a service that makes no small form is asked for one picture by each read', async () => {
  fill(10);
  answer = async () => null;

  expect(await read('p000')).toBeNull();
  expect(await read('p001')).toBeNull();
  await settled(2);
});

test('a picture that changed after it was fetched ahead is requested again', async () => {
  fill(3);
  await read('p000');
  await settled(3);
  cache.had = ['p000'];
  merge(fixture, ROOT_INODE, [file('p000', 'p000'), file('p001', 'p001', 77), file('p002', 'p002')]);

  await read('p001');
  await quiet();

  expect(requests).toEqual(['p000', 'p001', 'p002', 'p001']);
  expect(cache.kept).toEqual(['p002']);
});

test('a failure ahead ends the fetching, and a read of that picture asks itself', async () => {
  fill(50);
  const failing = new Set(['p001']);
  answer = async (name) => {
    if (!failing.has(name)) return Buffer.alloc(10);
    failing.clear();
    throw new FsError('ETIMEDOUT');
  };

  await read('p000');
  await expect.poll(() => requests.length, { interval: 1 }).toBeGreaterThan(4);
  await settled(requests.length);

  expect(requests.length).toBeLessThan(10);
  expect(await read('p001')).toHaveLength(10);
});

/** [S-desktop-5] */
test('the failure marks of exactly the files that were refused bytes are removed when the service answers', async () => {
  fill(3);
  const { store, clock } = fixture;
  const changes = new NodeChanges();
  const refused = new RefusedReads({ store, clock, cache, health: { answers: 0 }, changes });
  const inoOf = (name: string): Inode => fixture.tree.child(ROOT_INODE, name)?.ino ?? ROOT_INODE;
  const failed = (name: string, errno: 'ETIMEDOUT' | 'ENODATA'): Promise<unknown> =>
    refused.watched(inoOf(name), Promise.reject(new FsError(errno))).catch(() => {});

  const readable: Inode[] = [];
  changes.on('readable', (inos) => readable.push(...inos));

  await failed('p000', 'ETIMEDOUT');
  await failed('p001', 'ENODATA');
  expect(cache.retried).toEqual([]);
  await refused.watched(inoOf('p002'), Promise.resolve('bytes'));

  expect(cache.retried).toEqual(['p000']);
  // A thumbnailer notes its failure a moment later.
  clock.advance(QUIET_MS);
  expect(cache.retried).toEqual(['p000', 'p000']);
  // The cache here has a mark each time.
  await expect.poll(() => readable).toEqual([inoOf('p000'), inoOf('p000')]);
});

/** [S-desktop-5] */
test('failure marks are removed after any answer of a service that never counted as unreachable', async () => {
  fill(1);
  const { store, clock } = fixture;
  const health = { answers: 7 };
  const refused = new RefusedReads({ store, clock, cache, health, changes: new NodeChanges() });
  const ino = fixture.tree.child(ROOT_INODE, 'p000')?.ino ?? ROOT_INODE;
  await refused.watched(ino, Promise.reject(new FsError('ETIMEDOUT'))).catch(() => {});

  clock.advance(60_000);
  expect(cache.retried).toEqual([]);
  health.answers++;
  clock.advance(5_000);
  expect(cache.retried).toEqual(['p000']);
  clock.advance(60_000);
  expect(cache.retried).toEqual(['p000', 'p000']);
});
