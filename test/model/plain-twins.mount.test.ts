import { afterEach, expect, onTestFailed, test } from 'vitest';
import type { FileApi } from '../conformance/file-api.ts';
import { type Ground, plainGround } from '../harness/ground.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';
import { SeededRandom } from '../store/seeded-random.ts';
import { TwinModel } from './twin-model.ts';

/** The model against itself: two plain directories agree, and one that lies is found out. */
const grounds: Ground[] = [];
const processes: SyscallProcess[] = [];
afterEach(async () => {
  for (const process of processes.splice(0)) await process.dispose();
  for (const ground of grounds.splice(0)) await ground.dispose();
});

async function plainSide(): Promise<SyscallProcess> {
  const ground = await plainGround();
  grounds.push(ground);
  const process = await SyscallProcess.start(ground.directory);
  processes.push(process);
  return process;
}

test.each([1, 2])('two plain directories answer alike (SEED=%i)', async (seed) => {
  const model = new TwinModel({
    plain: await plainSide(),
    tested: await plainSide(),
    random: new SeededRandom(seed),
  });
  onTestFailed(() => console.error(model.trace));

  await model.run(2_000);
  await model.closeAll();
  await model.compareTrees();
});

test.each([
  ['write', 'takes bytes and forgets them'],
  ['ftruncate', 'says done and does nothing'],
  ['rename', 'says done and does nothing'],
  ['unlink', 'says done and does nothing'],
])('a %s that %s is found out', async (name, _how) => {
  const honest = await plainSide();
  let calls = 0;
  const lying = new Proxy<FileApi>(honest, {
    get(target, property: keyof FileApi) {
      const value = target[property];
      if (property === name && ++calls % 10 === 0) {
        return async (...args: unknown[]) => (name === 'write' ? (args[2] as Uint8Array).byteLength : undefined);
      }
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
  const model = new TwinModel({ plain: await plainSide(), tested: lying, random: new SeededRandom(3) });

  await expect(model.run(5_000)).rejects.toThrow(/after\n/);
});
