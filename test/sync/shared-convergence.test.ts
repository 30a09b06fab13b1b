import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { foreign, type History, RUNS, Run, remote, step, TIME_MS_MAX } from './generated-histories.ts';
import { SETTLE_MS } from './sync-world.ts';

/** Histories that once failed, with another client at work. */
const ONCE_FAILED: History[] = [
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
];

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
        { numRuns: RUNS, verbose: 0, examples: ONCE_FAILED },
      );
    },
    TIME_MS_MAX,
  );
});
