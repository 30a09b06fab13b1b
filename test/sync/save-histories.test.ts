import { afterEach, expect, test } from 'vitest';
import { SETTLE_MS, SyncedSide } from '../harness/synced-side.ts';
import { MODEL_ROOT } from './model-service.ts';
import { F, PROGRAMS, type Program } from './save-programs.ts';

/** The history of a file survives every save: each program, each pause between its system calls, on a file that was never read here. */

const BEFORE = Buffer.from('written elsewhere');
const SAVED = Buffer.from('saved here');
const TIMINGS = ['no pause', 'pauses of 1 s', 'pauses of 5 s', 'each step pushed before the next'] as const;

const cases = PROGRAMS.flatMap((program) => TIMINGS.map((timing) => ({ program, timing, name: program.name })));

let world: SyncedSide;
afterEach(() => world.close());

async function pause(timing: (typeof TIMINGS)[number]): Promise<void> {
  if (timing === 'pauses of 1 s') await world.pass(1_000);
  if (timing === 'pauses of 5 s') await world.pass(5_000);
  if (timing !== 'each step pushed before the next') return;
  for (let round = 0; round < 4; round++) await world.pass(SETTLE_MS);
}

async function save({ steps }: Program, timing: (typeof TIMINGS)[number]): Promise<void> {
  for (const [index, step] of steps.entries()) {
    if (index > 0) await pause(timing);
    await step(world.mount, SAVED, BEFORE);
  }
}

test.each(cases)('a save by $name with $timing keeps the history of a file that was never read here', async (each) => {
  world = await SyncedSide.build();
  const file = world.service.add('file', MODEL_ROOT, F, BEFORE);
  await world.mount.stat(F);

  await save(each.program, each.timing);
  await world.converge();

  const there = world.service.childrenOf(MODEL_ROOT);
  const leaves = each.program.leaves ?? [];
  expect(there.map(({ name }) => name).sort()).toEqual([F, ...leaves].sort());
  const saved = there.find(({ name }) => name === F);
  expect(saved?.url).toBe(file);
  expect(saved?.versions.map(({ bytes }) => bytes.toString())).toEqual([SAVED.toString(), BEFORE.toString()]);
  for (const { url, name } of there)
    if (leaves.includes(name)) expect(world.service.bytesOf(url)?.toString()).toBe(BEFORE.toString());
  expect(world.service.violations).toEqual([]);
});
