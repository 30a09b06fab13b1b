// What the extension of Nautilus (desktop/) adds to the longest turns of the main loop: a search, the folder above and back, over 2,000 files.
// Nautilus runs without and with the extension in turn, on a screen without a graphics card. The gate is in processor time of the turns, measured
// within Nautilus, so that other work of the machine does not count. Replies over the session bus, 50 questions in a second, are for information:
// other programs have their part in them, and a question that is under way during several turns waits for all of them.
// Needs root and the packages of `system-packages.mjs desktop`. `--quick`: one round over 200 files.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { median, OURS, Results } from './measure/results.mjs';

const quick = process.argv.includes('--quick');
const ROUNDS = quick ? 1 : 2;
const WALKS = quick ? 2 : 5;
const ADDED_MS_MAX = 50;
const EVERY_MS = 20;
const PEER = 'Nautilus alone';
const TEST = 'test/desktop/main-loop.mount.test.ts';

const words = ['node_modules/vitest/vitest.mjs', 'run', '--project', 'mount', '--disable-console-intercept=true', TEST];
const run = spawnSync(process.execPath, words, {
  cwd: fileURLToPath(new URL('..', import.meta.url)),
  encoding: 'utf8',
  maxBuffer: 1 << 26,
  env: {
    ...process.env,
    ...{ NO_COLOR: '1', NODE_OPTIONS: '' },
    ...{ CFS_LOOP_FILES: quick ? '200' : '2000', CFS_LOOP_ROUNDS: `${ROUNDS}`, CFS_LOOP_WALKS: `${WALKS}` },
  },
});
/** Replies and turns during each walk, in ms. @type {{ name: string, ms: number[], turns: number[] }[]} */
const walks = [...run.stdout.matchAll(/figures: (\{.*\})$/gm)].map(([, json = '']) => JSON.parse(json));
if (run.status !== 0 || walks.length !== 2 * ROUNDS * WALKS) throw new Error(`${TEST}\n${run.stdout}${run.stderr}`);

const results = new Results('desktop', { rounds: ROUNDS * WALKS, quick });
const TURN = 'wait for a turn of the main loop, p99 of a walk, processor time';
/** @type {Record<string, number[]>} */
const p99 = { with: [], without: [] };
for (const { name, ms, turns } of walks) {
  const peer = name === 'with' ? OURS : PEER;
  const waited = percentile(waits(turns, ms.length), 0.99);
  p99[name].push(waited);
  results.note(TURN, 'ms', peer, waited);
  results.note('longest turn of a walk, processor time', 'ms', peer, Math.max(...turns));
  results.note('all turns of a walk, processor time', 'ms', peer, sum(turns));
  results.note('reply over the session bus, median', 'ms', peer, percentile(ms, 0.5));
  results.note('reply over the session bus, p99 of a walk', 'ms', peer, percentile(ms, 0.99));
}
const ADDED = 'p99 of the wait, more than alone';
results.note(ADDED, 'ms', OURS, Math.max(0, median(p99.with) - median(p99.without)));
results.gate(ADDED, 'at most', ADDED_MS_MAX);
process.exitCode = results.finish();

/** What `count` questions, one in 20 ms, wait for turns that have begun. @param {number[]} turns @param {number} count */
function waits(turns, count) {
  const waited = turns.flatMap((turn) =>
    Array.from({ length: Math.ceil(turn / EVERY_MS) }, (_, nth) => turn - nth * EVERY_MS),
  );
  const idle = Math.max(0, count - waited.length);
  return [...waited.toSorted((one, other) => other - one).slice(0, count), ...Array(idle).fill(0)];
}

/** @param {number[]} values */
function sum(values) {
  return values.reduce((one, other) => one + other, 0);
}

/** @param {number[]} values @param {number} share */
function percentile(values, share) {
  return values.toSorted((one, other) => one - other)[Math.floor(values.length * share)] ?? Number.NaN;
}
