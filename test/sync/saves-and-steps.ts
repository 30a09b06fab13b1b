import { constants } from 'node:fs';
import fc from 'fast-check';
import { FsError, UsageError } from '../../src/base/errors.ts';
import { type Inode, type ResourceUrl, ROOT_INODE } from '../../src/base/vocabulary.ts';
import type { NodeRecord, RemoteFacet } from '../../src/store/tables.ts';
import { SETTLE_MS, SyncedSide } from '../harness/synced-side.ts';
import { type Fate, MODEL_ROOT, MODEL_TRASH, type ModelResource } from './model-service.ts';

/**
 * Saves, reads, deletions and changes of another client at any moment of a push: also between two of its steps, while its bytes are
 * compared or sent, and while the cache evicts. README.md beside this file describes the model, the invariants and the exemptions.
 */
export type SaveStep =
  | { readonly do: 'save' | 'replace' | 'patch' | 'begin' | 'read'; readonly at: number; readonly size: number }
  | { readonly do: 'finish' | 'delete' | 'discard'; readonly at: number }
  /** The same bytes again, or all but the last few; without looking first, so that nothing else happens before it begins. */
  | { readonly do: 'save-again' | 'save-blind' | 'patch-blind'; readonly at: number; readonly size: number }
  /** A program keeps a file open, whatever happens to it meanwhile, and then changes it there, or writes all of it anew. */
  | { readonly do: 'hold'; readonly at: number }
  | { readonly do: 'write-held' | 'rewrite-held'; readonly at: number; readonly size: number }
  /** It is all told and answered, another client saves, and that is told, while a program has the file open that it then writes. */
  | {
      readonly do: 'write-late' | 'rewrite-late';
      readonly at: number;
      readonly size: number;
      readonly isListed: boolean;
    }
  /** A long file is on the service, saved again as it is, and saved while that is compared, or sent. */
  | { readonly do: 'save-into'; readonly at: number; readonly size: number; readonly turns: number }
  | { readonly do: 'rename' | 'swap'; readonly at: number; readonly to: number }
  /**
   * The file is renamed away, and made anew; what was there stays under the other name, or goes. Between the two steps, time passes
   * and requests are answered, or not.
   */
  | {
      readonly do: 'back-up';
      readonly at: number;
      readonly size: number;
      readonly isKept: boolean;
      readonly ms: number;
      readonly isAnswered: boolean;
    }
  /** The file is deleted, and made anew, as `back-up`. */
  | {
      readonly do: 'make-anew';
      readonly at: number;
      readonly size: number;
      readonly ms: number;
      readonly isAnswered: boolean;
    }
  | { readonly do: 'cut-short'; readonly at: number }
  | { readonly do: 'folder' | 'their-folder'; readonly how: FolderChange; readonly at: number }
  | { readonly do: 'evict' }
  | { readonly do: 'set-clock'; readonly ms: number }
  | { readonly do: 'nudge'; readonly ms: number; readonly turns: number }
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'answer' | 'lose-request' | 'lose-reply' | 'cut'; readonly which: number }
  | { readonly do: 'refuse'; readonly which: number; readonly status: number }
  | {
      /** `their-replace`: another file is put in the place of one, which goes to the trash. */
      readonly do: 'their-version' | 'their-file' | 'their-trash' | 'their-rename' | 'their-replace';
      readonly at: number;
      readonly to: number;
      readonly size: number;
    }
  | { readonly do: 'list' | 'tidy' | 'retry' }
  | { readonly do: 'restart' | 'kill'; readonly took: boolean }
  /** It is all answered; a file is changed, and the mount killed while somebody writes all of it anew. */
  | {
      readonly do: 'kill-writer';
      readonly at: number;
      readonly size: number;
      readonly ms: number;
      readonly took: boolean;
    };

/** `into`: it goes into the other one; `out`: it comes out of that again. */
type FolderChange = 'rename' | 'remove' | 'make' | 'into' | 'out';

const PATHS = ['a', 'b', 'd/a', 'd/b', 'A', 'e/b'];
const FOLDERS = ['d', 'e'];
const YEAR_MS = 365 * 86_400_000;
const SIZES = [6, 6, 20_000, 20_000, 300_000, 1_200_000];

const LENGTH_MAX = 2_000_000;

const at = fc.nat(11);
const pauseMs = fc.constantFrom(0, 0, 2_000, 5_000);
const size = fc.nat(SIZES.length - 1);
export const saveStep: fc.Arbitrary<SaveStep> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constantFrom('save' as const, 'patch' as const), at, size }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('replace' as const, 'begin' as const), at, size }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('read' as const), at, size }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('finish' as const, 'delete' as const), at }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('discard' as const), at }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('hold' as const), at }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constantFrom('write-held' as const, 'rewrite-held' as const), at, size }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constantFrom('write-late' as const, 'rewrite-late' as const),
      ...{ at, size, isListed: fc.boolean() },
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constantFrom('save-again' as const, 'save-again' as const, 'save-blind' as const, 'patch-blind' as const),
      at,
      size,
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constantFrom('folder' as const, 'their-folder' as const),
      how: fc.constantFrom<FolderChange>('rename', 'rename', 'remove', 'make', 'into', 'out'),
      at,
    }),
  },
  {
    weight: 1,
    arbitrary: fc.oneof(
      { weight: 4, arbitrary: fc.constant({ do: 'evict' as const }) },
      { weight: 1, arbitrary: fc.record({ do: fc.constant('save-into' as const), at, size, turns: fc.nat(8) }) }, // takes long
    ),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('set-clock' as const), ms: fc.constantFrom(-YEAR_MS, YEAR_MS) }),
  },
  {
    weight: 2,
    arbitrary: fc.oneof(
      fc.record({ do: fc.constantFrom('rename' as const, 'rename' as const, 'swap' as const), at, to: at }),
      fc.record({
        do: fc.constant('back-up' as const),
        at,
        size,
        isKept: fc.boolean(),
        ms: pauseMs,
        isAnswered: fc.boolean(),
      }),
      fc.record({ do: fc.constant('make-anew' as const), at, size, ms: pauseMs, isAnswered: fc.boolean() }),
      fc.record({ do: fc.constant('cut-short' as const), at }),
    ),
  },
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant('nudge' as const), ms: fc.constantFrom(0, 0, 2_000), turns: fc.nat(6) }),
  },
  {
    weight: 5,
    arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.constantFrom(0, 2_000, 2_000, 10_000, 31_000) }),
  },
  { weight: 12, arbitrary: fc.record({ do: fc.constant('answer' as const), which: fc.nat(3) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constantFrom('lose-request' as const, 'lose-reply' as const, 'cut' as const),
      which: fc.nat(3),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('refuse' as const),
      which: fc.nat(3),
      status: fc.constantFrom(403, 404, 409, 413, 500, 503),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('their-version' as const), at, to: at, size }) },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constantFrom<'their-file' | 'their-trash' | 'their-rename' | 'their-replace'>(
        ...(['their-file', 'their-trash', 'their-rename', 'their-replace'] as const),
      ),
      at,
      to: at,
      size,
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('list' as const, 'tidy' as const, 'retry' as const) }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constantFrom('restart' as const, 'kill' as const), took: fc.boolean() }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('kill-writer' as const),
      ...{ at, size, ms: fc.constantFrom(0, 2_000, 2_000), took: fc.boolean() },
    }),
  },
);

interface HalfWritten {
  readonly ino: Inode;
  readonly bytes: Buffer;
  readonly sinceMs: number;
}

/** Open for so long it may be pushed as it is. */
const MAY_BE_PUSHED_OPEN_MS = 290_000;

/** What kind of service it is, and who uses it. */
export interface History {
  /** `ModelService.asBegun` */
  readonly asBegun: boolean;
  readonly uniqueNames: boolean;
  readonly foldsCase: boolean;
  readonly newAddresses: boolean;
  /** `none`: it copies no files. `empty`: copies lack all bytes. */
  readonly copies: 'whole' | 'empty' | 'none';
  readonly deletion: 'trash' | 'forever';
  /** Nobody else is there, and so nobody to be in conflict with. */
  readonly isAlone: boolean;
  /** The cache has room for everything; otherwise for less than one of the larger files. */
  readonly isRoomy: boolean;
}

const OURS_TO_FILL_MS = 31_000;
/** `version-throttle` lets each file go once in so long at least. */
const PACE_MS_MAX = 301_000;

export class SavesAndSteps {
  #world: SyncedSide;
  readonly #isAlone: boolean;
  readonly #side: typeof SMALL_CACHE & { readonly deletion: History['deletion'] };
  /** Everything that was ever closed, by anybody; and by whom. */
  readonly #written = new Map<string, 'ours' | 'theirs'>();
  readonly #mayGo = new Set<string>();
  readonly #half = new Map<number, HalfWritten>();
  readonly #held = new Set<number>();
  /** Halves that were open for long enough to be pushed. */
  readonly #sentOpen = new Set<string>();
  readonly #trace: string[] = [];
  /** It answered 409, *the name is taken*: if a listing then shows that name only in the other case, that file is in the way. */
  #seemsToFold = false;
  /** When a resource was there first. */
  readonly #seenMs = new Map<ResourceUrl, number>();
  /** Versions that were found to be somebody's: they do not change any more. */
  readonly #checked = new WeakSet<object>();
  #count = 0;

  private constructor(
    world: SyncedSide,
    isAlone: boolean,
    side: typeof SMALL_CACHE & { readonly deletion: History['deletion'] },
  ) {
    this.#world = world;
    this.#isAlone = isAlone;
    this.#side = side;
  }

  static async begin(how: History): Promise<SavesAndSteps> {
    const side = { ...(how.isRoomy ? ROOMY : SMALL_CACHE), deletion: how.deletion };
    const world = await SyncedSide.build(side);
    world.service.keptVersions = 1_000;
    world.service.asBegun = how.asBegun;
    world.service.uniqueNames = how.uniqueNames;
    world.service.foldsCase = how.foldsCase;
    world.service.newAddresses = how.newAddresses;
    world.service.copies = how.copies !== 'none';
    world.service.copyLacks = how.copies === 'empty' ? Number.POSITIVE_INFINITY : 0;
    await world.mount.mkdir('d');
    await world.converge();
    world.service.auto = null;
    return new SavesAndSteps(world, how.isAlone, side);
  }

  async take(step: SaveStep): Promise<void> {
    let said: string | null;
    try {
      said = await this.#act(step);
    } catch (error) {
      if (error instanceof UsageError) said = error.message;
      else if (error instanceof FsError && this.#isUsual(error)) said = error.errno;
      else throw error;
    }
    if (said !== null) this.#trace.push(`${JSON.stringify(step)} ${said}`);
    this.#checkService();
  }

  /** Where a request was lost a moment ago, what is not known here is refused without being asked for. */
  #isUsual({ errno }: FsError): boolean {
    return USUAL.has(errno) || (errno === 'ETIMEDOUT' && this.#world.side.health.pausing !== null);
  }

  /** Everything is answered; then both sides are alike, and nothing is missing that nobody threw away. */
  async end(): Promise<void> {
    for (const fd of [...this.#half.keys()]) await this.#finish(fd);
    for (const fd of this.#held) await this.#done(this.#world.mount.close(fd));
    const { service } = this.#world;
    service.auto = () => ({ type: 'answer' });
    for (let round = 0; round < 4; round++) {
      service.settleAll({ type: 'answer' });
      await this.#world.pass(0);
      this.#world.sync.retry();
      await this.#world.converge();
      await this.#done(this.#world.side.freshness.refresh());
      await this.#world.pass(600_000);
      await this.#here(); // asks for what is old
    }
    this.#checkService();
    const there = [...service.tree()]
      .filter(([, bytes]) => bytes !== null)
      .map(([path, bytes]) => [path, bytes === 'stub' ? '' : bytes] as const);
    const here = await this.#here();
    // Two that were made under one name keep it here and get another there, or the other way round.
    const names = (tree: readonly (readonly [string, string | null])[]): string =>
      tree
        .map(([path, bytes]) => `${path.replace(/ \((conflicted copy [^)]*|\d+|twice)\)/g, '')} ${nameOf(bytes ?? '')}`)
        .sort()
        .join('\n');
    if (names(here) !== names(there)) throw new Error(`here:\n${names(here)}\nthere:\n${names(there)}`);
    // Where the service folds case, or seems to, one of the two names `a` and `A` gets such a suffix.
    const isCopy = service.foldsCase || this.#seemsToFold ? /(?<!^\/a) \(conflicted copy /i : / \(conflicted copy /;
    const copies = [...here, ...there].filter(([path]) => isCopy.test(path));
    if (this.#isAlone && copies.length > 0) throw new Error(`a conflict with nobody: ${copies.map(([path]) => path)}`);
    const left = new Set(there.map(([, bytes]) => bytes));
    // What is pushed in the minutes after a listing into something that was trashed in them lands there (ADR 24).
    for (const { url, versions } of service.resources.values())
      if (service.isInTrash(url)) for (const { bytes } of versions) left.add(text(bytes));
    for (const [bytes, whose] of this.#written) {
      if (!left.has(bytes) && !this.#mayGo.has(bytes)) throw new Error(`${whose} is nowhere: ${nameOf(bytes)}`);
    }
    if (this.#world.sync.status().parked.length > 0) throw new Error('something is still parked');
  }

  async close(): Promise<void> {
    this.#world.service.auto = () => ({ type: 'lose-request' });
    this.#world.service.settleAll({ type: 'lose-request' });
    await this.#world.close();
  }

  /** The failure, with all that led to it. */
  told(error: unknown): Error {
    const said = error instanceof Error ? (error.stack ?? error.message) : String(error);
    const asked = this.#world.service.requests.join(' | ');
    return new Error(`${said}\n${this.#trace.join('\n')}\nasked: ${asked}`, { cause: error });
  }

  async #act(step: SaveStep): Promise<string | null> {
    const { mount, service, clock, sync, side } = this.#world;
    // Two of one length within one second cannot be told apart by a listing.
    service.nowMs += 3_000;
    switch (step.do) {
      case 'save': {
        const path = pathOf(step.at);
        if (await this.#isHalfWritten(path)) return null;
        await this.#seenIn(path);
        if (await this.#isHalfWritten(path)) return null; // it came to this name by somebody else's doing
        const bytes = this.#bytes(step.size, 'ours');
        const fd = await this.#done(mount.open(path, O_SAVE));
        this.#thereOf((await this.#done(mount.fstat(fd))).ino);
        await this.#done(mount.write(fd, 0, bytes));
        await this.#closed(fd, bytes);
        return `${path} = ${nameOf(text(bytes))}`;
      }
      case 'replace': {
        const path = pathOf(step.at);
        if (path.includes('/')) await this.#done(mount.stat(path.slice(0, 1)));
        const bytes = this.#bytes(step.size, 'ours');
        const fd = await this.#done(mount.open('.save~', O_SAVE));
        await this.#done(mount.write(fd, 0, bytes));
        await this.#closed(fd, bytes);
        await this.#seenIn(path);
        try {
          await this.#done(mount.rename('.save~', path));
        } catch (error) {
          this.#mayGo.add(text(bytes)); // its folder went meanwhile
          throw error;
        }
        this.#thereOf((await this.#done(mount.stat(path))).ino);
        return `${path} = ${nameOf(text(bytes))}`;
      }
      case 'patch': {
        const path = pathOf(step.at);
        if (await this.#isHalfWritten(path)) return null;
        const fd = await this.#done(mount.open(path, constants.O_RDWR));
        if (await this.#isHalf(fd)) return null;
        const seen = await this.#all(fd);
        const change = this.#bytes(0, 'ours').subarray(0, 6);
        const offset = Math.min(seen.byteLength, step.size * 50_000);
        const end = Math.max(seen.byteLength, offset + change.byteLength);
        const bytes = Buffer.concat([seen, Buffer.alloc(end - seen.byteLength)]);
        change.copy(bytes, offset);
        await this.#done(mount.write(fd, offset, change));
        this.#mayGo.add(text(seen));
        await this.#closed(fd, bytes);
        return `${path} = ${nameOf(text(bytes))} over ${nameOf(text(seen))}`;
      }
      case 'hold': {
        const path = pathOf(step.at);
        if (await this.#isHalfWritten(path)) return null;
        const fd = await this.#done(mount.open(path, constants.O_RDWR));
        if (await this.#isHalf(fd)) return null;
        this.#held.add(fd);
        return `${path}: ${nameOf(text(await this.#all(fd)))}`;
      }
      case 'write-held':
      case 'rewrite-held':
        return this.#writeHeld(step);
      case 'kill-writer': {
        const at = this.#fileAt(step.at);
        await this.#answerAll();
        const first = await this.#act({ do: 'patch', at, size: step.size });
        const second = await this.#act({ do: 'begin', at, size: step.size });
        await this.#world.pass(step.ms);
        await this.#kill(step.took ? 'lose-reply' : 'lose-request');
        return `${first}, then ${second}, and killed`;
      }
      case 'write-late':
      case 'rewrite-late': {
        const held = await this.#act({ do: 'hold', at: this.#fileAt(step.at) });
        const fd = [...this.#held].at(-1);
        if (held === null || fd === undefined) return null;
        await this.#answerAll();
        service.auto = () => ({ type: 'answer' });
        const file = this.#remoteOf((await this.#done(mount.fstat(fd))).ino)?.resource;
        if (!this.#isAlone && file !== undefined && !service.isInTrash(file)) {
          const bytes = this.#bytes(step.size, 'theirs');
          this.#mayGo.add(text(service.bytesOf(file) ?? Buffer.alloc(0)));
          this.#written.set(text(bytes), 'theirs');
          service.addVersion(file, bytes);
        }
        if (step.isListed) await this.#done(side.freshness.refresh());
        service.auto = null;
        const how = step.do === 'write-late' ? 'write-held' : 'rewrite-held';
        return `${held}, then ${await this.#act({ do: how, at: this.#held.size - 1, size: step.size })}`;
      }
      case 'save-again':
      case 'save-blind':
      case 'patch-blind': {
        const path = pathOf(step.at);
        const node = this.#nodeAt(path);
        const seen = node === undefined ? null : this.#bytesHere(node);
        if (node === undefined || seen === null) return null;
        if ([...this.#half.values()].some(({ ino }) => ino === node.ino)) return null;
        this.#mayGo.add(text(seen));
        this.#thereOf(node.ino);
        const change = this.#bytes(0, 'ours').subarray(0, 6);
        const isPatch = step.do === 'patch-blind';
        const bytes = step.do === 'save-blind' ? this.#bytes(step.size, 'ours') : Buffer.from(seen);
        const offset = isPatch
          ? Math.min(Math.max(0, seen.byteLength - 6), step.size * 50_000)
          : Math.max(0, seen.byteLength - 6);
        if (step.do !== 'save-blind' && (isPatch || step.size > 2) && bytes.byteLength >= 6) change.copy(bytes, offset);
        const fd = await this.#soon(
          mount.open(path, isPatch ? constants.O_RDWR : constants.O_WRONLY | constants.O_TRUNC),
        );
        const { ino } = await this.#soon(mount.fstat(fd));
        this.#thereOf(ino);
        if (isPatch && (await this.#isHalf(fd))) return null;
        // Another one is there by now: what is written is over that.
        if (isPatch && (ino !== node.ino || !seen.equals(await this.#all(fd)))) {
          await this.#soon(mount.close(fd));
          return null;
        }
        if (ino !== node.ino) {
          const other = this.#nodeAt(path);
          if (other !== undefined) this.#mayGo.add(text(this.#bytesHere(other) ?? Buffer.alloc(0)));
        }
        if (isPatch) await this.#soon(mount.write(fd, offset, bytes.subarray(offset, offset + 6)));
        else await this.#soon(mount.write(fd, 0, bytes));
        this.#written.set(text(bytes), 'ours');
        await this.#soon(mount.close(fd));
        return `${path} = ${nameOf(text(bytes))} over ${nameOf(text(seen))}`;
      }
      case 'save-into': {
        service.auto = () => ({ type: 'answer' });
        service.settleAll({ type: 'answer' });
        await this.#act({ do: 'save', at: step.at, size: SIZES.length - 1 });
        await this.#answerAll();
        const again = await this.#act({ do: 'save-again', at: step.at, size: 0 });
        clock.advance(PACE_MS_MAX);
        for (let turn = 0; turn < step.turns; turn++) await new Promise((resolve) => setImmediate(resolve));
        return `${again}, then ${await this.#act({ do: 'save-blind', at: step.at, size: step.size })}`;
      }
      case 'folder':
        return this.#folder(step);
      case 'their-folder':
        return this.#theirFolder(step);
      case 'evict':
        side.contents.collect();
        return '';
      case 'set-clock':
        clock.skewMs += step.ms;
        return '';
      case 'begin': {
        const path = pathOf(step.at);
        if (await this.#isHalfWritten(path)) return null;
        const fd = await this.#done(mount.open(path, constants.O_RDWR | constants.O_CREAT));
        if (await this.#isHalf(fd)) return null;
        this.#mayGo.add(text(await this.#all(fd)));
        const bytes = this.#bytes(step.size, 'ours');
        await this.#done(mount.ftruncate(fd, 0));
        await this.#done(mount.write(fd, 0, bytes.subarray(0, bytes.byteLength / 2)));
        const { ino } = await this.#done(mount.fstat(fd));
        this.#half.set(fd, { ino, bytes, sinceMs: clock.elapsedMs() });
        return `${path} ← ${nameOf(text(bytes))}`;
      }
      case 'finish': {
        const fd = [...this.#half.keys()][step.at % Math.max(1, this.#half.size)];
        return fd === undefined ? null : this.#finish(fd);
      }
      case 'read': {
        const path = pathOf(step.at);
        const fd = await this.#done(mount.open(path, constants.O_RDONLY));
        try {
          const bytes = text(await this.#all(fd));
          if (!this.#isKnown(bytes, 0)) throw new Error(`${path} reads as ${nameOf(bytes)}, which nobody wrote`);
          return `${path}: ${nameOf(bytes)}`;
        } finally {
          await this.#done(mount.close(fd));
        }
      }
      case 'delete': {
        const path = pathOf(step.at);
        // A file that another client made since would be deleted unseen.
        if (!(await this.#seenIn(path))) return null;
        await this.#done(mount.unlink(path));
        return path;
      }
      case 'rename': {
        const [from, to] = [pathOf(step.at), pathOf(step.to)];
        if (from === to) return null;
        await this.#seenIn(to);
        const { ino } = await this.#done(mount.stat(from));
        const before = this.#remoteOf(ino);
        await this.#done(mount.rename(from, to));
        if (this.#remoteOf(ino)?.resource !== before?.resource) this.#thereOf(ino);
        return `${from} → ${to}`;
      }
      case 'swap': {
        const [from, to] = [pathOf(step.at), pathOf(step.to)];
        await this.#done(mount.rename(from, to, 'exchange'));
        return `${from} ↔ ${to}`;
      }
      case 'back-up': {
        const path = pathOf(step.at);
        if (await this.#isHalfWritten(path)) return null;
        await this.#seenIn(`${path}~`);
        if (!step.isKept) await this.#seenIn(path);
        await this.#done(mount.rename(path, `${path}~`));
        await this.#between(step);
        const bytes = this.#bytes(step.size, 'ours');
        // Another may be there by now.
        await this.#seenIn(path);
        const fd = await this.#done(mount.open(path, O_SAVE));
        this.#thereOf((await this.#done(mount.fstat(fd))).ino);
        await this.#done(mount.write(fd, 0, bytes));
        await this.#closed(fd, bytes);
        if (!step.isKept) {
          await this.#seenIn(`${path}~`);
          await this.#done(mount.unlink(`${path}~`));
        }
        return `${path} = ${nameOf(text(bytes))}`;
      }
      case 'make-anew': {
        const path = pathOf(step.at);
        if (await this.#isHalfWritten(path)) return null;
        await this.#seenIn(path);
        await this.#done(mount.unlink(path));
        await this.#between(step);
        if (await this.#isHalfWritten(path)) return null;
        await this.#seenIn(path);
        const bytes = this.#bytes(step.size, 'ours');
        const fd = await this.#done(mount.open(path, O_SAVE));
        this.#thereOf((await this.#done(mount.fstat(fd))).ino);
        await this.#done(mount.write(fd, 0, bytes));
        await this.#closed(fd, bytes);
        return `${path} = ${nameOf(text(bytes))}`;
      }
      case 'cut-short': {
        const path = pathOf(step.at);
        if (await this.#isHalfWritten(path)) return null;
        const fd = await this.#done(mount.open(path, constants.O_RDWR));
        if (await this.#isHalf(fd)) return null;
        const seen = await this.#all(fd);
        this.#mayGo.add(text(seen));
        const bytes = seen.subarray(0, 2 * Math.floor(seen.byteLength / 4));
        await this.#done(mount.ftruncate(fd, bytes.byteLength));
        await this.#closed(fd, Buffer.from(bytes));
        return `${path} = ${nameOf(text(bytes))}`;
      }
      case 'discard': {
        const path = pathOf(step.at);
        const { ino } = await this.#done(mount.stat(path));
        await this.#seenIn(path);
        const given = side.store.get('node', ino);
        this.#mayGo.add(text((given === undefined ? null : this.#bytesHere(given)) ?? Buffer.alloc(0)));
        // What was sent unheard, and what it went over, is not asked for any more.
        for (const { bytes } of service.resources.get(this.#remoteOf(ino)?.resource ?? MODEL_ROOT)?.versions ?? [])
          this.#mayGo.add(text(bytes));
        service.settleAll({ type: 'lose-request' });
        await this.#done(sync.discard(ino, 'discard'));
        return path;
      }
      case 'nudge':
        clock.advance(step.ms);
        for (let turn = 0; turn < step.turns; turn++) await new Promise((resolve) => setImmediate(resolve));
        return '';
      case 'wait':
        await this.#world.pass(step.ms);
        return '';
      case 'list':
        await this.#done(side.freshness.refresh());
        return '';
      case 'tidy':
        await this.#world.pass(31_000);
        side.contents.collect();
        return '';
      case 'retry':
        sync.retry();
        return '';
      case 'restart':
        return this.#restart(step.took ? 'lose-reply' : 'lose-request');
      case 'kill':
        return this.#kill(step.took ? 'lose-reply' : 'lose-request');
      case 'their-version':
      case 'their-file':
      case 'their-trash':
      case 'their-rename':
      case 'their-replace':
        return this.#theirs(step);
      default:
        return this.#settle(step);
    }
  }

  /** The pause within a save. `isAnswered`: the service gets all that is due by then. */
  async #between({ ms, isAnswered }: { readonly ms: number; readonly isAnswered: boolean }): Promise<void> {
    const { service } = this.#world;
    if (isAnswered) service.auto = () => ({ type: 'answer' });
    if (isAnswered) service.settleAll({ type: 'answer' });
    if (ms > 0) await this.#world.pass(ms);
    service.auto = null;
  }

  async #writeHeld({
    do: how,
    at,
    size,
  }: Extract<SaveStep, { do: 'write-held' | 'rewrite-held' }>): Promise<string | null> {
    const { mount, side } = this.#world;
    const fd = [...this.#held][at % Math.max(1, this.#held.size)];
    if (fd === undefined) return null;
    this.#held.delete(fd);
    if (await this.#isHalf(fd)) return null;
    const { ino } = await this.#done(mount.fstat(fd));
    // To its end, which is not that of what others see by now.
    const seen = await this.#done(mount.read(fd, 0, LENGTH_MAX));
    let bytes = this.#bytes(size, 'ours');
    if (how === 'rewrite-held') await this.#done(mount.ftruncate(fd, 0));
    else bytes = Buffer.concat([bytes.subarray(0, 6), seen.subarray(6)]);
    await this.#done(mount.write(fd, 0, how === 'rewrite-held' ? bytes : bytes.subarray(0, 6)));
    // It has the name no more, or never again: another file was renamed over it, or it was deleted here.
    if (side.store.get('node', ino)?.local == null) this.#mayGo.add(text(bytes));
    this.#mayGo.add(text(seen));
    await this.#closed(fd, bytes);
    return `${ino} = ${nameOf(text(bytes))} over ${nameOf(text(seen))}`;
  }

  /** Everything is answered, and each file may be sent again. */
  async #answerAll(): Promise<void> {
    const { service } = this.#world;
    service.auto = () => ({ type: 'answer' });
    service.settleAll({ type: 'answer' });
    await this.#world.pass(PACE_MS_MAX);
    for (let round = 0; round < 8 && this.#world.sync.status().pending > 0; round++) await this.#world.pass(SETTLE_MS);
    service.auto = null;
  }

  /** Which of the paths with a file `at` stands for. */
  #fileAt(at: number): number {
    const there = PATHS.flatMap((path, index) => (this.#nodeAt(path) === undefined ? [] : [index]));
    return there[at % Math.max(1, there.length)] ?? 0;
  }

  async #folder({ how, at }: Extract<SaveStep, { do: 'folder' | 'their-folder' }>): Promise<string | null> {
    const { mount } = this.#world;
    const [from, to] = [FOLDERS[at % 2] ?? '', FOLDERS[(at + 1) % 2] ?? ''];
    if (how === 'make') await this.#done(mount.mkdir(from));
    else if (how === 'rename') await this.#done(mount.rename(from, to));
    else if (how === 'into') {
      try {
        await this.#done(mount.rename(from, `${to}/${from}`));
      } catch (error) {
        // The other client renamed the folder to the name it was to go into, and the listing came between the two lookups.
        if (!(error instanceof FsError) || error.errno !== 'EINVAL' || this.#nodeAt(from) !== undefined) throw error;
        return `${from} is ${to} by now`;
      }
    } else if (how === 'out') await this.#done(mount.rename(`${to}/${from}`, from));
    else {
      for (const { name } of await this.#done(mount.readdir(from))) {
        await this.#seenIn(`${from}/${name}`);
        await this.#done(mount.unlink(`${from}/${name}`));
      }
      await this.#done(mount.rmdir(from));
    }
    return `${from}`;
  }

  #theirFolder({ how, at }: Extract<SaveStep, { do: 'folder' | 'their-folder' }>): string | null {
    if (this.#isAlone) return null;
    const { service } = this.#world;
    const [from, to] = [FOLDERS[at % 2] ?? '', FOLDERS[(at + 1) % 2] ?? ''];
    const there = service.childrenOf(MODEL_ROOT);
    const folder = there.find(({ name, kind }) => name === from && kind === 'folder');
    if (how === 'make') {
      if (there.some(({ name }) => name === from)) return null;
      service.add('folder', MODEL_ROOT, from);
      return from;
    }
    const other = there.find(({ name, kind }) => name === to && kind === 'folder');
    if (how === 'out') {
      const inside =
        other && service.childrenOf(other.url).find(({ name, kind }) => name === from && kind === 'folder');
      if (inside === undefined || there.some(({ name }) => name === from)) return null;
      inside.parent = MODEL_ROOT;
      return `${inside.url} ← ${to}`;
    }
    if (folder === undefined) return null;
    if (how === 'into') {
      if (other === undefined || service.childrenOf(other.url).some(({ name }) => name === from)) return null;
      folder.parent = other.url;
      return `${folder.url} → ${to}/${from}`;
    }
    if (how === 'rename') {
      if (there.some(({ name }) => name === to)) return null;
      folder.name = to;
      return `${folder.url} → ${to}`;
    }
    for (const { url } of service.below(folder.url)) {
      const newest = service.bytesOf(url);
      if (newest !== null) this.#mayGo.add(text(newest));
    }
    folder.parent = MODEL_TRASH;
    return folder.url;
  }

  #nodeAt(path: string): NodeRecord | undefined {
    const { store } = this.#world.side;
    let node = store.get('node', ROOT_INODE);
    for (const name of path.split('/')) {
      const ino: Inode | undefined = node === undefined ? undefined : store.get('name', [node.ino, name]);
      node = ino === undefined ? undefined : store.get('node', ino);
    }
    return node?.kind === 'file' ? node : undefined;
  }

  /** What is shown of a file at this moment; null where that is not here. */
  #bytesHere({ local }: NodeRecord): Buffer | null {
    const { contents } = this.#world.side;
    if (local?.content == null) return null;
    const bytes = contents.readAll(local.content, { start: 0, end: contents.sizeOf(local.content) });
    return bytes === null ? null : Buffer.from(bytes);
  }

  /** As `#done`, and no turn of the loop passes where none has to. */
  async #soon<T>(work: Promise<T>): Promise<T> {
    let isOver = false;
    const over = (): void => {
      isOver = true;
    };
    work.then(over, over);
    for (let turn = 0; turn < 50 && !isOver; turn++) await Promise.resolve();
    return isOver ? work : this.#done(work);
  }

  #settle(step: Extract<SaveStep, { which: number }>): string | null {
    const { pending } = this.#world.service;
    const [request] = pending.splice(step.which % Math.max(1, pending.length), 1);
    if (request === undefined) return null;
    const fate: Fate =
      step.do === 'cut'
        ? { type: 'cut', afterBytes: step.which * 3 }
        : step.do === 'refuse'
          ? { type: 'refuse', status: step.status }
          : { type: step.do };
    if (step.do === 'refuse' && step.status === 409) this.#seemsToFold = true;
    request.settle(fate);
    return request.name;
  }

  #theirs(step: Extract<SaveStep, { to: number; size: number }>): string | null {
    if (this.#isAlone) return null;
    const { service } = this.#world;
    const folderOf = (path: string): ResourceUrl | undefined =>
      path.includes('/')
        ? service.childrenOf(MODEL_ROOT).find(({ name, kind }) => name === path.slice(0, 1) && kind === 'folder')?.url
        : MODEL_ROOT;
    const files = [...service.resources.values()].filter(({ url, kind }) => kind === 'file' && !service.isInTrash(url));
    const target: ModelResource | undefined = files[step.at % Math.max(1, files.length)];
    const [to, name] = [folderOf(pathOf(step.to)), pathOf(step.to).slice(-1)];
    if (to === undefined || service.isInTrash(to)) return null;
    const isTaken = service.isTaken(to, name);
    if (step.do === 'their-file') {
      if (isTaken) return null;
      const bytes = this.#bytes(step.size, 'theirs');
      this.#written.set(text(bytes), 'theirs');
      service.add('file', to, name, bytes);
      return `${name} = ${nameOf(text(bytes))}`;
    }
    if (target === undefined) return null;
    if (step.do === 'their-rename') {
      if (isTaken) return null;
      [target.parent, target.name] = [to, name];
      return `${target.url} → ${name}`;
    }
    const newest = service.bytesOf(target.url);
    // What we made a moment ago is ours to fill, without a look; and what is on its way cannot look.
    if (newest === null && service.pending.some(({ name }) => name === `putFileData ${target.url}`)) return null;
    if (newest === null && this.#world.clock.elapsedMs() - (this.#seenMs.get(target.url) ?? 0) <= OURS_TO_FILL_MS)
      return null;
    if (newest !== null) this.#mayGo.add(text(newest));
    if (step.do === 'their-trash') {
      target.parent = MODEL_TRASH;
      return target.url;
    }
    const bytes = this.#bytes(step.size, 'theirs');
    this.#written.set(text(bytes), 'theirs');
    if (step.do === 'their-replace') {
      const { parent } = target;
      target.parent = MODEL_TRASH;
      const url = service.add('file', parent ?? MODEL_ROOT, target.name, bytes);
      return `${url} = ${nameOf(text(bytes))} in the place of ${target.url}`;
    }
    // A deletion that is sent already cannot look again.
    if (this.#side.deletion === 'forever' && service.pending.some(({ name }) => name === `delete ${target.url}`))
      this.#mayGo.add(text(bytes));
    service.addVersion(target.url, bytes);
    return `${target.url} = ${nameOf(text(bytes))} over ${newest === null ? 'nothing' : nameOf(text(newest))}`;
  }

  async #restart(fate: 'lose-reply' | 'lose-request'): Promise<string> {
    const before = this.#world;
    for (const fd of [...this.#half.keys()]) await this.#finish(fd);
    this.#held.clear();
    before.service.settleAll({ type: fate });
    before.service.auto = () => ({ type: fate });
    await before.close('keep');
    before.service.auto = null;
    this.#world = await SyncedSide.build({ ...this.#side, left: before });
    return '';
  }

  /** As SIGKILL leaves it: files that are open are drafts, what was closed is a record in the journal, and the index is behind. */
  async #kill(fate: 'lose-reply' | 'lose-request'): Promise<string> {
    const before = this.#world;
    const directory = before.side.snapshot();
    const nowMs = before.clock.elapsedMs();
    for (const { bytes, sinceMs } of this.#half.values())
      if (nowMs - sinceMs >= MAY_BE_PUSHED_OPEN_MS) this.#sentOpen.add(text(bytes.subarray(0, bytes.byteLength / 2)));
    this.#half.clear();
    this.#held.clear();
    before.service.settleAll({ type: fate });
    before.service.auto = () => ({ type: 'lose-request' });
    await before.close();
    before.service.auto = null;
    this.#world = await SyncedSide.build({ ...this.#side, left: before, directory });
    return '';
  }

  async #isHalfWritten(path: string): Promise<boolean> {
    const there = await this.#done(this.#world.mount.stat(path).catch(() => null));
    return [...this.#half.values()].some(({ ino }) => ino === there?.ino);
  }

  /** As `#isHalfWritten`, for one that was opened: closed again then. */
  async #isHalf(fd: number): Promise<boolean> {
    const { mount } = this.#world;
    const { ino } = await this.#done(mount.fstat(fd));
    const isHalf = [...this.#half.values()].some((half) => half.ino === ino);
    if (isHalf) await this.#done(mount.close(fd));
    return isHalf;
  }

  /** Whoever writes over it, or deletes it, saw it: as it is here, or as it is about to be. */
  async #seenIn(path: string): Promise<boolean> {
    const { mount } = this.#world;
    try {
      const { ino } = await this.#done(mount.stat(path));
      for (const half of this.#half.values()) if (half.ino === ino) this.#mayGo.add(text(half.bytes));
      this.#thereOf(ino); // its bytes may not be readable now
      const fd = await this.#done(mount.open(path, constants.O_RDONLY));
      this.#mayGo.add(text(await this.#all(fd)));
      await this.#done(mount.close(fd));
      this.#thereOf(ino);
    } catch (error) {
      if (!(error instanceof FsError)) throw error;
      return error.errno !== 'ENOENT';
    }
    return true;
  }

  /** What the service has of it goes with what is seen here. */
  #thereOf(ino: Inode): void {
    const remote = this.#remoteOf(ino);
    const newest = remote === null ? null : this.#world.service.bytesOf(remote.resource);
    if (newest !== null) this.#mayGo.add(text(newest));
  }

  #remoteOf(ino: Inode): RemoteFacet | null {
    return this.#world.side.store.get('node', ino)?.remote ?? null;
  }

  async #finish(fd: number): Promise<string> {
    const half = this.#half.get(fd);
    if (half === undefined) return '';
    this.#half.delete(fd);
    const { mount, clock } = this.#world;
    const { ino, bytes, sinceMs } = half;
    // What was begun of it by now is on its way.
    if (clock.elapsedMs() - sinceMs >= MAY_BE_PUSHED_OPEN_MS)
      this.#sentOpen.add(text(bytes.subarray(0, bytes.byteLength / 2)));
    await this.#done(mount.write(fd, bytes.byteLength / 2, bytes.subarray(bytes.byteLength / 2)));
    await this.#closed(fd, bytes);
    return `${ino} = ${nameOf(text(bytes))}`;
  }

  async #closed(fd: number, bytes: Buffer): Promise<void> {
    this.#written.set(text(bytes), 'ours');
    await this.#done(this.#world.mount.close(fd));
  }

  async #all(fd: number): Promise<Buffer> {
    const { mount } = this.#world;
    const { sizeBytes } = await this.#done(mount.fstat(fd));
    return this.#done(mount.read(fd, 0, sizeBytes));
  }

  async #here(): Promise<[string, string][]> {
    const { mount } = this.#world;
    const found: [string, string][] = [];
    const folders = [''];
    for (const folder of folders) {
      for (const { name, kind } of await this.#done(mount.readdir(folder))) {
        const path = folder === '' ? name : `${folder}/${name}`;
        if (kind === 'folder') folders.push(path);
        if (kind !== 'file') continue;
        const fd = await this.#done(mount.open(path, constants.O_RDONLY).catch(() => null));
        if (fd === null) continue;
        found.push([`/${path}`, text(await this.#all(fd))]);
        await this.#done(mount.close(fd));
      }
    }
    return found;
  }

  /** Nothing is ever a version that nobody closed: no half of a file, no zeros, no mixture of two. */
  #checkService(): void {
    const { service, clock } = this.#world;
    for (const { url, versions } of service.resources.values()) {
      if (!this.#seenMs.has(url)) this.#seenMs.set(url, clock.elapsedMs());
      for (const version of versions) {
        if (!version.complete || this.#checked.has(version)) continue;
        const bytes = text(version.bytes);
        if (!this.#isKnown(bytes, MAY_BE_PUSHED_OPEN_MS))
          throw new Error(`${url} has ${nameOf(bytes)}, which nobody closed`);
        this.#checked.add(version);
      }
    }
    const violation = service.violations.find((each) => each.includes('never told') || each.includes('orphaned'));
    if (violation !== undefined) throw new Error(violation);
  }

  /** Whether somebody closed a file that held this, or has held one open with it for so long. */
  #isKnown(bytes: string, openMs: number): boolean {
    if (bytes === '' || this.#written.has(bytes) || this.#sentOpen.has(bytes)) return true;
    const nowMs = this.#world.clock.elapsedMs();
    for (const half of this.#half.values()) {
      if (text(half.bytes).startsWith(bytes) && bytes.length * 2 === half.bytes.byteLength) {
        return nowMs - half.sinceMs >= openMs;
      }
    }
    return false;
  }

  /** Time passes until it is done: what waits for an answer has its patience. */
  async #done<T>(work: Promise<T>): Promise<T> {
    let isOver = false;
    const over = (): void => {
      isOver = true;
    };
    work.then(over, over);
    for (let turn = 0; turn < 20 && !isOver; turn++) await new Promise((resolve) => setImmediate(resolve));
    for (let round = 0; round < 300 && !isOver; round++) await this.#world.pass(200);
    if (!isOver) throw new Error('it never ends');
    return work;
  }

  /** Ours have even lengths, theirs odd ones: after a lost answer a length is all there is to tell ours by. */
  #bytes(size: number, whose: 'ours' | 'theirs'): Buffer {
    this.#count += 1;
    const tag = `${whose === 'ours' ? 'o' : 't'}${String(this.#count).padStart(4, '0')} `;
    return Buffer.alloc((SIZES[size] ?? 6) + (whose === 'ours' ? 0 : 1), tag);
  }
}

/** The cache is smaller than one of the larger files. */
const SMALL_CACHE = { contents: { cacheBytes: 512 * 1024 } };
const ROOMY = { contents: { cacheBytes: 1024 ** 3 } };
const O_SAVE = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC;
const USUAL: ReadonlySet<string> = new Set(['ENOENT', 'ENOTDIR', 'EISDIR', 'EEXIST', 'ESTALE', 'ENOTEMPTY']);

function pathOf(index: number): string {
  return PATHS[index % PATHS.length] ?? '';
}

function text(bytes: Buffer): string {
  return bytes.toString('latin1');
}

/** Which of the tags stand in it, in their order. */
function nameOf(bytes: string): string {
  const tags = [...bytes.matchAll(/([ot]\d{4}) (?:\1 )*/g)].map(([, tag]) => tag);
  const runs = tags.filter((tag, index) => tag !== tags[index - 1]);
  const shown = runs.length > 8 ? `${runs.slice(0, 8).join('+')}+…` : runs.join('+');
  return `${shown || JSON.stringify(bytes.slice(0, 20))} (${bytes.length}${bytes.includes('\0') ? ', with zeros' : ''})`;
}
