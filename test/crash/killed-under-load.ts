import { spawn } from 'node:child_process';
import {
  closeSync,
  fstatSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { expect, vi } from 'vitest';
import { HANDOVER_BYTES, HandoverState } from '../../src/kernel/handover-state.ts';
import { keeperProgram } from '../../src/kernel/keeper.ts';
import { percentiles, tellFigures } from '../harness/figures.ts';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import { SeededRandom } from '../store/seeded-random.ts';

/** `npm run soak -- continuity` kills more often. */
export const DEATHS = Number(process.env.CFS_TEST_DEATHS ?? '3');
/** The calls of the load from one death to the next. */
const CALLS_BETWEEN = Number(process.env.CFS_TEST_CALLS_BETWEEN ?? '300');
const LOAD = fileURLToPath(new URL('./continuity-load.mjs', import.meta.url));
const LOAD_MS_MAX = 24 * 3_600_000;
const NOTHING_HANDED_OVER = { handles: 0, drafts: 0, nameless: 0, notices: 0 };
/** For the calls from one death to the next, where other programs have the processors. */
const CALLS_MS_MAX = 240_000;
/** What the load leaves. */
const LEFT = ['listed', 'log', 'names-0', 'names-1', 'pattern', 'saved', 'written'];
/**
 * How the process dies, in turn: from outside at any moment, or by itself (kill-points.mjs). After the write of a record, and before its reply,
 * a change is made that its caller does not know of.
 */
const DEATH_POINTS = ['', 'journal-write after', 'journal-write before', 'journal-write torn', 'journal-write after'];
const NTH_MAX = 12;
/** For NODE_OPTIONS of the mount. */
export const KILL_POINTS = fileURLToPath(new URL('./kill-points.mjs', import.meta.url));

/** What tests of `--continuity` need. */
export const missingForContinuity = (): string | null =>
  missingForMounts() ?? (keeperProgram() === null ? 'the keeper, built by a C compiler' : null);

/** A mount with `--continuity` whose process may be killed as often as a test wants, also by itself (kill-points.mjs). */
export class MortalMount {
  readonly mount: MountFixture;
  readonly scratch: string;
  /** For CFS_TEST_KILL_FILE of kill-points.mjs. */
  readonly killFile: string;

  private constructor(mount: MountFixture, scratch: string) {
    this.mount = mount;
    this.scratch = scratch;
    this.killFile = killFileIn(scratch);
  }

  static async start(flags: readonly string[] = []): Promise<MortalMount> {
    const scratch = mkdtempSync(join(tmpdir(), 'cfs-mortal-'));
    const env = {
      CFS_TEST_KEEPER_UNLIMITED: '1',
      NODE_OPTIONS: `--import ${KILL_POINTS}`,
      CFS_TEST_KILL_FILE: killFileIn(scratch),
      CFS_TEST_NEXT_DEATHS: join(scratch, 'deaths'),
    };
    return new MortalMount(await MountFixture.start({ flags: ['--continuity', ...flags], env }), scratch);
  }

  /** Where the process and its successors die next: CFS_TEST_NEXT_DEATHS of kill-points.mjs. */
  get nextDeaths(): readonly string[] {
    return JSON.parse(readFileSync(join(this.scratch, 'deaths'), 'utf8')) as string[];
  }

  set nextDeaths(points: readonly string[]) {
    // The process may read it at any moment.
    writeFileSync(join(this.scratch, 'deaths.new'), JSON.stringify(points));
    renameSync(join(this.scratch, 'deaths.new'), join(this.scratch, 'deaths'));
  }

  /** Whether each write to a content file takes some milliseconds. */
  set isDiskSlow(isSlow: boolean) {
    const file = join(this.scratch, 'deaths.slow');
    if (isSlow) writeFileSync(file, '');
    else rmSync(file, { force: true });
  }

  async dispose(): Promise<void> {
    await this.mount.dispose();
    rmSync(this.scratch, { recursive: true, force: true });
  }
}

const killFileIn = (scratch: string): string => join(scratch, 'point');

/** The process that has `pid` as its child: the keeper. */
export function parentOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
}

/** What the load has said last of its calls. */
const callsIn = (lines: readonly string[]): number => Number(lines.at(-1)?.split(' ')[1] ?? 0);

/** Kills the process of the mount DEATHS times under a load that checks each result against a model, and expects no wrong result. */
export async function killUnderLoad(
  { mount, scratch, killFile }: MortalMount,
  { seed, hasStandby = false, what = 'continuity' }: { seed: number; hasStandby?: boolean; what?: string },
): Promise<void> {
  const stop = join(scratch, `stop-${seed}`);
  const random = new SeededRandom(seed);
  await mount.run(`mkdir load-${seed}`);
  const load = spawn(
    process.execPath,
    [LOAD, join(mount.directory, `load-${seed}`), String(LOAD_MS_MAX), String(seed), stop],
    { cwd: '/', stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const lines: string[] = [];
  createInterface(load.stdout).on('line', (line) => lines.push(line));
  const ended = new Promise<void>((resolve) => load.on('close', () => resolve()));
  await vi.waitUntil(() => lines.length > 0, { timeout: 60_000, interval: 20 });
  const pauses: number[] = [];
  const keeper = parentOf(mount.pid);
  const held = () => ({
    descriptors: readdirSync(`/proc/${keeper}/fd`).length,
    children: readFileSync(`/proc/${keeper}/task/${keeper}/children`, 'utf8').trim().split(' ').length,
  });
  const heldBefore = held();
  // Null until it has taken over: it listens before that.
  const pauseOf = async () => (await mount.status().catch(() => null))?.continuity?.lastPauseMs ?? null;
  try {
    for (let death = 0; death < DEATHS && load.exitCode === null; death++) {
      const callsUntil = callsIn(lines) + CALLS_BETWEEN;
      await vi.waitUntil(() => callsIn(lines) >= callsUntil, { timeout: CALLS_MS_MAX, interval: 7 });
      if (hasStandby) await mount.standbyReady();
      const point = DEATH_POINTS[(seed + death) % DEATH_POINTS.length];
      writeFileSync(killFile, JSON.stringify({ point, nth: 1 + random.below(NTH_MAX) }));
      await mount.killAndContinue((pid) => process.kill(pid, point === '' ? 'SIGKILL' : 'SIGUSR2'));
      pauses.push(await vi.waitUntil(pauseOf, { timeout: 60_000, interval: 20 }));
    }
  } finally {
    writeFileSync(stop, '');
    await ended;
    const { calls, wrong } = JSON.parse(lines.at(-1) ?? '{}');
    tellFigures(
      `${what}: ${pauses.length} deaths, ${calls} calls, ${wrong?.length} wrong; pause ${percentiles(pauses)}`,
    );
    for (const each of wrong ?? []) tellFigures(each);
  }
  const { calls, wrong } = JSON.parse(lines.at(-1) ?? '{}');
  expect(wrong).toEqual([]);
  expect(pauses).toHaveLength(DEATHS);
  // No descriptor and no zombie stays behind.
  expect(held()).toEqual(heldBefore);
  expect(calls).toBeGreaterThan(100);
  // No conflicted copy, and nothing that was removed.
  expect((await mount.run(`ls load-${seed}`)).stdout.trim().split('\n')).toEqual(LEFT);
  await mount.run(`rm -r load-${seed} || { ls -liR load-${seed}; exit 1; }`);
  // No row of the handover state either: whatever the load used, it has closed or removed.
  await expect.poll(() => handedOver(keeper), { timeout: 30_000 }).toEqual(NOTHING_HANDED_OVER);
}

/** How much of the handover state a successor would find now. */
function handedOver(keeper: number): typeof NOTHING_HANDED_OVER {
  const place = `/proc/${keeper}/fd`;
  const memory = readdirSync(place).find((fd) => readlinkSync(join(place, fd)).startsWith('/memfd:'));
  const file = openSync(join(place, memory as string), 'r');
  try {
    const bytes = new Uint8Array(new ArrayBuffer(HANDOVER_BYTES));
    readSync(file, bytes, { position: fstatSync(file).size - HANDOVER_BYTES });
    const state = new HandoverState(bytes.buffer, 0, 1);
    return {
      handles: [...state.inherited()].length,
      drafts: state.drafts.inherited().length,
      nameless: state.removals.nameless().length,
      notices: state.notices.inherited(Number.MAX_SAFE_INTEGER).length,
    };
  } finally {
    closeSync(file);
  }
}
