import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ContentId } from '../../src/base/vocabulary.ts';
import { checkStore } from '../tree/tree-fixture.ts';
import {
  FOLDING,
  type History,
  history,
  type Kind,
  READDRESSING,
  REPEATING,
  RUNS,
  Run,
  remote,
  STAYING,
  type Step,
  TIME_MS_MAX,
} from './generated-histories.ts';
import { SETTLE_MS, type SyncWorld } from './sync-world.ts';

/** Histories that once failed, with nobody else. */
const ONCE_FAILED: History[] = [
  // A save was discarded before its first byte was sent. Then a file was moved over what it was made over, which came back.
  [
    [
      { isFolder: true, at: 0, name: 2 },
      { isFolder: false, at: 0, name: 0 },
    ],
    [
      { do: 'write', at: 7, name: 0 },
      { do: 'wait', ms: 90000 },
      { do: 'answer', which: 0 },
      { do: 'answer', which: 0 },
      { do: 'write', at: 7, name: 0 },
      { do: 'wait', ms: 90000 },
      { do: 'discard', at: 0 },
      { do: 'rename', at: 3, to: 15, name: 0 },
    ],
  ],
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
];

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
      // A folder was moved unheard into a folder that became local-only: the answer put it there, and not into the remote folder that was deleted.
      [
        [
          { isFolder: false, at: 0, name: 0 },
          { isFolder: true, at: 0, name: 1 },
          { isFolder: true, at: 0, name: 3 },
          { isFolder: false, at: 17, name: 1 },
          { isFolder: true, at: 10, name: 0 },
          { isFolder: true, at: 3, name: 0 },
          { isFolder: true, at: 0, name: 2 },
        ],
        [
          { do: 'rename', at: 33, to: 22, name: 1 },
          { do: 'mkdir', at: 11, name: 0 },
          { do: 'mkdir', at: 23, name: 3 },
          { do: 'wait', ms: 90000 },
          { do: 'write', at: 0, name: 3 },
          { do: 'remove-all', at: 4, name: 1 },
          { do: 'rename', at: 39, to: 35, name: 0 },
        ],
      ],
      // The same with a folder that was made there unheard, and removed.
      [
        [{ isFolder: true, at: 0, name: 1 }],
        [
          { do: 'mkdir', at: 0, name: 2 },
          { do: 'mkdir', at: 2, name: 0 },
          { do: 'wait', ms: 2500 },
          { do: 'remove', at: 2, name: 0 },
          { do: 'rename', at: 1, to: 1, name: 1 },
          { do: 'answer', which: 0 },
          { do: 'wait', ms: 2500 },
          { do: 'answer', which: 1 },
          { do: 'answer', which: 1 },
        ],
      ],
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
        { numRuns: RUNS, verbose: 0, examples: ONCE_FAILED },
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
          examples: histories.flatMap(([entries, steps]): ['trash' | 'forever', ...History][] => [
            ['trash', entries, steps],
            ['forever', entries, steps],
          ]),
        },
      );
    },
    TIME_MS_MAX,
  );
});
