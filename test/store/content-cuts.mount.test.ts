import { beforeAll, expect, test } from 'vitest';
import { CrashingDisk, type DiskEvent } from './crashing-disk.ts';
import { examine, type Image, type RecordedLife, record } from './recorded-life.ts';
import { SeededRandom } from './seeded-random.ts';
import { storeProgram } from './store-program.ts';
import { TemporaryStores } from './temporary-store.ts';

/**
 * Power cuts and SIGKILL at every single step that content files take: their making, each write, sync, move and hole, with the map
 * rows and names around them. Bytes, map row and directory entry of a new file reach the disk in any mixture.
 */

const seed = Number(process.env.CFS_CASES_SEED ?? 1);
/** Images at each step after a power cut: each is another mixture. */
const CUTS_PER_STEP = Number(process.env.CFS_RUNS ?? 1);
const IMAGES_AT_ONCE = 60;
const LIVES_MAX = 5;
/** Of the file that is written over in place. */
const OVER_BYTES = 70_000;
const stores = new TemporaryStores();

/**
 * File n holds the byte n; what is written over it in place the byte n + 100. The names of what SIGKILL (`kept`) and what a power
 * cut (`synced`) must not take any more are written into `acks`; `over` before somebody begins to write over a file.
 */
const CHILD = `${storeProgram({ segmentBytes: 32_768, cacheBytes: 900_000 })}
const acks = fs.openSync(directory + '/acks', 'w');
const tell = (what, n) => fs.writeSync(acks, what + ' ' + n + '\\n');
const never = new AbortController().signal;
await contents.takeStock(never);
const enter = (tx, n, size, content) => {
  const node = { ino: newInode(tx), kind: 'file', localOnly: false, local: local(1, n + '-' + size, content, size), remote: null };
  writeNode(tx, undefined, node, n);
};
store.transact((tx) => {
  writeNode(tx, undefined, { ino: 1, kind: 'folder', localOnly: true, local: local(1, '', null, 0), remote: null }, 0);
});
const fetched = (n, size) => {
  const id = store.transact((tx) => {
    const version = contents.versionContent(tx, file + n + '/version/1', file + n, size);
    enter(tx, n, size, version);
    return version;
  });
  for (let start = 0; start < size; start += 131072) {
    const end = Math.min(start + 131072, size);
    const fd = fs.openSync(contents.fetchPath(id), 'r+');
    fs.writeSync(fd, Buffer.alloc(end - start, n), 0, end - start, start);
    fs.closeSync(fd);
    contents.landed(id, { start, end }, null);
  }
  contents.collect(); // the map is stored
};
const sync = async (n, id) => {
  await contents.syncFile(id);
  await store.sync();
  tell('synced', n);
};
for (let n = 1; n <= 3; n++) {
  // A draft in two writes, closed, synced, written over in place, closed, synced, frozen, and pushed.
  const size = 30000 + n * 30000;
  const draft = store.transact((tx) => {
    const id = contents.createDraft(tx, null);
    tx.put('garbage', id, true);
    return id;
  });
  contents.write(draft, 0, Buffer.alloc(20000, n));
  contents.write(draft, 20000, Buffer.alloc(size - 20000, n));
  store.transact((tx) => {
    contents.flush(tx, draft);
    enter(tx, n, size, draft);
  });
  tell('kept', n);
  await sync(n, draft);
  tell('over', n);
  contents.write(draft, 0, Buffer.alloc(Math.min(size, ${OVER_BYTES}), n + 100));
  store.transact((tx) => contents.flush(tx, draft));
  if (n % 2 === 0) await sync(n, draft);
  store.transact((tx) => contents.seal(tx, draft));
  while (n < 3 && [...store.scan('blocks', draft)].length === 0) await new Promise(setImmediate);
  if (n === 2) {
    // A change over it, in another file, before it is pushed.
    const above = store.transact((tx) => {
      const id = contents.createDraft(tx, { content: draft, sizeBytes: size });
      enter(tx, 50, size, id);
      return id;
    });
    contents.write(above, 0, Buffer.alloc(size, 50));
    store.transact((tx) => contents.flush(tx, above));
    tell('kept', 50);
    await sync(50, above);
  }
  if (n < 3) store.transact((tx) => contents.adopt(tx, draft, file + n + '/version/1', file + n));
  if (n < 2) await contents.mergeLayers(never);
  fetched(n + 20, 300000);
}
await store.drain();
process.exit(0);
`;

const EXAMINER = `
const [dist, list] = process.argv.slice(1);
const { Store } = await import(dist + '/store/environment.js');
const { ContentStore } = await import(dist + '/bytes/content-store.js');
const { checkStore } = await import(dist + '/bytes/consistency-check.js');
const { systemClock: clock } = await import(dist + '/base/clock.js');
const { silentLogger: log } = await import(dist + '/base/log.js');
const fs = await import('node:fs');
for (const { image, promised } of JSON.parse(fs.readFileSync(list, 'utf8'))) {
  let problem;
  try {
    problem = await problemOf(image, promised);
  } catch (error) {
    problem = String(error.stack);
  }
  fs.writeSync(1, JSON.stringify(problem) + '\\n');
}
process.exit(0);

async function problemOf(directory, { names, over, bootId }) {
  const store = await Store.open({ directory, log, clock, segmentBytes: 32768 });
  const options = { inlineMaxBytes: 4096, cacheBytes: 1e9 };
  const contents = new ContentStore({ store, directory, log, clock, options, ...(bootId === null ? {} : { bootId }) });
  try {
    const left = new Set(names);
    for (let round = 0; round < 2; round++) {
      for (const [name, ino] of store.scan('name', 1)) {
        if (name === '') continue;
        const [n, size] = name.split('-').map(Number);
        left.delete(n);
        const { content } = store.get('node', ino).local;
        const isVersion = store.get('content', content).kind === 'version';
        // Drafts that were never synced are promised to nobody.
        if (!isVersion && !names.includes(n)) continue;
        const bytes = contents.readAll(content, { start: 0, end: 1e9 });
        if (bytes === null && isVersion) continue; // fetched again
        if (bytes?.length !== size) return name + ' has ' + bytes?.length + ' bytes';
        for (let at = 0; at < size; at++) {
          const isOver = over.includes(n) && at < ${OVER_BYTES} && bytes[at] === n + 100;
          if (bytes[at] !== n && !isOver) return name + ' holds ' + bytes[at] + ' at ' + at;
        }
      }
      if (left.size > 0) return 'gone: ' + [...left];
      for (const problem of checkStore(store)) return problem;
      // As a start goes on.
      await contents.takeStock(new AbortController().signal);
      await contents.mergeLayers(new AbortController().signal);
    }
    return null;
  } finally {
    contents.close(); // the process ends soon
  }
}
`;

interface Promised {
  /** Files that must be there, whole. */
  readonly names: readonly number[];
  /** Files over which somebody had begun to write. */
  readonly over: readonly number[];
  /** The machine's run; null: the same as before. */
  readonly bootId: string | null;
}

let life: RecordedLife;

beforeAll(() => {
  life = record(stores, CHILD);
});

test('SIGKILL after any step of a content file takes nothing that was closed', () => {
  expect(cutEverywhere('kept')).toEqual([]);
});

test('a power cut after any step of a content file loses and mixes no synced bytes', () => {
  expect(cutEverywhere('synced')).toEqual([]);
});

test.each([
  ['the bytes of drafts', /\/drafts\/..\/\d+$/],
  ['the names of drafts', /\/drafts(\/..)?$/],
  ['the journal', /\/journal\//],
])('without the syncs of %s the same cuts lose something: this test can see it', (_, deaf) => {
  let problems = cutEverywhere('synced', (path) => deaf.test(path));
  // On a slow disk the index may have been ahead of the journal at every single cut: then nobody needs the journal.
  for (let more = 0; more < LIVES_MAX && problems.length === 0; more++) {
    problems = cutEverywhere('synced', (path) => deaf.test(path), record(stores, CHILD));
  }
  expect(problems.length).toBeGreaterThan(0);
});

/** After each event of a content file an image or two. @returns what is wrong with them; at the first few it is left */
function cutEverywhere(
  promise: 'kept' | 'synced',
  deaf?: (path: string) => boolean,
  { root, events }: RecordedLife = life,
): string[] {
  const random = new SeededRandom(seed);
  const disk = new CrashingDisk(root, deaf);
  const after = promise === 'synced' ? 'power cut' : 'SIGKILL';
  const problems: string[] = [];
  const images: Image<Promised>[] = [];
  const names: number[] = [];
  const over: number[] = [];
  const pathOf = new Map<number, string>();
  let cuts = 0;
  for (const [at, event] of events.entries()) {
    disk.apply(event);
    const path = pathOfEvent(event, pathOf);
    const ack = path.endsWith('/acks') ? /^(kept|synced|over) (\d+)\n$/.exec(event.payload.toString()) : null;
    if (ack?.[1] === promise) names.push(Number(ack[2]));
    if (ack?.[1] === 'over') over.push(Number(ack[2]));
    if (!/\/(drafts|cache)(\/|$)/.test(path) && ack === null) continue;
    for (let n = 0; n < (promise === 'synced' ? CUTS_PER_STEP : 1); n++) {
      const image = stores.directory();
      cuts++;
      if (promise === 'synced') disk.cut(image, random);
      else disk.copy(image);
      const bootId = promise === 'synced' ? 'another' : null;
      images.push({ image, at, promised: { names: [...names], over: [...over], bootId } });
    }
    if (images.length >= IMAGES_AT_ONCE) problems.push(...examine(stores, EXAMINER, images.splice(0), after));
    if (deaf !== undefined && problems.length > 0) return problems;
  }
  problems.push(...examine(stores, EXAMINER, images, after));
  console.info(`CFS_CASES_SEED=${seed}: ${cuts} images after ${after}`);
  expect(cuts).toBeGreaterThan(60);
  return problems;
}

/** The file or folder that an event is about; that of a write was told when it was opened. */
function pathOfEvent(event: DiskEvent, pathOf: Map<number, string>): string {
  const text = event.payload.byteLength < 4096 ? event.payload.toString() : '';
  if (event.type === 1) pathOf.set(event.inode, text);
  return text.startsWith('/') ? text : (pathOf.get(event.inode) ?? '');
}
