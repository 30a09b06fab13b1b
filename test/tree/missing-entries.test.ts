import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { ApiError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import { ServiceHealth } from '../../src/base/service-health.ts';
import { type Inode, type ResourceUrl, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { writeNode } from '../../src/store/node-table.ts';
import { Freshness } from '../../src/tree/freshness.ts';
import {
  checkStore,
  type Fixture,
  file,
  folder,
  LookedAtService,
  makeTree,
  merge,
  namesIn,
  ROOT_URL,
} from './tree-fixture.ts';

const never = new AbortController().signal;

let fixture: Fixture;
let service: LookedAtService;
let freshness: Freshness;

beforeEach(() => {
  fixture = makeTree();
  service = new LookedAtService();
  const { tree, fence, clock } = fixture;
  const options = { dirTtlMs: 30_000, openWaitMs: 500, readTimeoutMs: 7_000 };
  freshness = new Freshness({
    ...{ tree, listing: service, fence, clock, log: silentLogger, options },
    health: new ServiceHealth({ clock }),
  });
});
afterEach(() => {
  freshness.stop();
  checkStore(fixture.store);
});

const names = (ino: Inode = ROOT_INODE) => namesIn(fixture.tree, ino);
const ino = (name: string, parent: Inode = ROOT_INODE) => fixture.tree.child(parent, name)?.ino as Inode;
const url = (name: string) => folder(name, name).url;
const notFound = (request: string) => new ApiError(404, request, 'page not found');
const listingsOf = (resource: ResourceUrl) => service.requests.filter((request) => request === `list ${resource} 0`);

/** Folders at the top with files in them, all of it known here. */
async function know(folders: readonly string[], files: number): Promise<void> {
  for (const name of folders) {
    service.put(ROOT_URL, folder(name, name));
    service.put(url(name), ...Array.from({ length: files }, (_, n) => file(`${name}${n}`, `${name}${n}`)));
  }
  await freshness.ensureListed(ROOT_INODE, never);
  for (const name of folders) await freshness.ensureListed(ino(name), never);
  service.requests.length = 0;
}

/** Removed for good: every address of it answers 404. */
function destroy(name: string): void {
  service.drop(url(name));
  service.folders.delete(url(name));
}

/** As a program that looks at a folder, then at the next one. */
async function look(folders: readonly string[]): Promise<void> {
  for (const name of folders) await freshness.refresh(ino(name)).catch(() => {});
  await freshness.refresh(ROOT_INODE).catch(() => {});
}

test('a gateway that answers 404 to every request removes nothing', async () => {
  await know(['a', 'b', 'c'], 6);
  const before = ['a', 'b', 'c'].map((name) => [ino(name), ...names(ino(name)).map((each) => ino(each, ino(name)))]);
  service.before = (request) => {
    throw notFound(request);
  };
  const { resource } = service;
  service.resource = async () => null;
  await look(['a', 'b', 'c']);
  await look(['c', 'b', 'a']);
  service.before = () => {};
  service.resource = resource;
  await look(['a', 'b', 'c']);

  expect(['a', 'b', 'c'].map((name) => [ino(name), ...names(ino(name)).map((each) => ino(each, ino(name)))])).toEqual(
    before,
  );
  expect(freshness.heldRemovals).toEqual([]);
});

test('a folder whose address is 404 while its parent lists it stays', async () => {
  await know(['a', 'b'], 6);
  const a = ino('a');
  service.before = (request) => {
    if (request.startsWith(`list ${url('a')}`)) throw notFound(request);
  };
  const { resource } = service;
  service.resource = async (asked, kind, signal) =>
    asked === url('a') ? null : await resource.call(service, asked, kind, signal);
  await look(['a', 'b']);

  expect(ino('a')).toBe(a);
  expect(names(a)).toHaveLength(6);
  expect(freshness.heldRemovals).toEqual([]);
});

test('a folder that its parent lists is asked for after pauses that grow while its address is 404', async () => {
  await know(['a', 'b'], 6);
  const { listPage, resource } = service;
  service.listPage = async (asked, start, signal) => {
    if (asked !== url('a')) return await listPage.call(service, asked, start, signal);
    service.requests.push(`list ${asked} ${start}`);
    throw notFound(asked);
  };
  service.resource = async (asked, kind, signal) =>
    asked === url('a') ? null : await resource.call(service, asked, kind, signal);
  for (let second = 0; second < 600; second++) {
    fixture.clock.advance(1_000);
    freshness.isListed(ino('a'));
    for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
  }

  // 30, 60, 120 and 240 s after each other; with a pause of a TTL they were twenty.
  expect(listingsOf(url('a')).length).toBeGreaterThanOrEqual(4);
  expect(listingsOf(url('a')).length).toBeLessThanOrEqual(6);
});

test('an entry that a listing lacks, whose address is 404, and that the next listing has again stays', async () => {
  await know(['a', 'b', 'c'], 1);
  const a0 = ino('a0', ino('a'));
  let isEmpty = true;
  const { listPage, resource } = service;
  service.listPage = async (asked, start, signal) => {
    const page = await listPage.call(service, asked, start, signal);
    return asked === url('a') && isEmpty ? { ...page, entries: [] } : page;
  };
  service.resource = async (asked, kind, signal) => {
    if (asked !== file('a0', 'a0').url) return await resource.call(service, asked, kind, signal);
    isEmpty = false;
    return null;
  };
  await freshness.refresh(ino('a'));

  expect(ino('a0', ino('a'))).toBe(a0);
});

test('a removed folder goes after its 404 and one listing of its parent', async () => {
  await know(['a', 'b', 'c'], 2);
  destroy('a');
  await freshness.refresh(ino('a'));

  expect(names()).toEqual(['b/', 'c/']);
  expect(service.requests).toEqual([`list ${url('a')} 0`, `resource ${url('a')}`, `list ${ROOT_URL} 0`]);
});

test('an entry that was removed for good costs one more listing of its folder, however many they are', async () => {
  await know(['a', 'b', 'c'], 6);
  for (const n of [0, 1, 2]) service.drop(file(`a${n}`, '').url);
  await freshness.refresh(ino('a'));

  expect(names(ino('a'))).toEqual(['a3', 'a4', 'a5']);
  expect(listingsOf(url('a'))).toHaveLength(2);
});

test('many folders that are 404 at once share the listings of their parent', async () => {
  const all = ['a', 'b', 'c', 'd', 'e', 'f'];
  await know([...all, 'g', 'h', 'i', 'j', 'k', 'l', 'm'], 1);
  for (const name of all.slice(0, 2)) destroy(name);
  await Promise.all(all.map((name) => freshness.refresh(ino(name))));

  expect(names().slice(0, 2)).toEqual(['c/', 'd/']);
  expect(listingsOf(ROOT_URL).length).toBeLessThanOrEqual(2);
});

test('a folder below one that was removed for good goes with it', async () => {
  await know(['a', 'b', 'c', 'd'], 1);
  service.put(url('a'), folder('deep', 'deep'));
  await freshness.refresh(ino('a'));
  const deep = ino('deep', ino('a'));
  await freshness.ensureListed(deep, never);
  service.folders.delete(url('deep'));
  destroy('a');
  await freshness.refresh(deep);

  expect(names()).toEqual(['b/', 'c/', 'd/']);
});

test('a back end that starts empty removes nothing without a person', async () => {
  await know(['a', 'b', 'c'], 6);
  for (const name of ['a', 'b', 'c']) destroy(name);
  await look(['a', 'b', 'c']);

  expect(names()).toEqual(['a/', 'b/', 'c/']);
  expect(names(ino('a'))).toHaveLength(6);
  expect(freshness.heldRemovals).toEqual([{ at: ROOT_INODE, nodes: 21 }]);

  await freshness.refresh(undefined, { accept: true });
  expect(names()).toEqual([]);
  expect(freshness.heldRemovals).toEqual([]);
});

test('a back end that lists its folders empty takes less than half of the account', async () => {
  const all = ['a', 'b', 'c', 'd'];
  await know(all, 6);
  for (const name of all) service.folders.set(url(name), []);
  await look(all);

  const left = all.flatMap((name) => names(ino(name)));
  expect(left).toHaveLength(12);
  expect(freshness.heldRemovals).toHaveLength(2);
});

describe('removals that rest on a 404', () => {
  beforeEach(() => know(['a', 'b', 'rest'], 200));

  const drop = (name: string, count: number) => {
    for (let n = 0; n < count; n++) service.drop(file(`${name}${n}`, '').url);
  };

  test('removals that rest on a 404 are counted together over all folders', async () => {
    drop('a', 60);
    drop('b', 60);
    await look(['a', 'b']);

    expect([names(ino('a')).length, names(ino('b')).length]).toEqual([140, 200]);
    expect(freshness.heldRemovals).toEqual([{ at: ino('b'), nodes: 60 }]);
  });

  test('removals that rest on a 404 are counted for ten minutes', async () => {
    drop('a', 60);
    await look(['a']);
    drop('b', 60);
    await look(['b']);
    fixture.clock.advance(10 * 60_000);
    await look(['b']);

    expect(names(ino('b'))).toHaveLength(140);
    expect(freshness.heldRemovals).toEqual([]);
  });
});

test('a folder that was moved to the trash is removed, however many entries it has', async () => {
  await know(['a'], 300);
  const trash = folder('trash', 'Deleted Files');
  service.folders.set(trash.url, []);
  service.drop(url('a'));
  service.put(trash.url, folder('a', 'a'));
  await freshness.refresh(ROOT_INODE);

  expect(names()).toEqual([]);
  expect(freshness.heldRemovals).toEqual([]);
});

test('the root is never removed', async () => {
  await know(['a'], 1);
  service.folders.delete(ROOT_URL);
  await freshness.refresh(ROOT_INODE);
  await freshness.refresh(ROOT_INODE, { accept: true });

  expect(names()).toEqual(['a/']);
  expect(freshness.heldRemovals).toEqual([]);
});

test('two folders of which the service says that they lie in each other do not wait for each other', async () => {
  await know(['a', 'b'], 1);
  const [a, b] = [ino('a'), ino('b')];
  // As the service told last: b in a, and a in b.
  merge(fixture, a, [folder('b', 'b'), file('a0', 'a0')]);
  fixture.store.transact((tx) => {
    const node = tx.get('node', a);
    if (node?.remote) writeNode(tx, node, { ...node, remote: { ...node.remote, parent: b } }, fixture.clock.nowMs());
  });
  service.folders.delete(url('a'));
  service.folders.delete(url('b'));
  service.resource = async () => null;
  const both = [freshness.refresh(a), freshness.refresh(b)];
  await Promise.allSettled(both);

  expect(fixture.tree.node(a)).toBeDefined();
  expect(fixture.tree.node(b)).toBeDefined();
});
