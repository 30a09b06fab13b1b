import fc from 'fast-check';
import { UsageError } from '../../src/base/errors.ts';
import type { RemoteEntry } from '../../src/base/resources.ts';
import type { Inode, ResourceUrl } from '../../src/base/vocabulary.ts';
import type { ListingFence } from '../../src/tree/listing-fence.ts';
import type { Tree } from '../../src/tree/tree.ts';
import type { Fate } from './model-service.ts';
import { MODEL_ROOT, MODEL_TRASH } from './model-service.ts';
import { SyncWorld, UNFILLED } from './sync-world.ts';
/**
 * From any tree on the service, any changes made here, in any order of answers, with requests lost before or after they took
 * effect, bodies cut, listings that come late, and restarts anywhere: the service ends with what is here, was never asked for what it does not allow,
 * and at no moment are a file's bytes nowhere.
 *
 * Names are few, so that they collide; the service answers 409 to a name that is taken, and the model notes that as a
 * violation: whoever orders his requests rightly is never told so.
 */

export type Step =
  | { readonly do: 'mkdir' | 'write' | 'patch' | 'remove' | 'remove-all'; readonly at: number; readonly name: number }
  | { readonly do: 'rename' | 'exchange'; readonly at: number; readonly to: number; readonly name: number }
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'answer' | 'lose-request' | 'lose-reply' | 'cut' | 'refuse'; readonly which: number }
  | { readonly do: 'restart'; readonly took: boolean; readonly isContinued?: boolean }
  | { readonly do: 'open' | 'close' | 'write-open' | 'discard' | 'retry'; readonly at: number }
  | { readonly do: 'list'; readonly at: number }
  | { readonly do: 'foreign'; readonly what: number; readonly at: number; readonly to: number; readonly name: number }
  | { readonly do: 'merge' | 'evict' };

const place = fc.nat(40);
export const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 2, arbitrary: fc.record({ do: fc.constant('mkdir' as const), at: place, name: fc.nat(3) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constantFrom('write' as const), at: place, name: fc.nat(3) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom('patch' as const), at: place, name: fc.nat(3) }) },
  { weight: 5, arbitrary: fc.record({ do: fc.constant('rename' as const), at: place, to: place, name: fc.nat(3) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('exchange' as const), at: place, to: place, name: fc.nat(3) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('remove' as const), at: place, name: fc.nat(3) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('remove-all' as const), at: place, name: fc.nat(3) }) },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.constantFrom(10, 1_000, 2_500, 90_000) }),
  },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('answer' as const), which: fc.nat(7) }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constantFrom('lose-request' as const, 'lose-reply' as const, 'cut' as const, 'refuse' as const),
      which: fc.nat(7),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('restart' as const), took: fc.boolean(), isContinued: fc.boolean() }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constantFrom(...(['open', 'close', 'write-open', 'discard', 'retry'] as const)),
      at: place,
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('list' as const), at: place }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('merge' as const, 'evict' as const) }) },
);

/** Half of them without what a person gives up and a service refuses: those hide what is there, and less can be demanded then. */
export const history: fc.Arbitrary<Step[]> = fc
  .tuple(fc.boolean(), fc.array(step, { maxLength: 40, size: 'max' }))
  .map(([isPlain, steps]) => (isPlain ? steps.filter((each) => each.do !== 'refuse' && each.do !== 'discard') : steps));

/** What another client does, besides. */
export const foreign: fc.Arbitrary<Step> = fc.record({
  do: fc.constant('foreign' as const),
  what: fc.nat(5),
  at: place,
  to: place,
  name: fc.nat(3),
});

/** A tree on the service: folders and files by (index of the folder, name). */
export const remote = fc.array(fc.record({ isFolder: fc.boolean(), at: place, name: fc.nat(3) }), {
  maxLength: 12,
  size: 'max',
});

const REFUSALS = [503, 403, 404, 409, 413, 500, 400, 429];
const BY_THE_USER: ReadonlySet<Step['do']> = new Set(['discard', 'write', 'patch', 'rename', 'remove', 'remove-all']);

/** Four names, and what else the service does. */
export interface Kind {
  readonly names: readonly string[];
  readonly uniqueNames?: boolean;
  readonly foldsCase?: boolean;
  readonly newAddresses?: boolean;
  readonly asBegun?: boolean;
}

const USUAL: Kind = { names: ['a', 'b', 'c', 'd'] };
export const FOLDING: Kind = { names: ['a', 'A', 'B', 'b'], foldsCase: true, asBegun: true };
export const READDRESSING: Kind = { ...USUAL, newAddresses: true };
export const REPEATING: Kind = { names: ['a', 'b', 'a (2)', 'b (2)'], uniqueNames: false, newAddresses: true };
/** Of some names the files stay here, unless the service has them. */
export const STAYING: Kind = { names: ['a', 'b', '.DS_Store', 'desktop.ini'] };
export const RUNS = Number(process.env.CFS_SYNC_RUNS ?? 60);
/** A case takes some ten milliseconds, on a busy machine some more. */
export const TIME_MS_MAX = Math.max(60_000, RUNS * 200);

export type History = [{ isFolder: boolean; at: number; name: number }[], Step[]];

/** One history, at work. */
export class Run {
  readonly world: SyncWorld;
  #count = 0;
  readonly discards: Promise<void>[] = [];
  /** Their deletion was asked for, was not heard of, and was given up by a person: for ever, they may be gone. */
  readonly #mayBeGone = new Set<ResourceUrl>();
  readonly trace: string[] = [];
  /** Asked for and not merged yet. */
  readonly #listings: {
    readonly ino: Inode;
    readonly entries: readonly RemoteEntry[];
    readonly sequence: number;
    readonly fence: ListingFence;
    readonly tree: Tree;
  }[] = [];

  /** Whether another client is at work: then names may be taken, and folders gone. */
  readonly isShared: boolean;
  readonly #kind: Kind;

  constructor(
    { deletion, kind = USUAL }: { readonly deletion: 'trash' | 'forever'; readonly kind?: Kind },
    entries: readonly { isFolder: boolean; at: number; name: number }[],
    isShared = false,
  ) {
    this.isShared = isShared;
    this.#kind = kind;
    this.world = new SyncWorld({ deletion });
    const { service } = this.world;
    const { names, ...does } = kind;
    Object.assign(service, does);
    const folders = [MODEL_ROOT];
    for (const { isFolder, at, name } of entries) {
      const parent = folders[at % folders.length] ?? MODEL_ROOT;
      const called = names[name] ?? '';
      if (service.isTaken(parent, called)) continue;
      if (isFolder) folders.push(service.add('folder', parent, called));
      else service.add('file', parent, called, Buffer.from(this.#text()));
    }
    this.world.learn();
    this.trace.push(`service: ${JSON.stringify([...service.tree()])}`);
  }

  async take(step: Step): Promise<void> {
    const { world } = this;
    const before = BY_THE_USER.has(step.do) ? [] : [...world.localTree().values()];
    const done = this.#act(step);
    if (done !== null) this.trace.push(`${JSON.stringify(step)} ${done}`);
    await world.quiet();
    world.contents.collect();
    const here = world.localTree();
    this.check(here);
    if (before.length === 0) return;
    // What was never filled has no bytes that could get lost.
    const left = new Set([...here.values(), ...world.service.allBytes(), UNFILLED]);
    for (const bytes of before) {
      if (bytes !== null && !left.has(bytes))
        throw new Error(`${JSON.stringify(bytes)} got lost without the user's doing`);
    }
  }

  closeAll(): void {
    for (const ino of [...this.world.open]) {
      this.world.open.delete(ino);
      this.world.beingWritten.delete(ino);
      this.world.sync.changed(ino);
    }
  }

  /** The failure, with all that led to it. */
  told(error: unknown): Error {
    const said = error instanceof Error ? error.message : String(error);
    const asked = this.world.service.requests.join(' | ');
    return new Error(`${said}\n${this.trace.join('\n')}\nasked: ${asked}`, { cause: error });
  }

  /** The local tree as the service should have it: without local-only nodes, and without the numbers of names that those hold (S-names-5). */
  pushedTree(): Map<string, string | null> {
    const { world } = this;
    const properOf = new Map<string, string>([['', '']]);
    const pushed = new Map<string, string | null>();
    for (const [path, bytes] of world.localTree()) {
      const { localOnly, remote } = world.node(path);
      const cut = path.lastIndexOf('/');
      const [folder, name] = [path.slice(0, cut), path.slice(cut + 1)];
      const isNumbered = remote !== null && world.find(`${folder}/${remote.name}`)?.localOnly === true;
      const proper = `${properOf.get(folder) ?? folder}/${isNumbered ? remote.name : name}`;
      properOf.set(path, proper);
      if (!localOnly) pushed.set(proper, bytes);
    }
    return pushed;
  }

  /** No bytes that a user sees are nowhere, and nothing was asked that the service does not allow. */
  check(here = this.world.localTree()): void {
    for (const [path, bytes] of here) {
      if (bytes !== 'nowhere') continue;
      const { remote } = this.world.node(path);
      if (!(remote && this.#mayBeGone.has(remote.resource))) throw new Error(`the bytes of ${path} are nowhere`);
    }
    const { violations } = this.world.service;
    // That one nobody may ever do, whoever else is there. The plan compares names exactly: only a refusal shows that a service folds case.
    const isWrong = (violation: string) =>
      violation.includes('never told') || (!this.isShared && !violation.endsWith(' in another case'));
    const wrong = violations.filter(isWrong);
    if (wrong.length > 0) throw new Error(`not allowed: ${wrong.join(', ')}`);
    // There is nobody to be in conflict with. Where case is folded, one of two names is in conflict with the other.
    if (this.isShared || this.#kind.foldsCase) return;
    const copy = [...here.keys()].find((path) => path.includes('conflicted copy'));
    if (copy !== undefined) throw new Error(`needless: ${copy}`);
  }

  /** Its bytes have lengths that ours never have: after a lost answer, length is all there is to tell ours by. */
  #foreign(step: Extract<Step, { do: 'foreign' }>): string | null {
    const { service } = this.world;
    const all = [...service.resources.values()].filter(({ url }) => url !== MODEL_TRASH && !service.isInTrash(url));
    const folders = all.filter(({ kind }) => kind === 'folder');
    const others = all.filter(({ url }) => url !== MODEL_ROOT);
    const parent = folders[step.to % folders.length]?.url ?? MODEL_ROOT;
    const name = this.#kind.names[step.name] ?? '';
    const isTaken = service.isTaken(parent, name);
    const target = others[step.at % Math.max(1, others.length)];
    if (step.what <= 1) {
      if (isTaken) return null;
      if (step.what === 0) service.add('folder', parent, name);
      else service.add('file', parent, name, Buffer.from(`theirs ${++this.#count}`));
      return `made ${name} in ${parent}`;
    }
    if (target === undefined) return null;
    if (step.what === 2 && target.kind === 'file') {
      service.addVersion(target.url, Buffer.from(`theirs ${++this.#count}`));
      return `wrote ${target.url}`;
    }
    if (step.what === 3) {
      target.parent = MODEL_TRASH;
      return `trashed ${target.url}`;
    }
    for (let at: ResourceUrl | null = parent; at !== null; at = service.resources.get(at)?.parent ?? null) {
      if (at === target.url) return null;
    }
    if (isTaken) return null;
    target.parent = parent;
    target.name = name;
    return `moved ${target.url} to ${parent} as ${name}`;
  }

  #act(step: Step): string | null {
    const { world } = this;
    const { service } = world;
    try {
      switch (step.do) {
        case 'mkdir':
          return world.mkdir(this.#path(step.at, step.name)) && this.#path(step.at, step.name);
        case 'write': {
          const path = this.#path(step.at, step.name);
          if (world.find(path)?.kind === 'folder') return null;
          world.write(path, this.#text());
          return path;
        }
        case 'patch': {
          const path = this.#path(step.at, step.name);
          if (world.find(path)?.kind !== 'file') return null;
          world.patch(path, 1, '!');
          return path;
        }
        case 'rename':
        case 'exchange': {
          const [from, to] = [this.#any(step.at), this.#path(step.to, step.name)];
          if (from === null) return null;
          world.rename(from, to, step.do === 'rename' ? 'replace' : 'exchange');
          return `${from} → ${to}`;
        }
        case 'remove': {
          const path = this.#path(step.at, step.name);
          world.remove(path);
          return path;
        }
        case 'remove-all': {
          const path = this.#path(step.at, step.name);
          world.removeAll(path);
          return path;
        }
        case 'wait':
          world.clock.advance(step.ms);
          return '';
        case 'restart':
          world.restart({ type: step.took ? 'lose-reply' : 'lose-request' }, step.isContinued ?? false);
          return '';
        case 'open': {
          const path = this.#any(step.at);
          if (path !== null) world.open.add(world.node(path).ino);
          return path;
        }
        case 'retry':
          world.sync.retry();
          return '';
        case 'write-open': {
          const path = this.#any(step.at);
          const ino = path === null || world.node(path).kind !== 'file' ? null : world.node(path).ino;
          if (ino === null) return null;
          world.open.add(ino);
          world.beingWritten.add(ino);
          return path;
        }
        case 'discard': {
          const path = this.#any(step.at);
          if (path === null) return null;
          const { ino } = world.node(step.at % 5 === 0 ? '' : path);
          for (const { action, resource } of world.intents.open())
            if (action === 'trash' && resource !== null) this.#mayBeGone.add(resource);
          const discard = world.sync.discard(ino, 'discard');
          // Refused while a program writes.
          const over = discard.then(
            () => {},
            (error: unknown) => {
              if (!(error instanceof UsageError)) throw error;
            },
          );
          this.discards.push(over);
          return path;
        }
        case 'close':
          for (const ino of [...world.open]) {
            world.open.delete(ino);
            world.beingWritten.delete(ino);
            world.sync.changed(ino);
          }
          return '';
        case 'evict':
          world.contents.evict();
          return '';
        case 'foreign':
          return this.#foreign(step);
        case 'list': {
          const ino = this.#folder(step.at);
          const resource = world.tree.node(ino)?.remote?.resource;
          if (resource === undefined || !service.resources.has(resource) || this.#listings.length > 3) return null;
          const entries = service.listing(resource);
          const { fence, tree } = world;
          this.#listings.push({ ino, entries, sequence: fence.nextSequence(), fence, tree });
          return resource;
        }
        case 'merge': {
          const listing = this.#listings.shift();
          // A listing is not heard of by the process that did not ask for it.
          if (listing === undefined || listing.tree !== world.tree) return null;
          const { ino, entries, sequence, fence, tree } = listing;
          const { questions } = tree.merge(ino, entries, sequence, world.clock.nowMs(), null);
          for (const question of questions) {
            const found = service.resources.get(question.resource);
            const answer = found === undefined ? null : service.look(question.resource);
            tree.resolveAbsence(question.ino, answer, sequence, true);
          }
          fence.finish(sequence);
          return `${ino}`;
        }
        default: {
          const [request] = service.pending.splice(step.which % Math.max(1, service.pending.length), 1);
          if (request === undefined) return null;
          const fate: Fate =
            step.do === 'cut'
              ? { type: 'cut', afterBytes: step.which }
              : step.do === 'refuse'
                ? { type: 'refuse', status: REFUSALS[step.which] ?? 503 }
                : { type: step.do };
          request.settle(fate);
          return request.name;
        }
      }
    } catch (error) {
      // The local tree refuses what Unix refuses.
      if ((error as Error).name === 'FsError' || (error as Error).message.startsWith('no /')) return null;
      throw error;
    }
  }

  #folder(at: number): Inode {
    const path = this.#path(at, 0);
    return this.world.node(path.slice(0, path.lastIndexOf('/'))).ino;
  }

  #text(): string {
    this.#count++;
    return this.#count % 3 === 0 ? `long text ${this.#count}` : `t${this.#count}`;
  }

  #path(at: number, name: number): string {
    const folders = ['', ...[...this.world.localTree()].filter(([, bytes]) => bytes === null).map(([path]) => path)];
    return `${folders[at % folders.length]}/${this.#kind.names[name]}`;
  }

  #any(at: number): string | null {
    const paths = [...this.world.localTree().keys()];
    return paths[at % Math.max(1, paths.length)] ?? null;
  }
}
