import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { UsageError } from '../../src/base/errors.ts';
import type { RemoteEntry } from '../../src/base/resources.ts';
import type { ContentId, Inode, ResourceUrl } from '../../src/base/vocabulary.ts';
import type { ListingFence } from '../../src/tree/listing-fence.ts';
import type { Tree } from '../../src/tree/tree.ts';
import { checkStore } from '../tree/tree-fixture.ts';
import type { Fate } from './model-service.ts';
import { MODEL_ROOT, MODEL_TRASH } from './model-service.ts';
import { SETTLE_MS, SyncWorld, UNFILLED } from './sync-world.ts';

/**
 * From any tree on the service, any changes made here, in any order of answers, with requests lost before or after they took
 * effect, bodies cut, listings that come late, and restarts anywhere: the service ends with what is here, was never asked for what it does not allow,
 * and at no moment are a file's bytes nowhere.
 *
 * Names are few, so that they collide; the service answers 409 to a name that is taken, and the model notes that as a
 * violation: whoever orders his requests rightly is never told so.
 */

type Step =
  | { readonly do: 'mkdir' | 'write' | 'patch' | 'remove' | 'remove-all'; readonly at: number; readonly name: number }
  | { readonly do: 'rename' | 'exchange'; readonly at: number; readonly to: number; readonly name: number }
  | { readonly do: 'wait'; readonly ms: number }
  | { readonly do: 'answer' | 'lose-request' | 'lose-reply' | 'cut' | 'refuse'; readonly which: number }
  | { readonly do: 'restart'; readonly took: boolean }
  | { readonly do: 'open' | 'close' | 'write-open' | 'discard' | 'retry'; readonly at: number }
  | { readonly do: 'list'; readonly at: number }
  | { readonly do: 'foreign'; readonly what: number; readonly at: number; readonly to: number; readonly name: number }
  | { readonly do: 'merge' | 'evict' };

const place = fc.nat(40);
const step: fc.Arbitrary<Step> = fc.oneof(
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
  { weight: 1, arbitrary: fc.record({ do: fc.constant('restart' as const), took: fc.boolean() }) },
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
const history: fc.Arbitrary<Step[]> = fc
  .tuple(fc.boolean(), fc.array(step, { maxLength: 40, size: 'max' }))
  .map(([isPlain, steps]) => (isPlain ? steps.filter((each) => each.do !== 'refuse' && each.do !== 'discard') : steps));

/** What another client does, besides. */
const foreign: fc.Arbitrary<Step> = fc.record({
  do: fc.constant('foreign' as const),
  what: fc.nat(5),
  at: place,
  to: place,
  name: fc.nat(3),
});

/** A tree on the service: folders and files by (index of the folder, name). */
const remote = fc.array(fc.record({ isFolder: fc.boolean(), at: place, name: fc.nat(3) }), {
  maxLength: 12,
  size: 'max',
});

const REFUSALS = [503, 403, 404, 409, 413, 500, 400, 429];
const BY_THE_USER: ReadonlySet<Step['do']> = new Set(['discard', 'write', 'patch', 'rename', 'remove', 'remove-all']);

/** Four names, and what else the service does. */
interface Kind {
  readonly names: readonly string[];
  readonly uniqueNames?: boolean;
  readonly foldsCase?: boolean;
  readonly newAddresses?: boolean;
  readonly asBegun?: boolean;
}

const USUAL: Kind = { names: ['a', 'b', 'c', 'd'] };
const FOLDING: Kind = { names: ['a', 'A', 'B', 'b'], foldsCase: true, asBegun: true };
const READDRESSING: Kind = { ...USUAL, newAddresses: true };
const REPEATING: Kind = { names: ['a', 'b', 'a (2)', 'b (2)'], uniqueNames: false, newAddresses: true };
/** Of some names the files stay here, unless the service has them. */
const STAYING: Kind = { names: ['a', 'b', '.DS_Store', 'desktop.ini'] };
const RUNS = Number(process.env.CFS_SYNC_RUNS ?? 60);
/** A case takes some ten milliseconds, on a busy machine some more. */
const TIME_MS_MAX = Math.max(60_000, RUNS * 200);

type History = [{ isFolder: boolean; at: number; name: number }[], Step[]];

/** Histories that once failed: with nobody else, and with another client at work. */
const ONCE_FAILED: Readonly<Record<'alone' | 'shared', History[]>> = {
  alone: [
    // A discard gave up an upload that had arrived: as many bytes as those before, in the same second.
    [
      [],
      [
        { do: 'write', at: 0, name: 1 },
        { do: 'restart', took: false },
        { do: 'write', at: 0, name: 2 },
        { do: 'answer', which: 0 },
        { do: 'write', at: 0, name: 0 },
        { do: 'write', at: 0, name: 1 },
        { do: 'answer', which: 0 },
        { do: 'wait', ms: 2500 },
        { do: 'answer', which: 2 },
        { do: 'discard', at: 2 },
        { do: 'cut', which: 4 },
        { do: 'discard', at: 0 },
      ],
    ],
    // The upload whose answer was lost had gone over to the file that was renamed over its own; then both were removed.
    [
      [
        { isFolder: false, at: 0, name: 0 },
        { isFolder: true, at: 0, name: 1 },
      ],
      [
        { do: 'write', at: 0, name: 2 },
        { do: 'rename', at: 8, to: 13, name: 2 },
        { do: 'wait', ms: 2500 },
        { do: 'write', at: 0, name: 2 },
        { do: 'answer', which: 0 },
        { do: 'rename', at: 23, to: 7, name: 2 },
        { do: 'lose-reply', which: 0 },
        { do: 'remove-all', at: 0, name: 1 },
      ],
    ],
    // A draft that was being pushed lay over another file's version, and was not the newest any more when that file was deleted.
    [
      [{ isFolder: false, at: 0, name: 0 }],
      [
        { do: 'rename', at: 0, to: 0, name: 1 },
        { do: 'write', at: 0, name: 0 },
        { do: 'patch', at: 0, name: 1 },
        { do: 'wait', ms: 2500 },
        { do: 'lose-request', which: 3 },
        { do: 'answer', which: 0 },
        { do: 'remove-all', at: 0, name: 0 },
        { do: 'write', at: 0, name: 1 },
        { do: 'lose-request', which: 0 },
        { do: 'evict' },
      ],
    ],
  ],
  shared: [
    // Another client moved a folder into one that was just deleted for ever: it stays, reachable by its address only.
    [
      [
        { isFolder: false, at: 0, name: 0 },
        { isFolder: true, at: 0, name: 3 },
        { isFolder: false, at: 0, name: 2 },
        { isFolder: true, at: 0, name: 1 },
      ],
      [
        { do: 'remove-all', at: 0, name: 3 },
        { do: 'rename', at: 0, to: 7, name: 0 },
        { do: 'mkdir', at: 0, name: 0 },
        { do: 'write', at: 25, name: 0 },
        { do: 'restart', took: false },
        { do: 'restart', took: false },
        { do: 'answer', which: 7 },
        { do: 'rename', at: 7, to: 1, name: 1 },
        { do: 'foreign', what: 2, at: 31, to: 10, name: 0 },
      ],
    ],
    // A deletion for ever took effect unheard, could not be found out, and was discarded: what is shown then has no bytes.
    [
      [{ isFolder: false, at: 0, name: 1 }],
      [
        { do: 'remove', at: 0, name: 1 },
        { do: 'wait', ms: 2000 },
        { do: 'answer', which: 0 },
        { do: 'lose-reply', which: 0 },
        { do: 'wait', ms: 1000 },
        { do: 'write', at: 0, name: 0 },
        { do: 'refuse', which: 1 },
        { do: 'discard', at: 0 },
      ],
    ],
    // A folder was un-parked by what came to lie in it, and nobody knew that it was to be tried.
    [
      [
        { isFolder: true, at: 0, name: 2 },
        { isFolder: true, at: 0, name: 0 },
        { isFolder: true, at: 10, name: 0 },
      ],
      [
        { do: 'foreign', what: 4, at: 0, to: 22, name: 0 },
        { do: 'rename', at: 0, to: 35, name: 0 },
        { do: 'rename', at: 10, to: 0, name: 1 },
      ],
    ],
    // A file was deleted for ever while the conflicted copy of its older version was on its way, which lay nowhere else.
    [
      [
        { isFolder: false, at: 0, name: 2 },
        { isFolder: false, at: 0, name: 0 },
      ],
      [
        { do: 'write', at: 0, name: 1 },
        { do: 'foreign', what: 2, at: 0, to: 0, name: 0 },
        { do: 'rename', at: 22, to: 0, name: 2 },
        { do: 'restart', took: false },
        { do: 'answer', which: 0 },
        { do: 'rename', at: 8, to: 0, name: 2 },
      ],
    ],
  ],
};

/** Histories that once failed with services of other kinds, with nobody else. */
const OTHERS_FAILED: readonly { readonly what: string; readonly kind: Kind; readonly histories: History[] }[] = [
  {
    what: 'it folds case',
    kind: FOLDING,
    histories: [
      // Each waited for the other one, with a name that is not quite the same.
      [
        [{ isFolder: false, at: 0, name: 3 }],
        [
          { do: 'mkdir', at: 0, name: 2 },
          { do: 'rename', at: 0, to: 7, name: 0 },
        ],
      ],
    ],
  },
  {
    what: 'what is moved has a new address',
    kind: READDRESSING,
    histories: [
      // A file was moved unheard, and so was not found in the folder that had another address by then.
      [
        [
          { isFolder: false, at: 0, name: 1 },
          { isFolder: true, at: 0, name: 2 },
        ],
        [
          { do: 'rename', at: 0, to: 21, name: 0 },
          { do: 'wait', ms: 2500 },
          { do: 'cut', which: 0 },
          { do: 'rename', at: 0, to: 0, name: 0 },
          { do: 'restart', took: false },
          { do: 'answer', which: 3 },
        ],
      ],
      // A gateway's 404 for the root was taken for a removed folder, in which a moved file could not be.
      [
        [{ isFolder: false, at: 0, name: 0 }],
        [
          { do: 'rename', at: 0, to: 0, name: 3 },
          { do: 'wait', ms: 90000 },
          { do: 'lose-reply', which: 0 },
          { do: 'wait', ms: 90000 },
          { do: 'answer', which: 0 },
          { do: 'refuse', which: 2 },
          { do: 'answer', which: 0 },
          { do: 'mkdir', at: 0, name: 3 },
        ],
      ],
    ],
  },
  {
    what: 'some names stay local',
    kind: STAYING,
    histories: [
      // A second save was discarded whose fate a restart had hidden, and the first one, whose time was never listed, became a conflicted copy.
      [
        [],
        [
          { do: 'write', at: 0, name: 0 },
          { do: 'wait', ms: 2500 },
          { do: 'answer', which: 0 },
          { do: 'answer', which: 0 },
          { do: 'write', at: 0, name: 0 },
          { do: 'restart', took: false },
          { do: 'discard', at: 0 },
          { do: 'write', at: 0, name: 0 },
        ],
      ],
      // A creation was acknowledged between the plan to remove its folder and the listing before it.
      [
        [
          { isFolder: true, at: 0, name: 1 },
          { isFolder: true, at: 0, name: 2 },
          { isFolder: false, at: 10, name: 1 },
          { isFolder: false, at: 0, name: 0 },
          { isFolder: false, at: 17, name: 1 },
          { isFolder: true, at: 26, name: 2 },
          { isFolder: true, at: 21, name: 0 },
        ],
        [
          { do: 'mkdir', at: 26, name: 0 },
          { do: 'mkdir', at: 2, name: 0 },
          { do: 'wait', ms: 90000 },
          { do: 'rename', at: 2, to: 6, name: 2 },
          { do: 'rename', at: 10, to: 6, name: 0 },
          { do: 'rename', at: 11, to: 22, name: 2 },
        ],
      ],
      // A file was given back whose name a local-only folder had meanwhile.
      [
        [{ isFolder: false, at: 0, name: 2 }],
        [
          { do: 'rename', at: 0, to: 0, name: 3 },
          { do: 'remove-all', at: 0, name: 3 },
          { do: 'mkdir', at: 0, name: 2 },
          { do: 'discard', at: 0 },
        ],
      ],
      // A folder became local-only. Its remote folder was deleted before a file had left it, and its name was still taken.
      [
        [
          { isFolder: true, at: 0, name: 0 },
          { isFolder: false, at: 13, name: 0 },
        ],
        [
          { do: 'write', at: 0, name: 3 },
          { do: 'rename', at: 4, to: 0, name: 2 },
          { do: 'exchange', at: 40, to: 0, name: 3 },
          { do: 'patch', at: 0, name: 2 },
        ],
      ],
      // A move was sent, the file deleted, and both discarded: nobody asked what had become of the move of the file that was there again.
      [
        [
          { isFolder: true, at: 0, name: 0 },
          { isFolder: false, at: 9, name: 0 },
          { isFolder: true, at: 0, name: 1 },
        ],
        [
          { do: 'rename', at: 4, to: 22, name: 2 },
          { do: 'wait', ms: 90000 },
          { do: 'rename', at: 0, to: 0, name: 3 },
          { do: 'remove-all', at: 11, name: 2 },
          { do: 'discard', at: 0 },
        ],
      ],
    ],
  },
  {
    what: 'one name may be there twice',
    kind: REPEATING,
    histories: [
      // A file was made unheard, and once more in the folder that had another address by then.
      [
        [
          { isFolder: false, at: 0, name: 0 },
          { isFolder: true, at: 0, name: 3 },
          { isFolder: false, at: 0, name: 1 },
          { isFolder: false, at: 9, name: 1 },
          { isFolder: true, at: 15, name: 0 },
        ],
        [
          { do: 'write', at: 2, name: 0 },
          { do: 'wait', ms: 1000 },
          { do: 'rename', at: 21, to: 0, name: 2 },
          { do: 'wait', ms: 1000 },
          { do: 'restart', took: true },
          { do: 'answer', which: 7 },
        ],
      ],
      // A file was deleted while its folder got another address, in which it was not looked for.
      [
        [
          { isFolder: true, at: 0, name: 1 },
          { isFolder: false, at: 0, name: 0 },
          { isFolder: false, at: 31, name: 2 },
        ],
        [
          { do: 'rename', at: 0, to: 1, name: 0 },
          { do: 'remove', at: 21, name: 2 },
          { do: 'wait', ms: 90000 },
          { do: 'answer', which: 0 },
          { do: 'write', at: 21, name: 0 },
          { do: 'answer', which: 0 },
          { do: 'refuse', which: 0 },
          { do: 'rename', at: 0, to: 0, name: 0 },
        ],
      ],
    ],
  },
];

class Run {
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
          world.restart({ type: step.took ? 'lose-reply' : 'lose-request' });
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

/** With nothing begun, a content is referred to by facets and by what lies over it, and by nothing else. */
function expectCountedReferences({ store }: SyncWorld): void {
  const counted = new Map<ContentId, number>([...store.all('content')].map(([id]) => [id, 0]));
  const refer = (id: ContentId | null | undefined): void => {
    if (id != null) counted.set(id, (counted.get(id) ?? 0) + 1);
  };
  for (const [, { local, remote }] of store.all('node')) {
    refer(local?.content);
    refer(remote?.content);
  }
  for (const [, { base }] of store.all('content')) refer(base);
  expect(new Map([...store.all('content')].map(([id, { refs }]) => [id, refs]))).toEqual(counted);
}

async function converges(
  how: { readonly deletion: 'trash' | 'forever'; readonly kind?: Kind },
  entries: readonly { isFolder: boolean; at: number; name: number }[],
  steps: readonly Step[],
): Promise<void> {
  const run = new Run(how, entries);
  const { world } = run;
  try {
    for (const step of steps) await run.take(step);
    run.closeAll();
    world.clock.advance(SETTLE_MS + 1);
    for (let round = 0; round < 3; round++) {
      world.sync.retry();
      await world.converge();
      // What was discarded may be there.
      world.learn();
    }
    await Promise.all(run.discards);
    run.check();
    const [there, here] = [world.service.tree(), run.pushedTree()];
    expect(Object.fromEntries([...here].sort())).toEqual(Object.fromEntries([...there].sort()));
    expect(world.sync.status()).toMatchObject({ pending: 0, pushing: 0 });
    checkStore(world.store, 'by others too');
    expectCountedReferences(world);
  } catch (error) {
    throw run.told(error);
  } finally {
    await world.sync.stop();
  }
}

describe('the service becomes what is here', () => {
  test.each(['trash', 'forever'] as const)(
    'the service has the local state, whatever is lost on the way, with deletion to %s',
    async (deletion) => {
      await fc.assert(
        fc.asyncProperty(remote, history, (entries, steps) => converges({ deletion }, entries, steps)),
        { numRuns: RUNS, verbose: 0, examples: ONCE_FAILED.alone },
      );
    },
    TIME_MS_MAX,
  );

  test.each(OTHERS_FAILED)(
    'the service has the local state, whatever its kind: $what',
    async ({ kind, histories }) => {
      await fc.assert(
        fc.asyncProperty(
          fc.constantFrom('trash' as const, 'forever' as const),
          remote,
          history,
          (deletion, entries, steps) => converges({ deletion, kind }, entries, steps),
        ),
        {
          numRuns: Math.ceil(RUNS / 2),
          verbose: 0,
          examples: histories.map(([entries, steps]): ['trash', ...History] => ['trash', entries, steps]),
        },
      );
    },
    TIME_MS_MAX,
  );
});

describe('with another client at work', () => {
  /** Both come to show the same files under the same names, and nobody's bytes are lost: not one's that the other overwrote, moved or deleted. */
  test.each(['trash', 'forever'] as const)(
    'two clients have one state, and only bytes that their owner gave up are lost, with deletion to %s',
    async (deletion) => {
      await fc.assert(
        fc.asyncProperty(
          remote,
          fc.array(fc.oneof({ weight: 4, arbitrary: step }, { weight: 1, arbitrary: foreign }), {
            maxLength: 40,
            size: 'max',
          }),
          async (entries, steps) => {
            const run = new Run({ deletion }, entries, true);
            const { world } = run;
            world.service.keptVersions = 1_000;
            try {
              for (const step of steps) await run.take(step);
              run.closeAll();
              for (let round = 0; round < 6; round++) {
                world.clock.advance(SETTLE_MS + 1);
                world.sync.retry();
                await world.converge();
                world.learn();
                run.check();
              }
              const [there, here] = [world.service.tree(), world.localTree()];
              expect(Object.fromEntries([...here].sort())).toEqual(Object.fromEntries([...there].sort()));
              expect(world.sync.status()).toMatchObject({ pending: 0, pushing: 0 });
            } catch (error) {
              throw run.told(error);
            } finally {
              await world.sync.stop();
            }
          },
        ),
        { numRuns: RUNS, verbose: 0, examples: ONCE_FAILED.shared },
      );
    },
    TIME_MS_MAX,
  );
});
