// The whole path of a mount: the real file system and store behind the kernel, and the embedded server on the same machine,
// compared with bindfs and ext4 in the same interleaved run. Attribute and entry timeouts are 0 where an operation must reach
// the mount; reads use O_DIRECT where the kernel's page cache would answer. `--quick`: two rounds, fewer bytes, without ext4.
// `--continuity`: ours without and with that option alone, in turn, and what it costs.
import { spawnSync } from 'node:child_process';
import {
  closeSync,
  constants,
  fstatSync,
  mkdirSync,
  openSync,
  readSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CONTINUITY, continuityGates } from './measure/continuity-gates.mjs';
import { Ground, run } from './measure/ground.mjs';
import { plant } from './measure/plant.mjs';
import { OURS, Results } from './measure/results.mjs';

const quick = process.argv.includes('--quick');
const continuity = process.argv.includes('--continuity');
const ROUNDS = quick ? 2 : continuity ? 9 : 5;
const BIG_BYTES = quick ? 32 * 1024 ** 2 : 1024 ** 3;
const FILES = quick ? 200 : 1000;

/** The results of the workload: [key, measure, unit]. */
const MEASURES = [
  ['getattrUs', 'getattr of a node in memory', 'µs'],
  ['coldUs', 'stat of a node not in memory, first after a start', 'µs'],
  ['read4kUs', '4 KiB read of kept bytes', 'µs'],
  ['writeMBs', 'write in calls of 1 MiB until close', 'MB/s'],
  ['readMBs', 'read in calls of 1 MiB, page cache dropped', 'MB/s'],
  ['createPerSecond', 'create + 4 KiB + close', 'per s'],
];
/** @type {[measure: string, bound: 'at most' | 'at least', factor: number, peer?: string][]} */
const GATES = [
  ['getattr of a node in memory', 'at most', 1.3, 'bindfs'],
  ['stat of a node not in memory, first after a start', 'at most', 2, 'bindfs'],
];
const COLD_FILES = 3000;
const COLD = 'cold-0';

if (process.argv[2] === '--cold') {
  console.log(JSON.stringify(coldWorkload(process.argv[3])));
  process.exit(0);
}
if (process.argv[2] === '--workload') {
  console.log(JSON.stringify(workload(process.argv[3])));
  process.exit(0);
}

/**
 * Looks up each of many names once, in pseudo-random order, in a known folder.
 * @param {string} directory
 */
function coldWorkload(directory) {
  const folder = openSync(join(directory, COLD), constants.O_RDONLY | constants.O_DIRECTORY);
  const times = [];
  for (let i = 0, at = 0; i < COLD_FILES; i++, at = (at + 1_009) % COLD_FILES) {
    const start = process.hrtime.bigint();
    statSync(`/proc/self/fd/${folder}/name-${at}`);
    times.push(Number(process.hrtime.bigint() - start) / 1000);
  }
  return { coldUs: times.sort((a, b) => a - b)[Math.floor(times.length / 2)] };
}

/**
 * All measures of one directory, in a process of its own.
 * @param {string} directory
 */
function workload(directory) {
  const result = {};
  const p50 = (/** @type {number[]} */ times) =>
    times.sort((/** @type {number} */ a, /** @type {number} */ b) => a - b)[Math.floor(times.length / 2)];
  const timed = (/** @type {number} */ count, /** @type {(i: number) => unknown} */ act) => {
    const times = [];
    for (let i = 0; i < count; i++) {
      const start = process.hrtime.bigint();
      act(i);
      times.push(Number(process.hrtime.bigint() - start) / 1000);
    }
    return p50(times);
  };
  const small = join(directory, 'small.bin');
  writeFileSync(small, Buffer.alloc(65536, 7));
  const fd = openSync(small, 'r');
  result.getattrUs = timed(5000, () => fstatSync(fd));
  closeSync(fd);
  const direct = openSync(small, constants.O_RDONLY | constants.O_DIRECT);
  // O_DIRECT on ext4 requires aligned memory, and a Buffer is not aligned: there the read uses the page cache.
  const aligned = Buffer.alloc(4096);
  let readable = direct;
  try {
    readSync(direct, aligned, 0, 4096, 0);
  } catch {
    readable = openSync(small, 'r');
  }
  result.read4kUs = timed(5000, (/** @type {number} */ i) => readSync(readable, aligned, 0, 4096, (i % 16) * 4096));
  closeSync(direct);

  const block = Buffer.alloc(1024 ** 2, 5);
  const big = join(directory, 'big.bin');
  let start = process.hrtime.bigint();
  let out = openSync(big, 'w');
  for (let at = 0; at < BIG_BYTES; at += block.length) writeSync(out, block);
  closeSync(out);
  const mbPerSecond = (/** @type {number} */ bytes) => bytes / 1e6 / (Number(process.hrtime.bigint() - start) / 1e9);
  result.writeMBs = mbPerSecond(BIG_BYTES);
  spawnSync('sh', ['-c', 'echo 1 > /proc/sys/vm/drop_caches']);
  start = process.hrtime.bigint();
  out = openSync(big, 'r');
  for (let at = 0; at < BIG_BYTES; at += block.length) readSync(out, block, 0, block.length, at);
  closeSync(out);
  result.readMBs = mbPerSecond(BIG_BYTES);
  rmSync(big);

  const many = join(directory, 'many');
  mkdirSync(many);
  const bytes = Buffer.alloc(4096, 3);
  start = process.hrtime.bigint();
  for (let i = 0; i < FILES; i++) writeFileSync(join(many, `f${i}`), bytes);
  result.createPerSecond = FILES / (Number(process.hrtime.bigint() - start) / 1e9);
  rmSync(many, { recursive: true });
  rmSync(small);
  return result;
}

const ground = await Ground.lay();
try {
  const flags = '--dir-ttl 24h --attr-timeout 0s --entry-timeout 0s --settle 10m --drain 0s'.split(' ');
  let mount = ground.mount('mount', flags);
  const bind = () => ground.bindfs('bound', ['-o', 'attr_timeout=0,entry_timeout=0']);
  const bound = continuity ? null : bind();
  const peers = [
    { name: OURS, directory: mount.directory },
    ...(quick || continuity ? [] : [{ name: 'ext4', directory: ground.directory('plain') }]),
  ];
  if (bound !== null) peers.push({ name: 'bindfs', directory: bound });
  // Clean nodes: a start would push changes immediately, and load their nodes into memory.
  ground.end(mount);
  /** @type {import('./measure/plant.mjs').Levels} */
  const levels = [
    ['cold', 1],
    ['name', COLD_FILES],
  ];
  plant(mount.store, levels);
  for (const name of continuity ? [] : quick ? ['bound-behind'] : ['bound-behind', 'plain']) {
    const folder = join(ground.directory(name), COLD);
    run(`mkdir ${folder} && cd ${folder} && for i in $(seq 0 ${COLD_FILES - 1}); do : > name-$i; done`);
  }

  const results = new Results(continuity ? 'mount-continuity' : 'mount', { rounds: ROUNDS, quick });
  const measuredBy = (
    /** @type {string} */ workload,
    /** @type {{ name: string, directory: string }} */ { name, directory },
  ) => {
    const words = [fileURLToPath(import.meta.url), workload, directory, ...(quick ? ['--quick'] : [])];
    const run = spawnSync(process.execPath, words, { encoding: 'utf8', timeout: 300_000 });
    if (run.status !== 0) throw new Error(`${name}: ${run.stderr}`);
    return JSON.parse(run.stdout);
  };
  const measure = (/** @type {{ name: string, directory: string }} */ peer) => {
    const measured = { ...measuredBy('--cold', peer), ...measuredBy('--workload', peer) };
    for (const [key, measure, unit] of MEASURES) results.note(measure, unit, peer.name, measured[key]);
  };
  // One store and one directory for both, and each of them first in every second round.
  for (let round = 0; continuity && round < ROUNDS; round++) {
    for (const name of round % 2 === 0 ? [OURS, CONTINUITY] : [CONTINUITY, OURS]) {
      mount = ground.mount('mount', name === CONTINUITY ? [...flags, '--continuity'] : flags);
      measure({ name, directory: mount.directory });
      ground.end(mount);
    }
  }
  for (let round = 0; !continuity && round < ROUNDS; round++) {
    // Fresh processes, which have answered no request yet.
    if (round > 0) ground.end(mount);
    mount = ground.mount('mount', flags);
    if (bound !== null) {
      ground.unmount(bound);
      bind();
    }
    for (const peer of peers) measure(peer);
  }
  if (continuity) continuityGates(results, MEASURES);
  else for (const gate of GATES) results.gate(...gate);
  process.exitCode = results.finish();
} finally {
  await ground.clear();
}
