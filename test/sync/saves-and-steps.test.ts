import fc from 'fast-check';
import { test } from 'vitest';
import { type SaveStep, SavesAndSteps, saveStep } from './saves-and-steps.ts';

const RUNS = Number(process.env.CFS_SAVES_RUNS ?? 34);
/** A case takes some hundred milliseconds, on a busy machine more than a second. */
const TIME_MS_MAX = Math.max(180_000, RUNS * 3_000);

test(
  'generated saves, reads, deletions and remote changes send only closed bytes, and lose only bytes that were given up',
  async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.record({
          ...{ asBegun: fc.boolean(), uniqueNames: fc.boolean(), foldsCase: fc.boolean() },
          ...{
            newAddresses: fc.boolean(),
            copies: fc.constantFrom('whole' as const, 'whole' as const, 'empty' as const, 'none' as const),
            deletion: fc.constantFrom('trash' as const, 'forever' as const),
          },
          ...{ isAlone: fc.boolean(), isRoomy: fc.boolean() },
        }),
        fc.array(saveStep, { maxLength: 60, size: 'max' }),
        async (how, steps: readonly SaveStep[]) => {
          const run = await SavesAndSteps.begin(how);
          try {
            for (const step of steps) await run.take(step);
            await run.end();
          } catch (error) {
            throw run.told(error);
          } finally {
            await run.close();
          }
        },
      ),
      { numRuns: RUNS, verbose: 0 },
    );
  },
  TIME_MS_MAX,
);
