// Calls stat(2) on the names f0, f1, … of each directory in turn, one per millisecond, for the given time. A separate process.
//   node looks.mjs MILLISECONDS NAMES DIRECTORY...      prints one line of JSON: for each directory { p50, p99 }, milliseconds
import { statSync } from 'node:fs';
import { join } from 'node:path';

const [lasts, names, ...directories] = process.argv.slice(2);
/** @type {number[][]} */
const took = directories.map(() => []);
const pause = new Int32Array(new SharedArrayBuffer(4));
const end = performance.now() + Number(lasts);
for (let count = 0; performance.now() < end; count++) {
  for (const [at, directory] of directories.entries()) {
    const path = join(directory, `f${count % Number(names)}`);
    const begun = performance.now();
    statSync(path);
    took[at].push(performance.now() - begun);
    Atomics.wait(pause, 0, 0, 1);
  }
}
const quantile = (/** @type {number[]} */ sorted, /** @type {number} */ part) =>
  sorted[Math.floor(sorted.length * part)];
const sorted = took.map((times) => times.toSorted((a, b) => a - b));
console.log(JSON.stringify(sorted.map((times) => ({ p50: quantile(times, 0.5), p99: quantile(times, 0.99) }))));
