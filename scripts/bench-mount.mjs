// The whole path of a mount: the real file system and store behind the kernel, and the embedded server on the same machine,
// compared with bindfs and ext4 in the same interleaved run. Attribute and entry timeouts are 0 where an operation must reach
// the mount; reads use O_DIRECT where the kernel's page cache would answer. All peers take turns in small pieces of each round.
// `--quick`: two rounds, fewer bytes, without ext4.
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
import { dropPageCache, Ground, run } from './measure/ground.mjs';
import { plant } from './measure/plant.mjs';
import { OURS, Results } from './measure/results.mjs';

const quick = process.argv.includes('--quick');
const continuity = process.argv.includes('--continuity');
const ROUNDS = quick ? 2 : continuity ? 15 : 5;
const CALL_PIECES = 5;
const CALLS = 1000;
const BIG_PIECES = continuity ? 4 : 8;
const PIECE_BYTES = (quick ? 4 : 128) * 1024 ** 2;
const FILE_PIECES = 10;
const FILES = quick ? 20 : 200;

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
  console.log(JSON.stringify(workload(process.argv.slice(3).filter((word) => !word.startsWith('--')))));
  process.exit(0);
}

/**
 * Looks up each of many names once, in pseudo-random order, in a known folder.
 * @param {string} directory
 */
function coldWorkload(directory) {
  const folder = openSync(join(directory, COLD), constants.O_RDONLY | constants.O_DIRECTORY);
  return { coldUs: p50Us(COLD_FILES, (i) => statSync(`/proc/self/fd/${folder}/name-${(i * 1_009) % COLD_FILES}`)) };
}

/**
 * All measures of the directories, in a process of its own: in pieces, with the directories in turn for each piece, and each of them first
 * in every second one. What the machine does meanwhile then meets all of them alike.
 *
 * @param {string[]} directories
 * @returns {{ [key: string]: number }[]} of each directory, the median of its pieces
 */
function workload(directories) {
  /** @type {{ [key: string]: number[] }[]} */
  const samples = directories.map(() => Object.fromEntries(MEASURES.map(([key]) => [key, []])));
  const inTurn = (/** @type {number} */ pieces, /** @type {(directory: string, piece: number) => object} */ act) => {
    const order = directories.map((directory, at) => ({ directory, at }));
    for (let piece = 0; piece < pieces; piece++, order.reverse())
      for (const { directory, at } of order)
        for (const [key, value] of Object.entries(act(directory, piece))) samples[at][key].push(value);
  };
  const small = (/** @type {string} */ directory) => join(directory, 'small.bin');
  for (const directory of directories) writeFileSync(small(directory), Buffer.alloc(65536, 7));
  inTurn(CALL_PIECES, (directory) => {
    const fd = openSync(small(directory), 'r');
    const getattrUs = p50Us(CALLS, () => fstatSync(fd));
    closeSync(fd);
    return { getattrUs };
  });
  inTurn(CALL_PIECES, (directory) => {
    // O_DIRECT on ext4 requires aligned memory, and a Buffer is not aligned: there the read uses the page cache.
    const bytes = Buffer.alloc(4096);
    let fd = openSync(small(directory), constants.O_RDONLY | constants.O_DIRECT);
    try {
      readSync(fd, bytes, 0, 4096, 0);
    } catch {
      closeSync(fd);
      fd = openSync(small(directory), 'r');
    }
    const read4kUs = p50Us(CALLS, (i) => readSync(fd, bytes, 0, 4096, (i % 16) * 4096));
    closeSync(fd);
    return { read4kUs };
  });

  const block = Buffer.alloc(1024 ** 2, 5);
  const mbPerSecond = (/** @type {() => void} */ act) => PIECE_BYTES / 1e6 / seconds(act);
  const big = (/** @type {string} */ directory, /** @type {number} */ piece) => join(directory, `big-${piece}.bin`);
  inTurn(BIG_PIECES, (directory, piece) => {
    const writeMBs = mbPerSecond(() => {
      const out = openSync(big(directory, piece), 'w');
      for (let at = 0; at < PIECE_BYTES; at += block.length) writeSync(out, block);
      closeSync(out);
    });
    return { writeMBs };
  });
  dropPageCache();
  inTurn(BIG_PIECES, (directory, piece) => {
    const readMBs = mbPerSecond(() => {
      const fd = openSync(big(directory, piece), 'r');
      for (let at = 0; at < PIECE_BYTES; at += block.length) readSync(fd, block, 0, block.length, at);
      closeSync(fd);
    });
    return { readMBs };
  });

  const bytes = Buffer.alloc(4096, 3);
  inTurn(FILE_PIECES, (directory, piece) => {
    const many = join(directory, `many-${piece}`);
    mkdirSync(many);
    const createSeconds = seconds(() => {
      for (let i = 0; i < FILES; i++) writeFileSync(join(many, `f${i}`), bytes);
    });
    return { createPerSecond: FILES / createSeconds };
  });
  for (const directory of directories) {
    for (let piece = 0; piece < BIG_PIECES; piece++) rmSync(big(directory, piece));
    for (let piece = 0; piece < FILE_PIECES; piece++) rmSync(join(directory, `many-${piece}`), { recursive: true });
    rmSync(small(directory));
  }
  return samples.map((of) =>
    Object.fromEntries(
      Object.entries(of).flatMap(([key, values]) => (values.length > 0 ? [[key, median(values)]] : [])),
    ),
  );
}

/** @param {number} count @param {(i: number) => unknown} act */
function p50Us(count, act) {
  return median(Array.from({ length: count }, (_, i) => seconds(() => act(i)) * 1e6));
}

/** @param {() => unknown} act */
function seconds(act) {
  const start = process.hrtime.bigint();
  act();
  return Number(process.hrtime.bigint() - start) / 1e9;
}

/** @param {number[]} values */
function median(values) {
  return values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
}

const ground = await Ground.lay();
try {
  const flags = '--dir-ttl 24h --attr-timeout 0s --entry-timeout 0s --settle 10m --drain 0s'.split(' ');
  const ours = (continuity ? [OURS, CONTINUITY] : [OURS]).map((name) => ({
    name,
    mount: () => ground.mount(name, name === CONTINUITY ? [...flags, '--continuity'] : flags),
  }));
  const bind = () => ground.bindfs('bound', ['-o', 'attr_timeout=0,entry_timeout=0']);
  let bound = continuity ? null : bind();
  /** @type {import('./measure/plant.mjs').Levels} */
  const levels = [
    ['cold', 1],
    ['name', COLD_FILES],
  ];
  for (const { mount } of ours) {
    // Clean nodes: a start would push changes immediately, and load their nodes into memory.
    const first = mount();
    ground.end(first);
    plant(first.store, levels);
  }
  for (const name of continuity ? [] : quick ? ['bound-behind'] : ['bound-behind', 'plain']) {
    const folder = join(ground.directory(name), COLD);
    run(`mkdir ${folder} && cd ${folder} && for i in $(seq 0 ${COLD_FILES - 1}); do : > name-$i; done`);
  }

  const results = new Results(continuity ? 'mount-continuity' : 'mount', { rounds: ROUNDS, quick });
  const measured = (/** @type {string[]} */ ...words) => {
    const all = [fileURLToPath(import.meta.url), ...words, ...(quick ? ['--quick'] : [])];
    const run = spawnSync(process.execPath, all, { encoding: 'utf8', timeout: 300_000 });
    if (run.status !== 0) throw new Error(`${words.join(' ')}: ${run.signal ?? run.stderr}`);
    return JSON.parse(run.stdout);
  };
  for (let round = 0; round < ROUNDS; round++) {
    // Fresh processes, which have answered no request yet.
    const mounts = ours.map(({ name, mount }) => ({ name, mount: mount() }));
    if (bound !== null && round > 0) {
      ground.unmount(bound);
      bound = bind();
    }
    const peers = [
      ...mounts.map(({ name, mount }) => ({ name, directory: mount.directory })),
      ...(quick || continuity ? [] : [{ name: 'ext4', directory: ground.directory('plain') }]),
      ...(bound === null ? [] : [{ name: 'bindfs', directory: bound }]),
    ];
    if (round % 2 === 1) peers.reverse();
    const cold = peers.map(({ directory }) => measured('--cold', directory));
    const warm = measured('--workload', ...peers.map(({ directory }) => directory));
    for (const [at, { name }] of peers.entries())
      for (const [key, measure, unit] of MEASURES) results.note(measure, unit, name, { ...cold[at], ...warm[at] }[key]);
    for (const { mount } of mounts) ground.end(mount);
  }
  if (continuity) continuityGates(results, MEASURES);
  else for (const gate of GATES) results.gate(...gate);
  process.exitCode = results.finish();
} finally {
  await ground.clear();
}
