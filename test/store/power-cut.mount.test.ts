import { beforeAll, expect, test } from 'vitest';
import { CrashingDisk } from './crashing-disk.ts';
import { examine, type Image, type RecordedLife, record } from './recorded-life.ts';
import { SeededRandom } from './seeded-random.ts';
import { storeProgram } from './store-program.ts';
import { TemporaryStores } from './temporary-store.ts';

const CUTS = 200;
/** Dying takes its time. */
const CUTS_WITHOUT_SYNC = 40;
const ROWS = 40;
const IMAGES_AT_ONCE = 40;
const stores = new TemporaryStores();

/**
 * A life of the store: change n writes row n % ROWS, so that the rows together tell which n they belong to; every few changes
 * a draft's file, a landed block, an adoption. What a power cut must not take is told by writing it into `acks`.
 */
const CHILD = `${storeProgram({ segmentBytes: 32_768, cacheBytes: 1e9 })}
const acks = fs.openSync(directory + '/acks', 'w');
const turn = () => new Promise((resolve) => setImmediate(resolve));
const remote = (n, content, sizeBytes) => ({ resource: file + n, parent: 1, name: 'f' + n, shownAs: 'f' + n, sizeBytes,
  modified: { ms: n, certainty: 'exact' }, mediaType: null, content, createdHereMs: null });
store.transact((tx) => {
  writeNode(tx, undefined, { ino: 1, kind: 'folder', localOnly: true, local: local(1, '', null, 0), remote: null }, 0);
});
for (let n = 1; n <= 900; n++) {
  const drafts = [];
  store.transact((tx) => {
    tx.put('meta', 'row ' + (n % ${ROWS}), String(n).repeat(n % 90));
    tx.put('meta', 'newest', n);
    tx.put('meta', 'n', n);
    if (n % 12 === 0) {
      const draft = contents.createDraft(tx, null);
      contents.write(draft, 0, Buffer.alloc(n % 5 === 0 ? 3000 : 20000 + n, n % 251));
      contents.flush(tx, draft);
      const ino = newInode(tx);
      writeNode(tx, undefined, { ino, kind: 'file', localOnly: false, local: local(1, 'f' + n, draft, contents.sizeOf(draft)), remote: null }, n);
      tx.put('meta', 'file ' + n, ino);
      drafts.push(draft);
    }
    if (n % 24 === 4 && n > 12) {
      const node = store.get('node', store.get('meta', 'file ' + (n - 4)));
      contents.adopt(tx, node.local.content, file + (n - 4) + '/version/1', file + (n - 4));
      writeNode(tx, node, { ...node, remote: remote(n - 4, node.local.content, node.local.sizeBytes) }, n);
    }
    if (n % 36 === 30 && n > 36) {
      const node = store.get('node', store.get('meta', 'file ' + (n - 30)));
      removeNode(tx, node, n);
      tx.remove('meta', 'file ' + (n - 30));
    }
    if (n === 20) {
      const version = contents.versionContent(tx, file + 'big/version/1', file + 'big', 300000);
      const ino = newInode(tx);
      writeNode(tx, undefined, { ino, kind: 'file', localOnly: false, local: local(1, 'big', version, 300000), remote: null }, n);
      tx.put('meta', 'version', version);
    }
  });
  fs.writeSync(acks, 'kept ' + n + '\\n');
  if (n % 100 === 99) contents.collect();
  if (n % 150 === 149) await contents.mergeLayers(new AbortController().signal);
  if (n % 20 === 0) {
    const version = store.get('meta', 'version');
    const start = ((n / 20) % 3) * 131072, end = Math.min(start + 131072, 300000);
    const fd = fs.openSync(contents.fetchPath(version), 'r+');
    fs.writeSync(fd, Buffer.alloc(end - start, 77), 0, end - start, start);
    fs.closeSync(fd);
    contents.landed(version, { start, end }, null);
  }
  if (n % 3 === 0) await turn();
  if (n % 31 === 0) await new Promise((resolve) => setTimeout(resolve, 60));
  if (n % 24 === 12 || n % 50 === 0) {
    for (const draft of drafts) await contents.syncFile(draft);
    await store.sync();
    fs.writeSync(acks, 'synced ' + n + (drafts.length > 0 ? ' draft' : '') + '\\n');
  }
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
for (const { image, promised: { acknowledged, synced } } of JSON.parse(fs.readFileSync(list, 'utf8'))) {
  let problem;
  try {
    problem = await problemOf(image, acknowledged, synced);
  } catch (error) {
    problem = String(error.stack);
  }
  fs.writeSync(1, JSON.stringify(problem) + '\\n');
}
process.exit(0);

async function problemOf(directory, acknowledged, synced) {
  const store = await Store.open({ directory, log, clock, segmentBytes: 32768 });
  const contents = new ContentStore({ store, directory, log, clock, options: { inlineMaxBytes: 4096, cacheBytes: 1e9 } });
  try {
    const n = store.get('meta', 'n') ?? 0;
    if (n < acknowledged) return 'only ' + n + ' changes are there';
    if ((store.get('meta', 'newest') ?? 0) !== n) return 'newest is not ' + n;
    for (let row = 0; row < ${ROWS}; row++) {
      const expected = n - ((n - row + ${ROWS}) % ${ROWS});
      const wanted = expected <= 0 ? undefined : String(expected).repeat(expected % 90);
      if (store.get('meta', 'row ' + row) !== wanted) return 'row ' + row + ' of change ' + n + ' does not hold ' + expected;
    }
    for (const problem of checkStore(store)) return problem;
    for (const draft of synced) {
      const ino = store.get('meta', 'file ' + draft);
      const isRemoved = draft % 36 === 0 && n >= draft + 30;
      if ((ino === undefined) !== isRemoved) return 'file ' + draft + ' of change ' + n;
      if (isRemoved) continue;
      const size = draft % 5 === 0 ? 3000 : 20000 + draft;
      const bytes = contents.readAll(store.get('node', ino).local.content, { start: 0, end: 1e9 });
      if (bytes?.byteLength !== size || bytes.some((byte) => byte !== draft % 251)) return 'draft ' + draft + ' is damaged';
    }
    const version = store.get('meta', 'version');
    for (let block = 0; version !== undefined && block < 3; block++) {
      const bytes = contents.readAll(version, { start: block * 131072, end: (block + 1) * 131072 });
      if (bytes?.some((byte) => byte !== 77)) return 'block ' + block + ' of the version is wrong';
    }
    store.transact((tx) => tx.put('meta', 'still', 'usable'));
    return null;
  } finally {
    contents.close(); // the store stays as it is: the process ends soon, and orderly ends are tested elsewhere
  }
}
`;

interface Promised {
  readonly acknowledged: number;
  readonly synced: readonly number[];
}

let life: RecordedLife;

beforeAll(() => {
  life = record(stores, CHILD);
});

test('synced data survive a power cut, and no other data come back mixed', () => {
  const random = new SeededRandom(7);
  const problems = cutOften(random, CUTS, 'synced');
  expect(problems).toEqual([]);
});

test('what was acknowledged survives SIGKILL at any write or commit, and every invariant of the store holds', () => {
  const problems = cutOften(new SeededRandom(8), CUTS, 'kept');
  expect(problems).toEqual([]);
});

test('the same cuts without the syncs of LMDB lose data: this test can see it', () => {
  const random = new SeededRandom(7);
  const problems = cutOften(random, CUTS_WITHOUT_SYNC, 'synced', (path) => path.endsWith('data.mdb'));
  expect(problems.length).toBeGreaterThan(0);
});

function cutOften(
  random: SeededRandom,
  count: number,
  promise: 'kept' | 'synced',
  deaf: (path: string) => boolean = () => false,
): string[] {
  const { root, events } = life;
  const cuts = new Set(Array.from({ length: count }, () => 50 + random.below(events.length - 50)));
  const disk = new CrashingDisk(root, deaf);
  const problems: string[] = [];
  let acknowledged = 0;
  const synced: number[] = [];
  const images: Image<Promised>[] = [];
  const after = promise === 'synced' ? 'power cut' : 'SIGKILL';
  for (const [at, event] of events.entries()) {
    disk.apply(event);
    const text = event.type === 2 && event.payload.byteLength < 20 ? event.payload.toString() : '';
    const ack = /^(kept|synced) (\d+)( draft)?\n$/.exec(text);
    if (ack?.[1] === promise) acknowledged = Number(ack[2]);
    if (ack?.[3] !== undefined) synced.push(Number(ack[2]));
    if (!cuts.has(at)) continue;
    const image = stores.directory();
    if (promise === 'synced') disk.cut(image, random);
    else disk.copy(image);
    images.push({ image, at, promised: { acknowledged, synced: [...synced] } });
    if (images.length === IMAGES_AT_ONCE) problems.push(...examine(stores, EXAMINER, images.splice(0), after));
  }
  return [...problems, ...examine(stores, EXAMINER, images, after)];
}
