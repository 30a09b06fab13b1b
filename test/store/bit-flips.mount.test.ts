import { spawnSync } from 'node:child_process';
import { cpSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, expect, test } from 'vitest';
import { SeededRandom } from './seeded-random.ts';
import { storeProgram } from './store-program.ts';
import { TemporaryStores } from './temporary-store.ts';

/**
 * Bits flip anywhere in what a store has on the disk: LMDB's file (its own pages included), the journal, the files of drafts and
 * versions. Whatever comes of it (a change that is forgotten, an error, an LMDB that ends the process), bytes that are returned are
 * those that were written.
 */

const DIST = fileURLToPath(new URL('../../dist', import.meta.url));
const IMAGES = Number(process.env.CFS_RUNS ?? 60);
const IMAGES_AT_ONCE = 60;
const seed = Number(process.env.CFS_CASES_SEED ?? 1);
const stores = new TemporaryStores();

/** Every file is called after what it holds: its first byte and its length. Each part of a file by another road to the disk. */
const CHILD = `${storeProgram({ segmentBytes: 65_536, cacheBytes: 1e9 })}
const bytesOf = (n, size) => Buffer.from(Array.from({ length: size }, (_, at) => (n + at * 7 + (at >> 8)) & 0xff));
const enter = (tx, n, size, content) => {
  const ino = newInode(tx);
  writeNode(tx, undefined, { ino, kind: 'file', localOnly: false, local: local(1, n + '-' + size, content, size), remote: null }, n);
};
store.transact((tx) => {
  writeNode(tx, undefined, { ino: 1, kind: 'folder', localOnly: true, local: local(1, '', null, 0), remote: null }, 0);
});
const version = (n, size) => store.transact((tx) => {
  const id = contents.versionContent(tx, file + n + '/version/1', file + n, size);
  enter(tx, n, size, id);
  return id;
});
const draft = (n, size, isSealed) => store.transact((tx) => {
  const id = contents.createDraft(tx, null);
  contents.write(id, 0, bytesOf(n, size));
  if (isSealed) contents.seal(tx, id);
  else contents.flush(tx, id);
  enter(tx, n, size, id);
  return id;
});
for (let n = 1; n <= 60; n++) {
  const size = [100, 3000, 50000][n % 3] + n;
  const kind = n > 50 ? 3 : n % 4;
  if (n === 51) await store.drain();
  if (kind >= 2) { draft(n, size, true); continue; }
  if (kind === 1 && size > 4096) {
    // Own ranges over a base, pushed: a version in layers.
    const base = version(n + 1000, size);
    const fd = fs.openSync(contents.fetchPath(base), 'r+');
    fs.writeSync(fd, bytesOf(n + 1000, size), 0, size, 0);
    fs.closeSync(fd);
    contents.landed(base, { start: 0, end: size }, null);
    store.transact((tx) => {
      const over = contents.createDraft(tx, { content: base, sizeBytes: size });
      contents.write(over, 0, bytesOf(n, size).subarray(0, 20000));
      contents.write(over, 30000, bytesOf(n, size).subarray(30000));
      contents.write(over, 20000, bytesOf(n, size).subarray(20000, 30000));
      contents.seal(tx, over);
      enter(tx, n, size, over);
      contents.adopt(tx, over, file + n + '/version/2', file + n);
    });
    continue;
  }
  const id = version(n, size);
  if (size <= 4096) contents.landed(id, { start: 0, end: size }, bytesOf(n, size));
  else {
    const fd = fs.openSync(contents.fetchPath(id), 'r+');
    fs.writeSync(fd, bytesOf(n, size), 0, size, 0);
    fs.closeSync(fd);
    contents.landed(id, { start: 0, end: size }, null);
  }
}
// A frozen draft has its checksums a moment after it was frozen, a version in layers when they are settled.
await contents.mergeLayers(new AbortController().signal);
const hasChecksum = ([id, { kind, where }]) => kind === 'version' || where !== 'file' || [...store.scan('blocks', id)].length > 0;
while (![...store.all('content')].every(hasChecksum)) await new Promise(setImmediate);
contents.collect();
process.kill(process.pid, 'SIGKILL');
`;

const EXAMINER = `
const [dist, ...images] = process.argv.slice(1);
const { Store } = await import(dist + '/store/environment.js');
const { ContentStore } = await import(dist + '/bytes/content-store.js');
const { systemClock: clock } = await import(dist + '/base/clock.js');
const { silentLogger: log } = await import(dist + '/base/log.js');
const fs = await import('node:fs');
for (const directory of images) fs.writeSync(1, JSON.stringify(await examine(directory)) + '\\n');
process.exit(0);

async function examine(directory) {
  const found = { right: 0, missing: 0, failed: 0, wrong: [] };
  let store;
  try {
    store = await Store.open({ directory, log, clock, segmentBytes: 65536 });
  } catch {
    return { ...found, failed: 1 };
  }
  const contents = new ContentStore({ store, directory, log, clock, options: { inlineMaxBytes: 4096, cacheBytes: 1e9 } });
  let names = [];
  try {
    names = [...store.scan('name', 1)];
  } catch {
    found.failed++;
  }
  for (const [name, ino] of names) {
    if (name === '') continue;
    const [n, size] = name.split('-').map(Number);
    try {
      const { content, sizeBytes } = store.get('node', ino).local;
      const bytes = contents.readAll(content, { start: 0, end: sizeBytes });
      if (bytes === null) found.missing++;
      else if (bytes.length === size && bytes.every((byte, at) => byte === ((n + at * 7 + (at >> 8)) & 0xff))) found.right++;
      else found.wrong.push(name);
    } catch {
      found.failed++;
    }
  }
  return found;
}
`;

interface Found {
  readonly right: number;
  readonly missing: number;
  readonly failed: number;
  readonly wrong: readonly string[];
}

let whole: string;

beforeAll(() => {
  whole = stores.directory();
  run(CHILD, [whole]);
});

function run(program: string, args: readonly string[]): { readonly lines: readonly string[]; readonly stderr: string } {
  const child = spawnSync(process.execPath, ['--input-type=module', '-e', program, DIST, ...args], {
    encoding: 'utf8',
    timeout: 60_000,
  });
  return { lines: child.stdout.split('\n').filter((line) => line !== ''), stderr: child.stderr };
}

/** Images are opened one after another; one that ends the process is passed over. */
function examined(images: readonly string[]): (Found | null)[] {
  const found: (Found | null)[] = [];
  while (found.length < images.length) {
    const { lines } = run(EXAMINER, images.slice(found.length));
    found.push(...lines.map((line) => JSON.parse(line) as Found));
    if (found.length < images.length) found.push(null);
  }
  return found;
}

function filesOf(directory: string): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name !== 'owner' && entry.name !== 'lock.mdb')
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => statSync(path).size > 0);
}

/** Flips `count` bits of one file, where it holds something. */
function flip(path: string, random: SeededRandom, count: number): void {
  const file = readFileSync(path);
  const used =
    file.length -
    Math.max(
      0,
      [...file].reverse().findIndex((byte) => byte !== 0),
    );
  for (let n = 0; n < count; n++) {
    const at = random.below(used);
    file.writeUInt8(file.readUInt8(at) ^ (1 << random.below(8)), at);
  }
  writeFileSync(path, file);
}

test('bits that flip anywhere in the store never cause wrong bytes in a read', () => {
  const [untouched] = examined([copyOf()]);
  expect(untouched).toMatchObject({ missing: 0, failed: 0, wrong: [] });
  expect(untouched?.right).toBeGreaterThan(60);

  const random = new SeededRandom(seed);
  const wrong: string[] = [];
  const sum = { right: 0, missing: 0, failed: 0, died: 0 };
  for (let done = 0; done < IMAGES; done += IMAGES_AT_ONCE) {
    const images = Array.from({ length: Math.min(IMAGES_AT_ONCE, IMAGES - done) }, () => {
      const directory = copyOf();
      const index = join(directory, 'index', 'data.mdb');
      const target = random.below(3) > 0 ? index : random.pick(filesOf(directory));
      flip(target, random, random.pick([1, 1, 8]));
      return directory;
    });
    for (const [at, found] of examined(images).entries()) {
      sum.right += found?.right ?? 0;
      sum.missing += found?.missing ?? 0;
      sum.failed += found?.failed ?? 0;
      if (found === null) sum.died++;
      for (const name of found?.wrong ?? []) wrong.push(`image ${done + at}: ${name}`);
      rmSync(images[at] as string, { recursive: true });
    }
  }
  console.info(`CFS_CASES_SEED=${seed}: ${JSON.stringify(sum)} of ${IMAGES} images`);
  expect(wrong).toEqual([]);
  // Otherwise nothing was hit, or nothing was read.
  expect(sum.missing + sum.failed).toBeGreaterThan(0);
  expect(sum.right).toBeGreaterThan(IMAGES);
});

function copyOf(): string {
  const copy = stores.directory();
  cpSync(whole, copy, { recursive: true });
  return copy;
}
