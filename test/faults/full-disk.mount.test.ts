import { expect, test } from 'vitest';
import type { FsError } from '../../src/base/errors.ts';
import { tellFigures } from '../harness/figures.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';
import { listingOf, SyncedSide, sourceOf } from '../harness/synced-side.ts';
import { MODEL_ROOT } from '../sync/model-service.ts';
import { FillingDisk } from './filling-disk.ts';

/**
 * One session, again and again: the n-th step of the store that needs room finds none, for every n; that one alone, and all after it.
 * Programs are told ENOSPC and nothing else, nothing ends, what a call refused changed nothing that an earlier one accepted, and when
 * there is room all of that is here, with the service, and in the next life of the store.
 */

/** One step alone. */
const ONLY = process.env.CFS_FULL_AT;
/** In CI every so many steps, from one on that the commit names; `npm run soak -- disk` takes all. */
const STRIDE = Number(process.env.CFS_FULL_STRIDE ?? 4);
/** Small, so that the session begins some anew. */
const SEGMENT_BYTES = 64 * 1024;
const bytes = (length: number, word: string) => Buffer.alloc(length, `${word} `);

/** Path → bytes; a folder ends in `/` and has none. */
type Files = Map<string, Buffer>;

/** What somebody works at, and what was promised to him. */
class Session {
  readonly promised: Files = new Map();
  refusals = 0;
  readonly #side: SyncedSide;

  constructor(side: SyncedSide) {
    this.#side = side;
  }

  async run(): Promise<void> {
    const { mount } = this.#side;
    await this.#do(
      ['d/'],
      () => mount.mkdir('d'),
      (files) => files.set('d/', Buffer.alloc(0)),
    );
    await this.#save('short', bytes(100, 'short'));
    await this.#save('inline', bytes(9_000, 'inline'));
    await this.#save('long', bytes(300_000, 'long'));
    await this.#save('d/inside', bytes(40_000, 'inside'));
    await this.#side.pass(2_500); // pushed
    await this.#save('short', bytes(20_000, 'no longer short'));
    await this.#patch('long', 150_000, bytes(70_000, 'patched'));
    await this.#save('d/~temporary', bytes(50_000, 'saved by rename'));
    await this.#rename('d/~temporary', 'd/inside');
    await this.#patch('inline', 9_000, bytes(30_000, 'appended'));
    await this.#side.pass(2_500);
    await this.#truncate('long', 100_001);
    await this.#rename('inline', 'd/moved');
    await this.#do(
      ['short'],
      () => mount.unlink('short'),
      (files) => files.delete('short'),
    );
    await this.#save('last', bytes(33_000, 'last'));
    await this.#side.pass(2_500);
  }

  /** Makes what a call changes, unless it is refused: then what it touched is looked at, and holds from then on. */
  async #do(
    touched: readonly string[],
    call: () => Promise<unknown>,
    change: (files: Files) => void,
  ): Promise<boolean> {
    const before = new Map(this.promised);
    const told = await errnoOf(call());
    if (told === null) {
      change(this.promised);
      return true;
    }
    // What was never made is not there to be worked at.
    if (told === 'ENOENT') expect(touched.some((path) => needs(path).some((each) => !before.has(each)))).toBe(true);
    else expect(told).toBe('ENOSPC');
    this.refusals += 1;
    return false;
  }

  async #save(path: string, wanted: Buffer): Promise<void> {
    const { mount } = this.#side;
    const before = this.promised.get(path);
    const saved = await this.#do(
      [path],
      () => mount.writeFile(path, wanted),
      (files) => files.set(path, wanted),
    );
    if (!saved) await this.#lookAt(path, before, (found) => wanted.subarray(0, found.byteLength).equals(found));
  }

  async #patch(path: string, offset: number, patch: Buffer): Promise<void> {
    const before = this.promised.get(path);
    if (before === undefined) return;
    const wanted = Buffer.alloc(Math.max(before.byteLength, offset + patch.byteLength));
    before.copy(wanted);
    patch.copy(wanted, offset);
    const { mount } = this.#side;
    const write = async () => {
      const fd = await mount.open(path, 'r+');
      const refusal = await errorOf(mount.write(fd, offset, patch));
      await mount.close(fd);
      if (refusal !== null) throw refusal;
    };
    if (await this.#do([path], write, (files) => files.set(path, wanted))) return;
    // A write in place that found no room half-way is there half-way, as on any disk.
    await this.#lookAt(path, before, (found) =>
      found.every((byte, at) => byte === wanted[at] || byte === (before[at] ?? 0)),
    );
  }

  async #truncate(path: string, sizeBytes: number): Promise<void> {
    const before = this.promised.get(path);
    if (before === undefined) return;
    const cut = () => this.#side.mount.truncate(path, sizeBytes);
    const isCut = await this.#do([path], cut, (files) => files.set(path, before.subarray(0, sizeBytes)));
    if (!isCut) await this.#lookAt(path, before, () => false);
  }

  async #rename(from: string, to: string): Promise<void> {
    const moved = this.promised.get(from);
    const before = this.promised.get(to);
    const isRenamed = await this.#do(
      [from, to],
      () => this.#side.mount.rename(from, to),
      (files) => {
        files.set(to, moved as Buffer);
        files.delete(from);
      },
    );
    if (isRenamed) return;
    await this.#lookAt(from, moved, () => false);
    await this.#lookAt(to, before, () => false);
  }

  /** After a refusal the file is what it was, or something that `isPart` allows; that stays. */
  async #lookAt(path: string, before: Buffer | undefined, isPart: (found: Buffer) => boolean): Promise<void> {
    const found = await this.#side.mount.readFile(path).catch((error: FsError) => {
      expect(error.errno, `reading ${path} after a refusal`).toBe('ENOENT');
      return undefined;
    });
    if (found === undefined) {
      expect(before, `${path} is gone after a refusal`).toBeUndefined();
      return;
    }
    if (before === undefined || !found.equals(before)) expect(isPart(found), `${path} after a refusal`).toBe(true);
    this.promised.set(path, found);
  }
}

/** The names that must be there for a call on `path` to find something. */
function needs(path: string): string[] {
  const slash = path.indexOf('/');
  return slash < 0 || slash === path.length - 1 ? [path] : [path.slice(0, slash + 1), path];
}

async function errorOf(call: Promise<unknown>): Promise<FsError | null> {
  return call.then(
    () => null,
    (error: FsError) => error,
  );
}

async function errnoOf(call: Promise<unknown>): Promise<string | null> {
  const error = await errorOf(call);
  return error === null ? null : (error.errno ?? error.stack ?? String(error));
}

async function treeOf(mount: SyncedSide['mount'], folder = ''): Promise<Files> {
  const found: Files = new Map();
  for (const { name } of await mount.readdir(folder === '' ? '.' : folder)) {
    if (name === '.' || name === '..') continue;
    const path = `${folder}${name}`;
    if ((await mount.lstat(path)).kind === 'folder') {
      found.set(`${path}/`, Buffer.alloc(0));
      for (const [below, content] of await treeOf(mount, `${path}/`)) found.set(below, content);
    } else found.set(path, await mount.readFile(path));
  }
  return found;
}

function differences(found: Files, wanted: Files): string[] {
  const paths = [...new Set([...found.keys(), ...wanted.keys()])];
  return paths.filter((path) => !(found.has(path) && wanted.get(path)?.equals(found.get(path) as Buffer)));
}

function onService({ service }: SyncedSide): string[] {
  return [...service.tree()].map(([path, text]) => (text === null ? `${path}/` : `${path}: ${text}`)).sort();
}

function onPaper(files: Files): string[] {
  return [...files].map(([path, content]) => (path.endsWith('/') ? `/${path}` : `/${path}: ${content}`)).sort();
}

/** @returns how many steps needed room, and how many calls were refused */
async function live(fullFrom: number, once: boolean): Promise<{ steps: number; refusals: number; wasFull: boolean }> {
  const filling = new FillingDisk();
  const side = await SyncedSide.build({ disk: filling.disk, segmentBytes: SEGMENT_BYTES });
  await side.mount.readdir('.'); // a listing that was never kept cannot be shown
  const opened = filling.steps;
  filling.fullFrom = opened + fullFrom;
  filling.once = once;
  const session = new Session(side);
  await session.run();
  const steps = filling.steps - opened;
  expect(differences(await treeOf(side.mount), session.promised), 'while the disk is full').toEqual([]);
  filling.makeRoom();
  side.sync.retry();
  await side.converge();
  expect(differences(await treeOf(side.mount), session.promised), 'when there is room').toEqual([]);
  expect(onService(side), 'what the service has').toEqual(onPaper(session.promised));
  const { directory } = side.side;
  await side.close('keep');
  const { clock, service } = side;
  const there = { listing: listingOf(service), source: sourceOf(service) };
  const next = await FileSystemSide.build({ directory, root: MODEL_ROOT, clock, ...there });
  try {
    const shown = await treeOf(new InProcessMount(next.fileSystem));
    expect(differences(shown, session.promised), 'in the next life').toEqual([]);
  } finally {
    await next.close();
  }
  return { steps, refusals: session.refusals, wasFull: filling.wasFull };
}

test.each([
  ['from then on', false],
  ['once', true],
] as const)(
  'a disk that becomes full at any step of the store loses no closed file: %s',
  { timeout: 480_000 / STRIDE },
  async (when, once) => {
    const { steps } = await live(Number.POSITIVE_INFINITY, false);
    let refused = 0;
    const seed = Number(process.env.CFS_CASES_SEED ?? 0);
    const wanted = ONLY === undefined ? stepsFrom(1 + (seed % STRIDE), steps) : [Number(ONLY)];
    for (const step of wanted) {
      const { refusals } = await live(step, once).catch((error: Error) => {
        throw new Error(`full at step ${step} of ${steps}: ${error.message}`, { cause: error });
      });
      if (refusals > 0) refused += 1;
    }
    tellFigures(
      `full ${when}: ${wanted.length} of ${steps} steps that need room; at ${refused} of them a program was told`,
    );
    if (ONLY === undefined) expect(refused).toBeGreaterThan(wanted.length / 4);
  },
);

function stepsFrom(first: number, last: number): number[] {
  return Array.from({ length: Math.ceil((last - first + 1) / STRIDE) }, (_, index) => first + index * STRIDE);
}
