import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import type { RemoteFile } from '../../src/base/resources.ts';
import { ServiceHealth } from '../../src/base/service-health.ts';
import { type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { Freshness } from '../../src/tree/freshness.ts';
import { checkStore, type Fixture, file, LookedAtService, makeTree, merge, namesIn, ROOT_URL } from './tree-fixture.ts';

const never = new AbortController().signal;
const PAGE = 100;
const LAST_START = 2 * (PAGE - 1);

let fixture: Fixture;
let service: LookedAtService;
let freshness: Freshness;
/** Answers the request for the last page. */
let answerLast: () => void;
/** Resolves once that request has been sent. */
let lastAsked: Promise<void>;

beforeEach(() => {
  fixture = makeTree();
  service = new LookedAtService();
  service.pageEntries = PAGE;
  const { tree, fence, clock } = fixture;
  freshness = new Freshness({
    ...{ tree, listing: service, fence, health: new ServiceHealth({ clock }), clock, log: silentLogger },
    options: { dirTtlMs: 30_000, openWaitMs: 500, readTimeoutMs: 7_000 },
  });
  const held = new Promise<void>((resolve) => {
    answerLast = resolve;
  });
  lastAsked = new Promise((asked) => {
    service.before = async (request) => {
      if (!request.endsWith(` ${LAST_START}`)) return;
      asked();
      await held;
    };
  });
});
afterEach(() => {
  freshness.stop();
  checkStore(fixture.store);
});

/** Three pages: of these, the last one is held back. */
const filesOf = (count = 2 * PAGE + 10, name = (n: number) => `name ${String(n).padStart(3, '0')}`): RemoteFile[] =>
  Array.from({ length: count }, (_, n) => file(`${n}`, name(n)));
const names = () => namesIn(fixture.tree, ROOT_INODE);
const isThere = (name: string) => fixture.tree.child(ROOT_INODE, name) !== undefined;

/** Until `entries` of the first two pages are merged. */
async function merged(entries = 2 * PAGE - 1): Promise<void> {
  await lastAsked;
  await vi.waitUntil(() => names().length === entries, { timeout: 20_000, interval: 1 });
}

test('pages of a first listing are merged before the last one arrives, and the folder is complete after it', async () => {
  service.put(ROOT_URL, ...filesOf());
  const listing = freshness.ensureListed(ROOT_INODE, never);
  await merged();
  expect(fixture.tree.isComplete(ROOT_INODE)).toBe(false);

  answerLast();
  await listing;
  expect(fixture.tree.isComplete(ROOT_INODE)).toBe(true);
  expect(names()).toEqual(filesOf().map(({ name }) => name));
});

test('entries of one name on different pages get the names that a listing in one page gives them', async () => {
  const files = filesOf(undefined, (n) => (n === 70 || n === 140 ? 'same.txt' : `name ${n}`));
  const other = makeTree();
  merge(other, ROOT_INODE, files);
  service.put(ROOT_URL, ...files);
  const listing = freshness.ensureListed(ROOT_INODE, never);
  await merged();

  answerLast();
  await listing;
  const byName = (of: Fixture) =>
    [...of.tree.children(ROOT_INODE)].map(({ name, node }) => [name, node.remote?.resource]);
  expect(byName(fixture).sort()).toEqual(byName(other).sort());
  // The pages that were merged are not kept.
  expect(service.requests.filter((request) => request === `list ${ROOT_URL} 0`)).toHaveLength(2);
});

test('entries of one name on one page are listed once', async () => {
  service.put(ROOT_URL, file('1', 'same.txt'), file('2', 'same.txt'));
  await freshness.ensureListed(ROOT_INODE, never);

  expect(names()).toEqual(['same (2).txt', 'same.txt']);
  expect(service.requests).toEqual([`list ${ROOT_URL} 0`]);
});

test('a folder that is listed page by page is merged page by page', async () => {
  const files = filesOf();
  service.put(ROOT_URL, ...files);
  service.pageEntries = 50; // too small to be requested side by side
  const asked: number[] = [];
  service.before = async () => {
    asked.push(names().length);
  };
  await freshness.ensureListed(ROOT_INODE, never);

  expect(names()).toEqual(files.map(({ name }) => name));
  expect(asked.at(-1)).toBeGreaterThanOrEqual(100);
});

test('an entry that moves to a later page under a new name has the new name', async () => {
  const files = filesOf();
  service.put(ROOT_URL, ...files);
  const listing = freshness.ensureListed(ROOT_INODE, never);
  await merged();
  expect(isThere('name 005')).toBe(true);
  // At the position that the last page repeats, every later entry keeps its own.
  files[files.length - 1] = { ...(files[5] as RemoteFile), name: 'renamed' };
  service.folders.set(ROOT_URL, files);

  answerLast();
  await listing;
  expect(isThere('name 005')).toBe(false);
  expect(isThere('renamed')).toBe(true);
});

test('a file that is deleted here between two pages stays deleted', async () => {
  service.put(ROOT_URL, ...filesOf());
  const listing = freshness.ensureListed(ROOT_INODE, never);
  await merged();
  fixture.tree.remove(ROOT_INODE, 'name 005', 'file');

  answerLast();
  await listing;
  expect(isThere('name 005')).toBe(false);
});

test('after a listing that failed, the next one asks about entries that were merged and are gone', async () => {
  const files = filesOf();
  service.put(ROOT_URL, ...files);
  const listing = Promise.resolve(freshness.ensureListed(ROOT_INODE, never));
  await merged();
  service.failure = new Error('the last page failed');
  answerLast();
  await expect(listing).rejects.toThrow('the last page failed');
  expect(fixture.tree.isComplete(ROOT_INODE)).toBe(false);

  service.failure = null;
  const gone = files.splice(5, 1)[0] as RemoteFile;
  service.folders.set(ROOT_URL, files);
  await freshness.ensureListed(ROOT_INODE, never);
  expect(service.requests).toContain(`resource ${gone.url}`);
});

test('a name that a new file took over, after a listing that failed, is not numbered', async () => {
  const files = filesOf();
  service.put(ROOT_URL, ...files);
  const listing = Promise.resolve(freshness.ensureListed(ROOT_INODE, never));
  await merged();
  service.failure = new Error('the last page failed');
  answerLast();
  await expect(listing).rejects.toThrow('the last page failed');

  service.failure = null;
  files[5] = file('another', 'name 005');
  service.folders.set(ROOT_URL, files);
  await freshness.ensureListed(ROOT_INODE, never);
  expect(names()).toEqual(filesOf().map(({ name }) => name));
  expect(fixture.tree.child(ROOT_INODE, 'name 005')?.remote?.resource).toBe(files[5].url);
});

test('a file that a listing could not create while a push was in progress is created when that push has failed', async () => {
  const files = filesOf();
  service.put(ROOT_URL, ...files);
  const started = { owner: 99 as Inode, action: 'relocate', parentResource: ROOT_URL, name: 'name 005' } as const;
  const intent = fixture.store.transact((tx) =>
    fixture.intents.begin(tx, { ...started, resource: null, content: null }, 0),
  );
  const listing = freshness.ensureListed(ROOT_INODE, never);
  await merged(2 * PAGE - 2);
  expect(isThere('name 005')).toBe(false);
  fixture.intents.forget(intent);

  answerLast();
  await listing;
  expect(isThere('name 005')).toBe(true);
});
