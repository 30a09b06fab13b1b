import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SETTLE_MS, SyncedSide } from '../harness/synced-side.ts';
import { MODEL_ROOT, MODEL_TRASH } from './model-service.ts';
import { F, PROGRAMS, type Program } from './save-programs.ts';

/** Whatever a program does with names on the way of a save, the service is to see one file with one more version. */

const text = (save: number): Buffer => Buffer.from(`the text as of save ${save}, ${'x'.repeat(save * 3)}`);

let world: SyncedSide;
let file: string;
beforeEach(async () => {
  world = await SyncedSide.build();
  // Somebody wrote it elsewhere, long ago.
  file = world.service.add('file', MODEL_ROOT, F, text(0));
  expect((await world.mount.readFile(F)).toString()).toBe(text(0).toString());
});
afterEach(() => world.close());

/** Runs a save; before the step `at` (or before each) some time passes. */
async function save(program: Program, number: number, pauseMs: number, at: number | 'each'): Promise<void> {
  for (const [index, step] of program.steps.entries()) {
    if (pauseMs > 0 && (at === 'each' || at === index)) await world.pass(pauseMs);
    await step(world.mount, text(number), text(number - 1));
  }
}

function bytesOnService(): Record<string, string> {
  const shown: Record<string, string> = {};
  for (const { name, url } of world.service.childrenOf(MODEL_ROOT))
    shown[name] = world.service.bytesOf(url)?.toString() ?? 'stub';
  return shown;
}

async function expectOneFile(program: Program, saves: number): Promise<void> {
  await world.converge();
  const resource = world.service.childrenOf(MODEL_ROOT).find(({ name }) => name === F);
  expect(resource?.url).toBe(file);
  const history = resource?.versions.map(({ bytes }) => bytes.toString()) ?? [];
  expect(history[0]).toBe(text(saves).toString());
  expect(history.at(-1)).toBe(text(0).toString());
  const inOrder = Array.from({ length: saves + 1 }, (_, at) => text(saves - at).toString());
  expect(inOrder.filter((bytes) => history.includes(bytes))).toEqual(history);
  const left = program.leaves ?? [];
  expect(Object.keys(bytesOnService()).sort()).toEqual([F, ...left].sort());
  for (const name of left) expect(bytesOnService()[name]).toBe(text(saves - 1).toString());
  expect((await world.mount.readFile(F)).toString()).toBe(text(saves).toString());
  expect(world.service.violations).toEqual([]);
}

describe.each(PROGRAMS)('$name', (program) => {
  test.each([
    ['at once', 0, 0],
    ['slowly, within the settle time', 100, 300],
    ['with the next save at the end of the settle time', 0, SETTLE_MS],
    ['with a minute and more between saves', 0, 70_000],
  ])('three saves %s leave one file with its history, and nothing beside it', async (_how, stepMs, betweenMs) => {
    for (let number = 1; number <= 3; number++) {
      await save(program, number, stepMs, 'each');
      await world.pass(betweenMs);
    }

    await expectOneFile(program, 3);
    expect(world.service.childrenOf(MODEL_TRASH)).toEqual([]);
  });

  test('a pause longer than the settle delay, before any call of a save, loses nothing', async () => {
    for (const at of program.steps.keys()) {
      await world.close();
      world = await SyncedSide.build();
      file = world.service.add('file', MODEL_ROOT, F, text(0));
      await world.mount.readFile(F);

      await save(program, 1, 5 * SETTLE_MS, at);

      if (program.namesStay) await expectOneFile(program, 1);
      else {
        await world.converge();
        const names = [F, ...(program.leaves ?? [])].sort();
        expect(Object.keys(bytesOnService()).sort()).toEqual(names);
        expect(bytesOnService()[F]).toBe(text(1).toString());
        expect([...world.service.allBytes()]).toContain(text(0).toString());
      }
    }
  });
});
