// `npm run bench -- tree [--quick]`: the costs of a mount by the size of its tree, 10⁴, 10⁵ and 10⁶ nodes (`--quick` without the last):
// the time until it is ready, the memory after a `find` over all of it, and the lookup of a known name.
//
// The nodes are written straight into the store (measure/plant.mjs), so that the mount sends no request for them.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { Ground, run } from './measure/ground.mjs';
import { plant } from './measure/plant.mjs';
import { median, OURS, Results } from './measure/results.mjs';

const FILES = 99;
const FOLDERS = 100;
/** A top folder, its folders, their files. */
const NODES_BELOW_TOP = 1 + FOLDERS * (1 + FILES);
const FLAGS = ['--dir-ttl', '24h', '--entry-timeout', '0s', '--attr-timeout', '0s'];
const quick = process.argv.includes('--quick');
const LOOKUPS = quick ? 1500 : 3000;
const ROUNDS = quick ? 2 : 3;
/** @type {[string, number][]} */
const SIZES = [
  ['10⁴', 1],
  ['10⁵', 10],
];
if (!quick) SIZES.push(['10⁶', 100]);

const results = new Results('tree', { rounds: ROUNDS, quick });
/** @type {Record<string, number[]>} */
const lookups = {};
/** Samples by size. @type {Record<string, number[]>} */
const starts = {};
const ground = await Ground.lay();
try {
  const trees = SIZES.map(([size, tops]) => ({ size, tops, nodes: planted(tops) }));
  // The sizes take turns, so that other load on the machine affects all of them.
  for (let round = 0; round < ROUNDS; round++) for (const tree of trees) measure(tree, round === ROUNDS - 1);
} finally {
  await ground.clear();
}
const [smallest, largest] = [SIZES[0][0], SIZES[SIZES.length - 1][0]];
const ratio = (/** @type {Record<string, number[]>} */ times) => median(times[largest]) / median(times[smallest]);
results.note(`until ready, ${largest} beside ${smallest} nodes`, '×', OURS, ratio(starts));
results.note(`lookup, ${largest} beside ${smallest} nodes`, '×', OURS, ratio(lookups));
for (const [size] of SIZES) results.gate(`private memory after find over ${size} nodes`, 'at most', 150);
results.gate(`until ready, ${largest} beside ${smallest} nodes`, 'at most', 1.25);
results.gate(`lookup, ${largest} beside ${smallest} nodes`, 'at most', 2);
process.exitCode = results.finish();

/**
 * A mount whose store holds the tree.
 * @returns its nodes
 * @param {number} tops
 */
function planted(tops) {
  const mount = mounted(tops);
  ground.end(mount); // the store now contains the root folder
  /** @type {import('./measure/plant.mjs').Levels} */
  const levels = [
    ['top', tops],
    ['folder', FOLDERS],
    ['file', FILES],
  ];
  const { seconds } = plant(mount.store, levels);
  const nodes = 1 + tops * NODES_BELOW_TOP;
  console.log(`${nodes} nodes planted in ${seconds.toFixed(1)} s`);
  return nodes;
}

/** @param {number} tops */
function mounted(tops) {
  return ground.mount(`tree-${tops}`, FLAGS);
}

/**
 * One start: its duration, lookups, and after the last start a walk over the whole tree.
 * @param {{ size: string, tops: number, nodes: number }} tree
 * @param {boolean} isLast
 */
function measure({ size, tops, nodes }, isLast) {
  const start = performance.now();
  const mount = mounted(tops);
  const startMs = performance.now() - start;
  starts[size] ??= [];
  starts[size].push(startMs);
  results.note(`until ready, ${size} nodes`, 'ms', OURS, startMs);
  const lookupUs = lookedUp(mount.directory, tops);
  lookups[size] ??= [];
  lookups[size].push(lookupUs);
  results.note(`lookup of a known name among ${size} nodes`, 'µs', OURS, lookupUs);
  if (isLast) {
    const found = run('find . | wc -l', { cwd: mount.directory });
    if (Number(found.out) !== nodes) throw new Error(`find saw ${found.out.trim()} of ${nodes} nodes`);
    results.note(`find over ${size} nodes`, 'per s', OURS, nodes / found.seconds);
    results.note(`private memory after find over ${size} nodes`, 'MiB', OURS, anonymousMiB(mount.pid));
  }
  ground.end(mount);
}

/**
 * Private memory of a process without the slots that it shares with the kernel's side of it: RssAnon.
 * @param {number} pid
 */
function anonymousMiB(pid) {
  const [, kib] = /RssAnon:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
  return Number(kib) / 1024;
}

/**
 * Looks up paths of three known names, in pseudo-random order, in a separate process.
 * @returns µs for each of the three lookups
 * @param {string} directory
 * @param {number} tops
 */
function lookedUp(directory, tops) {
  const script = `const fs=require('fs');let seed=12345;
    const below=(n)=>{seed=(Math.imul(seed,1664525)+1013904223)>>>0;return Math.floor(seed/2**32*n);};const t=[];
    for(let i=0;i<${LOOKUPS};i++){
      const p='${directory}/top-'+below(${tops})+'/folder-'+below(${FOLDERS})+'/file-'+below(${FILES});
      const s=process.hrtime.bigint();fs.statSync(p);t.push(Number(process.hrtime.bigint()-s)/3000);}
    t.sort((a,b)=>a-b);console.log(t[t.length>>1]);`;
  return Number(execFileSync(process.execPath, ['-e', script], { encoding: 'utf8', timeout: 120_000 }));
}
