import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Fate } from './model-service.ts';
import { MODEL_ROOT } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

/**
 * From any tree on the service, any changes made here, in any order of answers, with requests lost before or after they took
 * effect, bodies cut, and restarts anywhere: the service ends with what is here, was never asked for what it does not allow,
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
  | { readonly do: 'open' | 'close'; readonly at: number }
  | { readonly do: 'evict' };

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
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom('open' as const, 'close' as const), at: place }) },
  { weight: 1, arbitrary: fc.constant({ do: 'evict' as const }) },
);

/** A tree on the service: folders and files by (index of the folder, name). */
const remote = fc.array(fc.record({ isFolder: fc.boolean(), at: place, name: fc.nat(3) }), {
  maxLength: 12,
  size: 'max',
});

const NAMES = ['a', 'b', 'c', 'd'];
const RUNS = Number(process.env.CFS_SYNC_RUNS ?? 150);

class Run {
  readonly world: SyncWorld;
  #count = 0;
  readonly trace: string[] = [];

  constructor(deletion: 'trash' | 'forever', entries: readonly { isFolder: boolean; at: number; name: number }[]) {
    this.world = new SyncWorld({ deletion });
    const { service } = this.world;
    const folders = [MODEL_ROOT];
    for (const { isFolder, at, name } of entries) {
      const parent = folders[at % folders.length] ?? MODEL_ROOT;
      const isTaken = service.childrenOf(parent).some((child) => child.name === NAMES[name]);
      if (isTaken) continue;
      if (isFolder) folders.push(service.add('folder', parent, NAMES[name] ?? ''));
      else service.add('file', parent, NAMES[name] ?? '', Buffer.from(this.#text()));
    }
    this.world.learn();
    this.trace.push(`service: ${JSON.stringify([...service.tree()])}`);
  }

  async take(step: Step): Promise<void> {
    const { world } = this;
    const done = this.#act(step);
    if (done !== null) this.trace.push(`${JSON.stringify(step)} ${done}`);
    await world.quiet();
    world.contents.collect();
    this.check();
  }

  /** No bytes that a user sees are nowhere, and nothing was asked that the service does not allow. */
  check(): void {
    for (const [path, bytes] of this.world.localTree()) {
      if (bytes === 'nowhere') throw new Error(`the bytes of ${path} are nowhere`);
    }
    expect(this.world.service.violations).toEqual([]);
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
        case 'close':
          for (const ino of [...world.open]) {
            world.open.delete(ino);
            world.sync.changed(ino);
          }
          return '';
        case 'evict':
          world.contents.evict();
          return '';
        default: {
          const [request] = service.pending.splice(step.which % Math.max(1, service.pending.length), 1);
          if (request === undefined) return null;
          const fate: Fate =
            step.do === 'cut'
              ? { type: 'cut', afterBytes: step.which }
              : step.do === 'refuse'
                ? { type: 'refuse', status: 503 }
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

  #text(): string {
    this.#count++;
    return this.#count % 3 === 0 ? `long text ${this.#count}` : `t${this.#count}`;
  }

  #path(at: number, name: number): string {
    const folders = ['', ...[...this.world.localTree()].filter(([, bytes]) => bytes === null).map(([path]) => path)];
    return `${folders[at % folders.length]}/${NAMES[name]}`;
  }

  #any(at: number): string | null {
    const paths = [...this.world.localTree().keys()];
    return paths[at % Math.max(1, paths.length)] ?? null;
  }
}

async function converges(
  deletion: 'trash' | 'forever',
  entries: readonly { isFolder: boolean; at: number; name: number }[],
  steps: readonly Step[],
): Promise<void> {
  const run = new Run(deletion, entries);
  const { world } = run;
  try {
    for (const step of steps) await run.take(step);
    for (const ino of [...world.open]) {
      world.open.delete(ino);
      world.sync.changed(ino);
    }
    world.clock.advance(SETTLE_MS + 1);
    world.sync.retry();
    await world.converge();
    run.check();
    expect(Object.fromEntries([...world.service.tree()].sort())).toEqual(
      Object.fromEntries([...world.localTree()].sort()),
    );
    expect(world.sync.status()).toMatchObject({ pending: 0, pushing: 0 });
  } catch (error) {
    const said = error instanceof Error ? error.message : String(error);
    throw new Error(`${said}\n${run.trace.join('\n')}\nasked: ${world.service.requests.join(' | ')}`, { cause: error });
  } finally {
    await world.sync.stop();
  }
}

describe('the service becomes what is here', () => {
  test.each(['trash', 'forever'] as const)('whatever is lost on the way, with deletion to %s', async (deletion) => {
    await fc.assert(
      fc.asyncProperty(remote, fc.array(step, { maxLength: 40, size: 'max' }), (entries, steps) =>
        converges(deletion, entries, steps),
      ),
      { numRuns: RUNS, verbose: 0 },
    );
  });
});
