import { closeSync, openSync, writeSync } from 'node:fs';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { ContentId, ResourceUrl, VersionUrl } from '../../src/base/vocabulary.ts';
import { ContentStore } from '../../src/bytes/content-store.ts';
import type { Lease } from '../../src/bytes/contents.ts';
import type { Store } from '../../src/store/environment.ts';
import { countReference } from '../../src/store/node-table.ts';
import { SeededRandom } from './seeded-random.ts';
import { TemporaryStores } from './temporary-store.ts';

/** A file is a row of bytes that grows with zeros; nothing else. */
class FlatFile {
  bytes: Uint8Array;

  constructor(bytes: Uint8Array = new Uint8Array()) {
    this.bytes = bytes.slice();
  }

  write(offset: number, data: Uint8Array): void {
    if (data.byteLength === 0) return;
    if (offset + data.byteLength > this.bytes.byteLength) this.truncate(offset + data.byteLength);
    this.bytes.set(data, offset);
  }

  truncate(sizeBytes: number): void {
    const bytes = new Uint8Array(sizeBytes);
    bytes.set(this.bytes.subarray(0, sizeBytes));
    this.bytes = bytes;
  }

  zero(start: number, end: number): void {
    this.bytes.fill(0, Math.min(start, this.bytes.byteLength), Math.min(end, this.bytes.byteLength));
  }
}

const FILE = 'https://service.example/file/1' as ResourceUrl;
const INLINE_MAX = 4096;
const SEEDS = [1, 2, 4, 7];
const STEPS = 120;
const stores = new TemporaryStores();

/**
 * One file's life: drafts over drafts over versions, pushed and adopted, settled, evicted, fetched again, with restarts and
 * crashes anywhere. After every step its bytes are those of the model; after a crash those of the last flush.
 */
class Life {
  readonly random: SeededRandom;
  readonly trace: string[] = [];
  directory: string;
  store!: Store;
  contents!: ContentStore;
  /** What the service has. */
  readonly versions = new Map<VersionUrl, Uint8Array>();
  current: ContentId | null = null;
  open = false;
  frozen: { id: ContentId; bytes: Uint8Array } | null = null;
  file = new FlatFile();
  flushed = new FlatFile();
  /** What the file was after each change since the last flush. */
  since: Uint8Array[] = [];
  lease: Lease | null = null;
  readonly cacheBytes: number;

  constructor(seed: number, directory: string) {
    this.random = new SeededRandom(seed);
    this.directory = directory;
    // Some lives are short of cache: blocks go while they are in use.
    this.cacheBytes = seed % 2 === 0 ? 200 * 1024 : 1024 ** 3;
  }

  async start(): Promise<void> {
    this.store = await stores.open(this.directory);
    this.contents = new ContentStore({
      store: this.store,
      directory: this.directory,
      clock: systemClock,
      log: silentLogger,
      options: { inlineMaxBytes: INLINE_MAX, cacheBytes: this.cacheBytes },
    });
    await this.contents.takeStock(new AbortController().signal);
  }

  async stop(): Promise<void> {
    this.lease?.release();
    this.lease = null;
    this.contents.close();
    await this.store.close();
  }

  offset(): number {
    const near = [0, INLINE_MAX, 128 * 1024, 256 * 1024, this.file.bytes.byteLength];
    return Math.max(0, this.random.pick(near) + this.random.below(2000) - 1000);
  }

  length(): number {
    return this.random.pick([1, 100, 3000, 5000, 128 * 1024, 200 * 1024]) + this.random.below(50);
  }

  /** Opens the current content for writing: a new draft over it when it is sealed. */
  beginWriting(): ContentId {
    if (this.current !== null && this.open) return this.current;
    const under = this.current;
    const id = this.store.transact((tx) => {
      const base = under === null ? null : { content: under, sizeBytes: this.file.bytes.byteLength };
      const draft = this.contents.createDraft(tx, base);
      countReference(tx, draft, 1);
      if (under !== null) countReference(tx, under, -1);
      tx.put('meta', 'current', draft);
      return draft;
    });
    this.current = id;
    this.open = true;
    this.flushed = new FlatFile(this.file.bytes);
    this.since = [];
    this.lease?.release();
    this.lease = this.contents.lease(id);
    return id;
  }

  flush(): void {
    if (this.current === null || !this.open) return;
    const id = this.current;
    this.store.transact((tx) => this.contents.flush(tx, id));
    this.flushed = new FlatFile(this.file.bytes);
    this.since = [];
    expect(this.contents.isUnflushed(id)).toBe(false);
  }

  seal(): void {
    if (this.current === null || !this.open || this.frozen !== null) return;
    const id = this.current;
    this.store.transact((tx) => this.contents.seal(tx, id));
    this.open = false;
    this.flushed = new FlatFile(this.file.bytes);
    this.since = [];
    this.frozen = { id, bytes: this.file.bytes.slice() };
    this.store.transact((tx) => countReference(tx, id, 1)); // the push's own
  }

  adopt(): void {
    if (this.frozen === null) return;
    const { id, bytes } = this.frozen;
    const sent = this.contents.readAll(id, { start: 0, end: Number.MAX_SAFE_INTEGER });
    if (sent === null) return; // something of its base has to be fetched first
    expect(Buffer.compare(sent, bytes), 'what is sent').toBe(0);
    const url = `${FILE}/version/${this.versions.size + 1}` as VersionUrl;
    this.versions.set(url, bytes);
    this.store.transact((tx) => {
      this.contents.adopt(tx, id, url, FILE);
      countReference(tx, id, -1);
    });
    this.frozen = null;
  }

  /** Reads as a process does: fetches what is missing from the service. */
  read(start: number, end: number): Uint8Array {
    const { current, contents } = this;
    if (current === null) return new Uint8Array();
    const lease = contents.lease(current); // what arrives must stay until all is here
    try {
      return this.#readLeased(current, start, end);
    } finally {
      lease.release();
    }
  }

  #readLeased(current: ContentId, start: number, end: number): Uint8Array {
    const { contents } = this;
    for (let round = 0; round < 50; round++) {
      const bytes = contents.readAll(current, { start, end });
      if (bytes !== null) return bytes;
      for (const piece of contents.pieces(current, { start, end })) {
        if (piece.kind !== 'missing') continue;
        const url = contents.record(piece.content)?.version as VersionUrl;
        const whole = this.versions.get(url) as Uint8Array;
        const extent = whole.byteLength <= INLINE_MAX ? { start: 0, end: whole.byteLength } : piece.extent;
        const bytes = whole.slice(extent.start, extent.end);
        expect(bytes.byteLength, 'a fetch within the version').toBe(extent.end - extent.start);
        const path = contents.fetchPath(piece.content);
        if (path === null) {
          contents.landed(piece.content, extent, bytes);
        } else {
          const fd = openSync(path, 'r+');
          writeSync(fd, bytes, 0, bytes.byteLength, extent.start);
          closeSync(fd);
          contents.landed(piece.content, extent, null);
        }
      }
    }
    throw new Error('a read never gets all of its bytes');
  }

  compare(): void {
    const { random, file } = this;
    if (this.current === null) return;
    expect(this.contents.sizeOf(this.current), 'size').toBe(file.bytes.byteLength);
    const start = Math.min(this.offset(), file.bytes.byteLength);
    const end = random.below(3) === 0 ? file.bytes.byteLength : Math.min(start + this.length(), file.bytes.byteLength);
    const from = random.below(3) === 0 ? 0 : start;
    expect(
      Buffer.compare(this.read(from, end), file.bytes.subarray(from, Math.max(from, end))),
      `bytes ${from}…${end}`,
    ).toBe(0);
    if (this.frozen !== null) {
      const sent = this.contents.readAll(this.frozen.id, { start: 0, end: 10 ** 9 });
      if (sent !== null) expect(Buffer.compare(sent, this.frozen.bytes), 'frozen').toBe(0);
    }
  }

  async crash(): Promise<void> {
    const copy = stores.copyOf(this.directory);
    await this.stop();
    this.directory = copy;
    await this.start();
    if (!this.open) return;
    // Back to the last flush; bytes within its extents may be newer, so what they are is taken from the store.
    const id = this.current as ContentId;
    expect(this.contents.sizeOf(id), 'size of the last flush').toBe(this.flushed.bytes.byteLength);
    const found = this.read(0, this.flushed.bytes.byteLength);
    expectOldOrNew(found, [this.flushed.bytes, ...this.since]);
    this.since = [];
    this.file = new FlatFile(found);
    this.flushed = new FlatFile(found);
  }

  async step(): Promise<void> {
    const { random } = this;
    this.since.push(this.file.bytes.slice());
    const what = random.pick([
      ...Array<string>(8).fill('write'),
      'append',
      'append',
      'truncate',
      'zero',
      'flush',
      'flush',
      'seal',
      'seal',
      'adopt',
      'adopt',
      'settle',
      'collect',
      'turn',
      'reopen',
      'crash',
    ]);
    this.trace.push(what);
    switch (what) {
      case 'write':
      case 'append': {
        const id = this.beginWriting();
        const offset = what === 'append' ? this.file.bytes.byteLength : this.offset();
        const data = random.bytes(Math.min(this.length(), 40_000));
        this.trace.push(`${offset}+${data.byteLength}`);
        this.contents.write(id, offset, data);
        this.file.write(offset, data);
        break;
      }
      case 'truncate': {
        const id = this.beginWriting();
        const size = random.below(4) === 0 ? 0 : Math.min(this.offset(), 600_000);
        this.trace.push(String(size));
        this.contents.truncate(id, size);
        this.file.truncate(size);
        break;
      }
      case 'zero': {
        const id = this.beginWriting();
        const start = this.offset();
        const end = start + this.length();
        this.trace.push(`${start}…${end}`);
        this.contents.zero(id, { start, end });
        this.file.zero(start, end);
        break;
      }
      case 'flush':
        this.flush();
        break;
      case 'seal':
        this.seal();
        break;
      case 'adopt':
        this.adopt();
        break;
      case 'settle':
        await this.contents.mergeLayers(new AbortController().signal);
        break;
      case 'collect':
        this.contents.collect();
        break;
      case 'turn':
        await new Promise((resolve) => setImmediate(resolve));
        break;
      case 'reopen':
        if (random.below(3) > 0) break;
        this.flush();
        await this.stop();
        await this.start();
        break;
      case 'crash':
        if (random.below(3) > 0) break;
        await this.crash();
        break;
    }
  }
}

test.each(SEEDS)(
  'a file behaves as a flat row of bytes through all its drafts and versions (SEED=%i)',
  async (seed) => {
    const life = new Life(seed, stores.directory());
    await life.start();
    for (let step = 0; step < STEPS; step++) {
      try {
        await life.step();
        life.compare();
      } catch (error) {
        throw new Error(`seed ${seed}, step ${step}: ${life.trace.slice(-25).join(' ')}`, { cause: error });
      }
    }
    for (let push = 0; push < 2; push++) {
      life.adopt();
      life.read(0, life.file.bytes.byteLength);
      life.adopt();
      life.seal();
    }
    life.read(0, life.file.bytes.byteLength);
    life.adopt();
    await life.contents.mergeLayers(new AbortController().signal);
    life.lease?.release();
    life.lease = null;
    if (life.current !== null) {
      const record = life.contents.record(life.current);
      expect(record?.extents).toEqual([]);
      expect(record?.base).toBeNull();
      expect(Buffer.compare(life.read(0, life.file.bytes.byteLength), life.file.bytes)).toBe(0);
    }
    // Nothing is left but the newest version: all others lost their last reference.
    // (A background sync may hold one for a moment.)
    await expect
      .poll(
        () => {
          life.contents.collect();
          return [...life.store.all('content')].map(([id]) => id);
        },
        { interval: 1 },
      )
      .toEqual(life.current === null ? [] : [life.current]);
    await life.stop();
  },
);

function expectOldOrNew(found: Uint8Array, states: readonly Uint8Array[]): void {
  for (let at = 0; at < found.byteLength; at++) {
    const byte = found[at];
    if (byte !== 0 && states.every((state) => state[at] !== byte)) {
      throw new Error(`byte ${at} is ${byte}, which was never there since the last flush`);
    }
  }
}
