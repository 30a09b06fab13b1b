// What the extension of Nautilus (desktop/) adds to the slowest replies of the main loop: a search, the folder above and back, over 2,000 files, with
// 50 questions in a second. Nautilus runs without and with the extension in turn, on a screen without a graphics card. The gate is in processor
// time of the main loop, so that other work of the machine does not count. Needs root and the packages of `system-packages.mjs desktop`.
// `--quick`: one round over 200 files.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { median, OURS, Results } from './measure/results.mjs';

const quick = process.argv.includes('--quick');
const ROUNDS = quick ? 1 : 3;
const WALKS = quick ? 2 : 5;
const ADDED_MS_MAX = 50;
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
/** Replies during each walk, in ms. @type {{ name: string, ms: number[], processorMs: number[] }[]} */
const walks = [...run.stdout.matchAll(/figures: (\{.*\})$/gm)].map(([, json = '']) => JSON.parse(json));
if (run.status !== 0 || walks.length !== 2 * ROUNDS * WALKS) throw new Error(`${TEST}\n${run.stdout}${run.stderr}`);

const results = new Results('desktop', { rounds: ROUNDS * WALKS, quick });
const P99 = 'reply of the main loop, p99 of a walk';
/** @type {Record<string, number[]>} */
const worked = { with: [], without: [] };
for (const { name, ms, processorMs } of walks) {
  const p99 = percentile(processorMs, 0.99);
  worked[name].push(p99);
  const peer = name === 'with' ? OURS : PEER;
  results.note('reply of the main loop, median', 'ms', peer, percentile(ms, 0.5));
  results.note(P99, 'ms', peer, percentile(ms, 0.99));
  results.note(`${P99}, processor time`, 'ms', peer, p99);
}
results.note('… more than alone', 'ms', OURS, Math.max(0, median(worked.with) - median(worked.without)));
results.gate('… more than alone', 'at most', ADDED_MS_MAX);
process.exitCode = results.finish();

/** @param {number[]} values @param {number} share */
function percentile(values, share) {
  return values.toSorted((one, other) => one - other)[Math.floor(values.length * share)] ?? Number.NaN;
}
