import fc from 'fast-check';
import { afterEach, describe, expect, test } from 'vitest';
import type { ModelService } from './model-service.ts';
import { SETTLE_MS, SyncWorld } from './sync-world.ts';

/**
 * Two machines on one account: once everything is acknowledged and closed, both and the service show the same name for the same file, one
 * listing later.
 */

const RUNS = Number(process.env.CFS_SYNC_RUNS ?? 60);
const TIME_MS_MAX = Math.max(60_000, RUNS * 200);

interface Kind {
  readonly what: string;
  readonly names: readonly string[];
  readonly service: Partial<Pick<ModelService, 'uniqueNames' | 'foldsCase' | 'newAddresses' | 'asBegun'>>;
}

const KINDS: readonly Kind[] = [
  { what: 'names are unique', names: ['a', 'b', 'c'], service: {} },
  { what: 'it folds case', names: ['a', 'A', 'b'], service: { foldsCase: true } },
  { what: 'one name may be there twice', names: ['a', 'b', 'a (2)'], service: { uniqueNames: false } },
  {
    what: 'one name may be there twice, and what is moved has a new address',
    names: ['a', 'b', 'a (2)'],
    service: { uniqueNames: false, newAddresses: true },
  },
];

let worlds: [SyncWorld, SyncWorld];

function begin(service: Kind['service']): [SyncWorld, SyncWorld] {
  const first = new SyncWorld({ host: 'first' });
  Object.assign(first.service, service);
  worlds = [first, new SyncWorld({ host: 'second' }, first.service)];
  return worlds;
}

afterEach(async () => {
  for (const world of worlds) await world.sync.stop();
});

/** All is closed and pushed, and each machine has listed every folder after that. */
async function settle(): Promise<void> {
  for (const world of worlds) {
    for (const ino of [...world.open]) {
      world.open.delete(ino);
      world.beingWritten.delete(ino);
      world.sync.changed(ino);
    }
  }
  for (let round = 0; round < 6; round++) {
    for (const world of worlds) {
      world.clock.advance(SETTLE_MS + 1);
      world.sync.retry();
      await world.converge();
      world.learn();
    }
  }
  for (const world of worlds) expect(world.sync.status()).toMatchObject({ pending: 0, pushing: 0 });
  for (const world of worlds) world.learn();
}

function expectOneTree(): void {
  const there = Object.fromEntries([...worlds[0].service.tree()].sort());
  for (const world of worlds) expect(Object.fromEntries([...world.localTree()].sort())).toEqual(there);
}

describe('two machines make a file of one name before they hear of each other', () => {
  test('after both machines create a file of one name, each name is one file on all machines', async () => {
    const [first, second] = begin({});
    first.write('/x', 'of the first');
    second.write('/x', 'of the second');
    await first.settle();
    await second.settle();
    for (const world of worlds) world.learn();

    expect(first.service.tree().get('/x')).toBe('of the first');
    expect([...first.service.tree().values()].sort()).toEqual(['of the first', 'of the second']);
    expectOneTree();
  });

  test('with case folding on the service, each name is one file on all machines', async () => {
    const [first, second] = begin({ foldsCase: true });
    first.write('/a.txt', 'of the first');
    second.write('/A.TXT', 'of the second');
    await first.settle();
    await second.settle();
    for (const world of worlds) world.learn();

    expect([...second.localTree().keys()].sort()).toEqual([
      expect.stringMatching(/^\/A \(conflicted copy .* second\)\.TXT$/),
      '/a.txt',
    ]);
    expectOneTree();
  });

  test('the address decides where the service may have one name twice', async () => {
    const [first, second] = begin({ uniqueNames: false });
    second.write('/x', 'of the second');
    first.write('/x', 'of the first');
    await first.settle();
    await second.settle();
    for (const world of worlds) world.learn();

    expect([...first.service.tree().keys()]).toEqual(['/x', '/x (2)']);
    expectOneTree();
  });

  test('an open file keeps its name in a name collision until it is closed', async () => {
    const [first, second] = begin({});
    first.write('/x', 'of the first');
    const { ino } = second.write('/x', 'of the second');
    second.open.add(ino);
    await first.settle();
    await second.settle();
    for (const world of worlds) world.learn();
    expect(second.node('/x').ino).toBe(ino);
    expect(second.localTree().get('/x (2)')).toBe('of the first');

    second.open.delete(ino);
    second.learn();
    expectOneTree();
  });
});

type Step =
  | { readonly do: 'write' | 'mkdir' | 'remove' | 'open'; readonly at: number; readonly name: number }
  | { readonly do: 'rename'; readonly at: number; readonly to: number; readonly name: number }
  | { readonly do: 'wait' | 'answer' | 'list' | 'close' | 'lose-request' | 'lose-reply' };

const place = fc.nat(12);
const step: fc.Arbitrary<{ readonly machine: number; readonly step: Step }> = fc.record({
  machine: fc.nat(1),
  step: fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        do: fc.constantFrom('write' as const, 'write' as const, 'write' as const, 'mkdir' as const, 'remove' as const),
        at: place,
        name: fc.nat(2),
      }),
    },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('open' as const), at: place, name: fc.nat(2) }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constant('rename' as const), at: place, to: place, name: fc.nat(2) }) },
    {
      weight: 7,
      arbitrary: fc.record({
        do: fc.constantFrom(
          ...(['wait', 'wait', 'answer', 'answer', 'answer', 'list', 'close', 'lose-request', 'lose-reply'] as const),
        ),
      }),
    },
  ),
});

class Run {
  readonly #kind: Kind;
  readonly trace: string[] = [];
  #count = 0;

  constructor(kind: Kind) {
    this.#kind = kind;
    begin(kind.service);
  }

  async take(machine: number, step: Step): Promise<void> {
    const world = worlds[machine] as SyncWorld;
    this.trace.push(`${machine} ${JSON.stringify(step)} ${this.#act(world, step)}`);
    for (const each of worlds) await each.quiet();
  }

  #act(world: SyncWorld, step: Step): string {
    try {
      switch (step.do) {
        case 'write': {
          const path = this.#path(world, step.at, step.name);
          if (world.find(path)?.kind !== 'folder') world.write(path, this.#text());
          return path;
        }
        case 'mkdir':
          return String(world.mkdir(this.#path(world, step.at, step.name)).ino);
        case 'remove': {
          const path = this.#path(world, step.at, step.name);
          world.removeAll(path);
          return path;
        }
        case 'open': {
          const path = this.#path(world, step.at, step.name);
          world.open.add(world.node(path).ino);
          return path;
        }
        case 'rename': {
          const paths = [...world.localTree().keys()];
          const [from, to] = [paths[step.at % Math.max(1, paths.length)], this.#path(world, step.to, step.name)];
          if (from !== undefined) world.rename(from, to);
          return `${from} → ${to}`;
        }
        case 'wait':
          world.clock.advance(SETTLE_MS + 1);
          return '';
        case 'list':
          world.learn();
          return '';
        case 'close':
          for (const ino of [...world.open]) {
            world.open.delete(ino);
            world.sync.changed(ino);
          }
          return '';
        default: {
          const request = world.service.pending.shift();
          request?.settle({ type: step.do });
          return request?.name ?? '';
        }
      }
    } catch (error) {
      // The local tree refuses what Unix refuses.
      if ((error as Error).name === 'FsError' || (error as Error).message.startsWith('no /')) return 'refused';
      throw error;
    }
  }

  /** No two of one length: within a second, and after a lost answer, a length is all there is to tell them by. */
  #text(): string {
    return `${++this.#count} `.padEnd(this.#count + 3, '.');
  }

  #path(world: SyncWorld, at: number, name: number): string {
    const folders = ['', ...[...world.localTree()].filter(([, bytes]) => bytes === null).map(([path]) => path)];
    return `${folders[at % folders.length]}/${this.#kind.names[name]}`;
  }
}

test.each(KINDS)(
  'after any operations of two machines, both and the service have one tree ($what)',
  async (kind) => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 40, size: 'max' }), async (steps) => {
        const run = new Run(kind);
        try {
          for (const { machine, step } of steps) await run.take(machine, step);
          await settle();
          expectOneTree();
        } catch (error) {
          const said = error instanceof Error ? error.message : String(error);
          throw new Error(`${said}\n${run.trace.join('\n')}\nasked: ${worlds[0].service.requests.join(' | ')}`, {
            cause: error,
          });
        } finally {
          for (const world of worlds) await world.sync.stop();
        }
      }),
      { numRuns: RUNS, verbose: 0 },
    );
  },
  TIME_MS_MAX,
);
