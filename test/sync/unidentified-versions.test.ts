import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { ApiError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { RemoteVersion } from '../../src/base/resources.ts';
import {
  type ContentId,
  type Inode,
  type ResourceUrl,
  ROOT_INODE,
  type VersionUrl,
} from '../../src/base/vocabulary.ts';
import type { Contents } from '../../src/bytes/contents.ts';
import { Intents } from '../../src/store/intents.ts';
import { writeNode } from '../../src/store/node-table.ts';
import { UnidentifiedVersions } from '../../src/sync/unidentified-versions.ts';
import { SyncedSide } from '../harness/synced-side.ts';
import { sampleContent, sampleLocal, sampleNode, sampleRemote } from '../store/sample-records.ts';
import { SeededRandom } from '../store/seeded-random.ts';
import { MemoryStore } from '../tree/memory-store.ts';
import { ManualClock } from '../tree/tree-fixture.ts';
import { type Fate, MODEL_ROOT } from './model-service.ts';

/** What was made here has room in the cache like what was fetched: it goes when the budget is spent, and comes back when read. */
const BUDGET_BYTES = 100_000;
let world: SyncedSide;
beforeEach(async () => {
  world = await SyncedSide.build({ contents: { cacheBytes: BUDGET_BYTES, inlineMaxBytes: 4096 } });
});
afterEach(() => world.close());

const random = new SeededRandom(20261120);
/** Each lives in a file of its own. */
const IN_FILE = 15_000;
/** Some live beside their names, some in files. */
const LENGTHS = Array.from({ length: 60 }, (_, i) => (i % 3 === 0 ? 100 + i : 9_000 + i * 13));
const bytesOf = (length: number): Buffer => Buffer.from(random.bytes(length));

async function make(lengths: readonly number[]): Promise<Map<string, Buffer>> {
  const made = new Map<string, Buffer>();
  for (const [i, length] of lengths.entries()) {
    const bytes = bytesOf(length);
    made.set(`f${i}`, bytes);
    await world.mount.writeFile(`f${i}`, bytes);
  }
  await world.converge();
  return made;
}

function kept(): number {
  const { cacheBytes, draftBytes } = world.side.contents.usage();
  return cacheBytes + draftBytes;
}

async function calm(): Promise<void> {
  for (let i = 0; i < 20; i++) await world.pass(1_000);
}

const contentsThere = (): number => [...world.side.store.all('content')].length;
/** What is not named yet, and so cannot be given back. */
const drafts = (): number => [...world.side.store.all('content')].filter(([, { kind }]) => kind === 'draft').length;
const historiesAsked = (): number => world.service.requests.filter((name) => name.startsWith('versions')).length;

describe('[S-cache-1] files that were made here', () => {
  test('pushed local files are evicted when the cache exceeds its budget, and are read again unchanged', async () => {
    const made = await make(LENGTHS);
    await calm();
    expect(kept()).toBeLessThanOrEqual(BUDGET_BYTES);

    for (const [name, bytes] of made) {
      expect(Buffer.compare(await world.mount.readFile(name), bytes), name).toBe(0);
    }
    await calm();
    expect(kept()).toBeLessThanOrEqual(BUDGET_BYTES);
    expect(world.sync.status().pending).toBe(0);
  });

  test('pushed local files cost no request for their version names while the cache has room', async () => {
    await make([1_000, 20_000, 30_000]);
    await calm();

    expect(historiesAsked()).toBe(0);
    expect(kept()).toBe(51_000);
  });

  test('a pushed local file that was changed elsewhere is not identified with the newer version', async () => {
    const made = await make([90_000]);
    const [file] = world.service.childrenOf(MODEL_ROOT);
    world.service.addVersion(file?.url as ResourceUrl, bytesOf(90_000));
    await world.mount.writeFile('more', bytesOf(70_000));
    await world.converge();
    await calm();
    expect(historiesAsked()).toBeGreaterThan(0);
    const ino = world.side.store.get('resource', file?.url as ResourceUrl) ?? 0;
    const content = world.side.store.get('node', ino as Inode)?.local?.content as ContentId;
    expect(world.side.contents.record(content)).toMatchObject({ kind: 'draft', version: null });
    expect(Buffer.compare(await world.mount.readFile('f0'), made.get('f0') as Buffer)).toBe(0);
  });

  test('pushed local files are not taken for a remote save if the service keeps no old versions', async () => {
    world.service.keptVersions = 0;
    await make([20_000, 60_000]);
    await world.side.freshness.refresh(ROOT_INODE);
    const file = world.service.childrenOf(MODEL_ROOT).find(({ name }) => name === 'f1');
    const theirs = bytesOf(60_000);
    world.service.addVersion(file?.url as ResourceUrl, theirs);
    await world.mount.writeFile('more', bytesOf(30_000)); // room is needed for less than is there
    await world.converge();
    await calm();
    expect(historiesAsked()).toBe(3);

    await world.side.freshness.refresh(ROOT_INODE);
    expect(Buffer.compare(await world.mount.readFile('f1'), theirs)).toBe(0);
  });

  test('local files are never evicted before the service has them', async () => {
    world.service.auto = null;
    const made = new Map<string, Buffer>();
    for (let i = 0; i < 20; i++) {
      made.set(`f${i}`, bytesOf(10_000));
      await world.mount.writeFile(`f${i}`, made.get(`f${i}`) as Buffer);
    }
    await calm();
    expect(kept()).toBe(200_000);
    for (const [name, bytes] of made) expect(Buffer.compare(await world.mount.readFile(name), bytes), name).toBe(0);
  });

  test.each<[string, Fate]>([
    ['429', { type: 'refuse', status: 429 }],
    ['500', { type: 'refuse', status: 500 }],
    ['401', { type: 'refuse', status: 401 }],
    ['a lost answer', { type: 'lose-reply' }],
  ])(
    'names of versions are requested after a growing pause while the service answers with %s, and all of them later',
    async (_, fate) => {
      world.service.auto = (name) => (name.startsWith('versions') ? fate : { type: 'answer' });
      await make(Array.from({ length: 200 }, () => IN_FILE));
      await calm();
      expect(historiesAsked()).toBeGreaterThan(0);
      for (let second = 0; second < 3_600; second++) await world.pass(1_000);
      expect(historiesAsked()).toBeLessThanOrEqual(25);
      expect(drafts()).toBe(200);

      // A pause has just begun: what is given up goes without waiting for its end.
      const asked = historiesAsked();
      for (let second = 0; second < 900 && historiesAsked() === asked; second++) await world.pass(1_000);
      await world.mount.unlink('f0');
      for (let second = 0; second < 60; second++) await world.pass(1_000);
      // What a busy disk takes for it is no time of the model's.
      const isGivenUp = async (): Promise<boolean> => {
        await world.pass(1_000);
        return contentsThere() === 199;
      };
      await vi.waitUntil(isGivenUp, { timeout: 20_000 });
      expect(historiesAsked()).toBe(asked + 1);

      world.service.auto = () => ({ type: 'answer' });
      for (let second = 0; second < 900; second++) await world.pass(1_000);
      for (let round = 0; round < 8; round++) world.side.contents.collect(); // as the housekeeping of a mount does
      expect(kept()).toBeLessThanOrEqual(BUDGET_BYTES);
      expect(drafts()).toBeLessThanOrEqual(BUDGET_BYTES / IN_FILE);
    },
  );

  test('names of versions are requested no earlier than Retry-After allows', async () => {
    let isRefused = false;
    const { service } = world;
    const versions = service.versions.bind(service);
    service.versions = async (file, signal) => {
      if (isRefused) return versions(file, signal);
      isRefused = true;
      throw new ApiError(503, 'GET', 'busy', { retryAfterMs: 300_000 });
    };
    await make(Array.from({ length: 60 }, () => IN_FILE));
    await calm();
    expect(isRefused).toBe(true);
    for (let second = 0; second < 250; second++) await world.pass(1_000);
    expect(historiesAsked()).toBeLessThanOrEqual(3); // asked at the same moment
    for (let second = 0; second < 100; second++) await world.pass(1_000);
    expect(drafts()).toBeLessThanOrEqual(BUDGET_BYTES / IN_FILE);
  });

  test('a version that the service never names is asked for once, and blocks no other', async () => {
    const gone = new Set<string>();
    world.service.auto = (name) => {
      if (name.startsWith('versions') && gone.size < 50) gone.add(name);
      return gone.has(name) ? { type: 'refuse', status: 404 } : { type: 'answer' };
    };
    await make(Array.from({ length: 60 }, () => IN_FILE));
    await calm();
    for (let second = 0; second < 900; second++) await world.pass(1_000);
    expect(drafts()).toBe(50);
    expect(historiesAsked()).toBe(60);
  });
});

describe('a first upload that is racily clean', () => {
  /** A file of `bytes`, pushed by a plain PUT and held open; another save with the same length and time may have replaced it. */
  async function heldOpen(bytes: Buffer): Promise<{ readonly fd: number; readonly file: ResourceUrl }> {
    await world.mount.writeFile('f', bytes);
    await world.converge();
    const fd = await world.mount.open('f', 'r+');
    await world.mount.read(fd, 0, 1);
    const { ino } = await world.mount.stat('f');
    const file = world.service.childrenOf(MODEL_ROOT)[0]?.url as ResourceUrl;
    const ms = world.service.history(file)[0]?.lastModifiedMs as number;
    world.side.store.transact((tx) => {
      const node = tx.get('node', ino);
      if (node?.remote == null) throw new Error('the service has the file');
      writeNode(tx, node, { ...node, remote: { ...node.remote, modified: { ms, certainty: 'suspect' } } }, 0);
    });
    return { fd, file };
  }

  async function saveAfterRefresh(fd: number): Promise<void> {
    await world.side.freshness.refresh();
    await world.mount.write(fd, 0, Buffer.from('S'));
    await world.mount.close(fd);
    await world.converge();
  }

  test('is its own base: a save after a refresh is a version of it, and nothing is fetched again', async () => {
    const { fd, file } = await heldOpen(bytesOf(9_000));

    await saveAfterRefresh(fd);

    expect(world.service.childrenOf(MODEL_ROOT).map(({ name }) => name)).toEqual(['f']);
    expect(world.service.history(file)).toHaveLength(2);
  });

  test.each([5, 0])(
    'is not taken for another save of the same length and time, with %i old versions kept',
    async (kept) => {
      world.service.keptVersions = kept;
      const { fd, file } = await heldOpen(bytesOf(9_000));
      const theirs = bytesOf(9_000);
      world.service.addVersion(file, theirs, world.service.history(file)[0]?.lastModifiedMs as number);

      await saveAfterRefresh(fd);

      const contents = world.service.childrenOf(MODEL_ROOT).map(({ url }) => world.service.bytesOf(url));
      expect(contents.some((bytes) => bytes?.equals(theirs))).toBe(true);
    },
  );
});

test('a damaged row of a pushed local file blocks no other name', async () => {
  const store = new MemoryStore();
  const ids = Array.from({ length: 10 }, (_, n) =>
    store.transact((tx) => {
      const [content, ino] = [tx.nextId('content') as ContentId, (n + 2) as Inode];
      const resource = `m:file/${n}` as ResourceUrl;
      tx.put(
        'content',
        content,
        sampleContent({ sealed: true, sizeBytes: 5, version: null, resource, base: null, refs: 0 }),
      );
      const local = sampleLocal(1, `f${n}`, { content });
      const remote = sampleRemote(1, `f${n}`, { content, resource, modified: null });
      writeNode(tx, undefined, sampleNode(ino, { local, remote }), 0);
      return content;
    }),
  );
  const [lost, inLoad, asked] = [ids[1], ids[3], ids[6]] as [ContentId, ContentId, ContentId];
  store.damage('content', inLoad);
  store.damage('node', (ids.indexOf(asked) + 2) as Inode);
  const adopted: ContentId[] = [];
  const contents = {
    overBudgetBytes: () => 1,
    sizeOf: () => 5,
    adopt: (_: unknown, content: ContentId) => adopted.push(content),
  } as unknown as Contents;
  const history = (file: ResourceUrl): readonly RemoteVersion[] => [
    { url: `${file}/version/1` as VersionUrl, sizeBytes: 5, complete: true, lastModifiedMs: null, mediaType: null },
  ];
  const uploads = {
    versions: async (file: ResourceUrl) => {
      if (file === 'm:file/0') store.damage('content', lost); // it was sound when the row of those to be asked for was made
      return history(file);
    },
  };
  const unidentifiedVersions = new UnidentifiedVersions({
    store,
    contents,
    intents: new Intents(store),
    uploads,
    clock: new ManualClock(),
    log: silentLogger,
  });

  await unidentifiedVersions.nameVersions(new AbortController().signal);

  expect(unidentifiedVersions.pauseMs).toBe(0);
  expect(unidentifiedVersions.isNeeded).toBe(false);
  expect(adopted.sort((one, other) => one - other)).toEqual(ids.filter((id) => ![lost, inLoad, asked].includes(id)));
});
