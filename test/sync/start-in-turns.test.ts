import { expect, test } from 'vitest';
import { SyncWorld } from './sync-world.ts';

const FILES = 1_000;
/** No program is answered during a turn. */
const NODES_OF_TURN_MAX = FILES / 2;

/** A world whose sync was restarted with many changes; `turn` waits for one turn of the loop and returns how many nodes were read meanwhile. */
function restarted(): { world: SyncWorld; turn: () => Promise<number> } {
  const world = new SyncWorld();
  world.sync.pause(null);
  for (let n = 0; n < FILES; n++) world.write(`/f${n}`, `${n}`);
  const read = new Set<unknown>();
  const get = world.store.get.bind(world.store);
  world.store.get = (table, key) => {
    if (table === 'node') read.add(key);
    return get(table, key);
  };
  world.restart();
  const turn = async (): Promise<number> => {
    await new Promise((resolve) => setImmediate(resolve));
    const count = read.size;
    read.clear();
    return count;
  };
  return { world, turn };
}

test('a start with many changes reads their records in several turns, so that programs are answered in between', async () => {
  const { turn } = restarted();
  const nodes: number[] = [];
  while (nodes.reduce((sum, count) => sum + count, 0) < FILES) nodes.push(await turn());
  expect(Math.max(...nodes)).toBeLessThanOrEqual(NODES_OF_TURN_MAX);
});

test('a question right after a start finds all changes, and all are pushed', async () => {
  const { world } = restarted();
  expect(world.sync.status().pending).toBe(FILES);
  world.sync.resume();
  await world.converge(4_000);
  expect(new Map(world.service.tree())).toEqual(world.localTree());
});
