import { writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, onTestFailed, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { tellFigures } from '../harness/figures.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { ReferenceServer } from '../harness/reference-server.ts';
import { seedsOf } from '../harness/seeds.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';
import { SeededRandom } from '../store/seeded-random.ts';
import { Ledger } from './ledger.ts';
import { MountedClient } from './mounted-client.ts';
import { type Bag, bagDifferences, bagOfMount, bagOfService } from './same-trees.ts';
import { begin, end, forecast, type Weather } from './weather.ts';
import { WebClient } from './web-client.ts';

/**
 * Two mounts of one account, each with a store of its own, and a third client that speaks HTTP: random operations on the same few
 * names, with answers that are late, cut or lost, times without a service, and mounts and servers that are killed. Afterwards
 * both mounts and the service show the same, and every content that a `close(2)` accepted is in a version or in a copy,
 * unless the client that made it replaced or removed it itself. Seeds that once failed stay in the list.
 */
const SEEDS = seedsOf([2]);
const ROUNDS = Number(process.env.CFS_ROUNDS ?? 8);
const STEPS = 14;
const FLAGS = ['--settle', '300ms', '--dir-ttl', '500ms', '--open-wait', '100ms', '--read-timeout', '1s'];
const CONVERGE_MS_MAX = 120_000;

const missing = missingForMounts();
describe.skipIf(missing !== null)(`clients of one account${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  test.each(SEEDS)(
    'two mounts and a web client end with one tree, and no accepted save is lost (SEED=%i)',
    { timeout: 2 * CONVERGE_MS_MAX + ROUNDS * 15_000 },
    async (seed) => {
      const random = new SeededRandom(seed);
      const server = await ReferenceServer.start(seed % 2 === 0 ? ['--unique-names'] : []);
      const mounts: MountFixture[] = [];
      const processes: SyscallProcess[] = [];
      const trace: string[] = [];
      onTestFailed(async () => {
        const file = path.join(tmpdir(), `cfs-clients-${seed}.trace`);
        await writeFile(file, trace.join('\n'));
        console.error(`${trace.join('\n')}\nwhat the clients did: ${file}`);
      });
      try {
        for (const _ of [1, 2]) mounts.push(await MountFixture.start({ server, flags: FLAGS }));
        const [first, second] = mounts as [MountFixture, MountFixture];
        const ledger = new Ledger();
        const clients = mounts.map(
          (_, index) =>
            new MountedClient({
              name: `m${index + 1}`,
              api: () => processes[index] as SyscallProcess,
              random: new SeededRandom(seed * 10 + index),
              ledger,
              trace,
            }),
        );

        let operations = 0;
        let unheard = 0;
        let before: Weather = 'calm';
        for (let round = 0; round < ROUNDS; round++) {
          const weather: Weather = round === 0 ? 'calm' : forecast(random);
          trace.push(`--- round ${round}: ${weather}`);
          for (const [index, mount] of mounts.entries()) processes[index] = await SyscallProcess.start(mount.directory);
          const { reader } = server;
          const web = new WebClient({
            clock: systemClock,
            name: `web${round}`,
            reader,
            random: new SeededRandom(seed * 1_000 + round),
            ledger,
            trace,
          });
          // Signed in before the weather turns.
          await reader.places();
          await begin(weather, server, random);
          const dying = weather === 'first-dies' ? first : weather === 'second-dies' ? second : null;
          const work = Promise.all([
            ...clients.map((client, index) =>
              client.run(STEPS, { weather, before, isKilled: mounts[index] === dying }),
            ),
            weather === 'away' || weather === 'frozen' ? 0 : web.run(STEPS / 2),
          ]);
          work.catch(() => {});
          if (dying !== null) {
            await systemClock.sleep(random.below(1_000));
            await dying.kill9();
          }
          if (weather === 'restarts') {
            await server.kill9();
            await server.restart();
          }
          for (const done of await work) operations += done;
          unheard += web.unheard;
          await end(weather, server);
          for (const process of processes) await process.dispose();
          if (dying !== null) await dying.mount();
          before = weather;
        }

        const agreed = await converge(mounts, server);
        const { accepted } = ledger;
        tellFigures(
          `SEED=${seed}: ${ROUNDS} rounds, ${operations} operations, ${accepted} contents accepted; ${agreed.length} entries at the end`,
        );
        // A few dozen; how many depends on how busy the machine is. With none the rest would say nothing.
        expect(accepted, 'contents that were accepted').toBeGreaterThan(ROUNDS);
        const unfilled = (await server.reader.list()).filter(({ sizeBytes }) => sizeBytes < 0);
        expect(unfilled.length, 'files that were made and never filled').toBeLessThanOrEqual(unheard);
        expect(ledger.missing(await server.reader.everyVersion())).toEqual([]);
      } catch (error) {
        for (const mount of mounts) trace.push(await mount.logs());
        throw error;
      } finally {
        for (const process of processes) await process.dispose();
        for (const mount of mounts) await mount.dispose();
        await server.dispose();
      }
    },
  );
});

/** Pushes and asks until both mounts and the service show the same. @throws Error with what differs when they never do */
async function converge(mounts: readonly MountFixture[], server: ReferenceServer): Promise<Bag> {
  const begun = performance.now();
  for (;;) {
    for (const mount of mounts) {
      await mount.cfs(['retry']);
      await mount.cfs(['sync', '--wait'], { timeoutMs: CONVERGE_MS_MAX, anyExitCode: true });
    }
    for (const mount of mounts) await mount.cfs(['refresh', '--accept']);
    const differences: string[] = [];
    // What others did may come while it is looked at: a folder that was listed is gone then, a file longer than was said.
    const look = (where: string, bag: Promise<Bag>): Promise<Bag | null> =>
      bag.catch((error: Error) => {
        differences.push(`${where}: ${error.message}`);
        return null;
      });
    const wanted = await look('service', bagOfService(server.reader));
    for (const [index, mount] of mounts.entries()) {
      const bag = await look(`mount ${index + 1}`, bagOfMount(mount));
      if (bag === null || wanted === null) continue;
      for (const line of bagDifferences(bag, wanted)) differences.push(`mount ${index + 1} ${line}`);
    }
    if (wanted !== null && differences.length === 0) return wanted;
    if (performance.now() - begun > CONVERGE_MS_MAX) {
      expect(differences, 'what the mounts have, compared with the service').toEqual([]);
    }
  }
}
