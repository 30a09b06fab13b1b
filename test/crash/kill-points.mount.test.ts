import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test, vi } from 'vitest';
import { runCommand } from '../harness/command.ts';
import { tellFigures } from '../harness/figures.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { ReferenceServer } from '../harness/reference-server.ts';
import { seedsOf } from '../harness/seeds.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';
import { treeDifferences, treeDigests } from '../harness/tree-digests.ts';
import { SeededRandom } from '../store/seeded-random.ts';
import { CrashModel } from './crash-model.ts';
import { ANY_MOMENT, KILL_POINTS, type KillPoint } from './points.ts';

/**
 * SIGKILL of the mount, of the server, of both, at every named step of the store and of an upload and at any moment, under load.
 * Each life begins by showing what the last one promised, and then the service has to have all of it, nothing twice; but for one
 * life in four, which is killed while it makes up for the kill before. A kill counts only if the service lacked something then.
 */
const SEEDS = seedsOf([1]);
/** CI has 50, `npm run soak -- crashes` 1,000. */
const KILLS = Number(process.env.CFS_KILLS ?? 12);
/** After so many kills a mount with an empty store shows the same. */
const FRESH_EVERY = 25;
const STEPS = 60;
/** Of a kill at any moment: how long after the load began, at most. */
const MOMENT_MS_MAX = 400;
const BACK_MS = 2_000;
const FLAGS = ['--settle', '30ms'];
const SCRIPT = fileURLToPath(new URL('./kill-points.mjs', import.meta.url));

const missing = missingForMounts();
describe.skipIf(missing !== null)(`SIGKILL at every step${missing === null ? '' : ` (needs: ${missing})`}`, () => {
  test.each(SEEDS)(
    `loses nothing that was acknowledged (SEED=%i, ${KILLS} kills)`,
    {
      timeout: 60_000 + KILLS * 12_000,
    },
    async (seed) => {
      const scratch = await mkdtemp(path.join(tmpdir(), 'cfs-kills-'));
      const killFiles = { mount: path.join(scratch, 'mount'), server: path.join(scratch, 'server') };
      const preload = (victim: keyof typeof killFiles) => ({
        NODE_OPTIONS: `--import ${SCRIPT}`,
        CFS_TEST_KILL_FILE: killFiles[victim],
      });
      const server = await ReferenceServer.start(['--log-level', 'debug'], preload('server'));
      const random = new SeededRandom(seed);
      const deck = new Deck(random);
      const model = new CrashModel(random);
      const counted = new Map<string, number>();
      const readyMs: number[] = [];
      let mount: MountFixture | null = null;
      let kills = 0;
      try {
        mount = await MountFixture.start({ server, flags: FLAGS, env: preload('mount') });
        for (let life = 0; kills < KILLS; life++) {
          if (life > KILLS * 3) throw new Error(`only ${kills} kills in ${life} lives found something pending`);
          const point = deck.next();
          const both = random.below(4) === 0;
          const nth = 1 + random.below(point.nthMax);
          const momentMs = random.below(MOMENT_MS_MAX);
          const victimPid = point.victim === 'mount' ? mount.pid : server.pid;
          if (point.name !== ANY_MOMENT) await arm({ point: point.name, nth }, victimPid, killFiles[point.victim]);
          const writer = await SyscallProcess.start(mount.directory);
          const moment = setTimeout(() => {
            if (point.name === ANY_MOMENT) process.kill(victimPid, 'SIGKILL');
          }, momentMs);
          const alive = await model.work(writer, STEPS + random.below(STEPS)).catch((error: unknown) => {
            throw new Error(`life ${life}, ${point.name}: ${(error as Error).message}`, { cause: error });
          });
          clearTimeout(moment);
          await writer.dispose();
          model.trace.push(`--- life ${life}: ${both ? 'both, ' : ''}${point.victim}, ${point.name} ${nth}`);
          const reached = point.victim === 'mount' ? !alive : !server.isAlive;
          // A call that failed means that the mount was dead, not that it refused.
          if (!alive) {
            expect(point.victim, `life ${life}: a call failed under a living mount`).toBe('mount');
            await mount.gone();
          } else if (point.victim === 'mount') await mount.kill9();
          if (both || point.victim === 'server') await server.kill9();
          if (both && point.victim === 'server') await mount.kill9();

          const mountDied = both || point.victim === 'mount';
          // While one of the two is down nothing moves between them.
          let wasPending = !mountDied && (await pendingCount(mount)) > 0;
          if (!server.isAlive) await server.restart();
          if (mountDied) {
            // The service may still be storing what the dead mount had sent: then a listing and the data do not agree.
            const { reader } = server;
            const held = await vi.waitFor(() => reader.filledDigests(), { timeout: 20_000, interval: 50 });
            wasPending = treeDifferences(held, model.tree).length > 0;
            const begun = performance.now();
            await mount.mount();
            readyMs.push(performance.now() - begun);
            const { stdout } = await runCommand(['grep', '-c', ` ${mount.directory} `, '/proc/mounts']);
            expect(stdout.trim(), 'mounts at the mount point').toBe('1');
          }
          expect(model.settle(await treeDigests(mount)), `after life ${life}, ${point.name}`).toEqual([]);
          if (wasPending) {
            kills += 1;
            const name = `${both ? 'both, ' : ''}${point.victim}: ${reached ? point.name : 'when the load was over'}`;
            counted.set(name, (counted.get(name) ?? 0) + 1);
          }
          const looksFresh = kills === KILLS || (wasPending && kills % FRESH_EVERY === 0);
          if (looksFresh || random.below(4) > 0) await expectPushed(mount, model);
          if (looksFresh) {
            expect(await sentTwice(mount), 'versions that were made twice').toEqual([]);
            const fresh = await MountFixture.start({ server, flags: FLAGS });
            try {
              expect(treeDifferences(await treeDigests(fresh), model.tree), 'seen with an empty cache').toEqual([]);
            } finally {
              await fresh.dispose();
            }
          }
        }
        await mount.unmount();
        expect((await mount.cfs(['doctor', '--store'], { timeoutMs: 60_000 })).code, 'the store is whole').toBe(0);
      } catch (error) {
        const file = path.join(tmpdir(), `cfs-kills-${seed}.trace`);
        const held = await server.reader.everyVersion().catch(() => new Map<string, string[]>());
        const where = [...model.tree].map(([name, digest]) => `${name}: ${held.get(digest)?.join(', ') ?? '-'}`);
        await writeFile(
          file,
          [...model.trace, server.log, await mount?.logs(), ...where, (error as Error).stack].join('\n'),
        );
        throw new Error(`${(error as Error).message}; what happened: ${file}`, { cause: error });
      } finally {
        await mount?.dispose();
        await server.dispose();
        await rm(scratch, { recursive: true, force: true });
      }
      const named = [...counted.keys()].filter((name) => !/any moment|was over/.test(name));
      tellFigures(
        `${kills} kills with something pending (SEED=${seed}) under ${model.acknowledged} writes, at ${named.length} named steps; ` +
          `back after ${Math.round(Math.max(...readyMs))} ms at most, ${readyMs.filter((ms) => ms >= BACK_MS).length} times after more than ${BACK_MS} ms`,
      );
      console.info(
        [...counted]
          .map(([name, count]) => `  ${count} × ${name}`)
          .sort()
          .join('\n'),
      );
      expect(named.length, 'named steps that were reached').toBeGreaterThan(Math.min(KILLS, 40) / 4);
    },
  );
});

/** Each point once before any comes again, in an order by chance. */
class Deck {
  readonly #random: SeededRandom;
  #left: KillPoint[] = [];

  constructor(random: SeededRandom) {
    this.#random = random;
  }

  next(): KillPoint {
    if (this.#left.length === 0) this.#left = [...KILL_POINTS];
    return this.#left.splice(this.#random.below(this.#left.length), 1)[0] as KillPoint;
  }
}

async function arm(what: { point: string; nth: number }, pid: number, killFile: string): Promise<void> {
  await writeFile(killFile, JSON.stringify(what));
  process.kill(pid, 'SIGUSR2');
}

/** Changes that the service lacks, as a living mount says. */
async function pendingCount(mount: MountFixture): Promise<number> {
  return (await mount.status())?.pending.count ?? 0;
}

async function expectPushed(mount: MountFixture, model: CrashModel): Promise<void> {
  await mount.sync();
  expect(treeDifferences(await mount.serverTree(), model.tree), 'what the service has').toEqual([]);
}

/** Files of which two versions in a row have the same bytes: what was sent again although it had arrived. */
async function sentTwice(mount: MountFixture): Promise<string[]> {
  const { reader } = mount.server;
  const twice: string[] = [];
  for (const entry of await reader.list()) {
    if (entry.kind !== 'file') continue;
    const digests = await reader.versionDigests(entry);
    if (digests.some((digest, at) => digest === digests[at + 1])) twice.push(`${entry.path}: ${digests.join(', ')}`);
  }
  return twice;
}
