// `npm run bench [-- NAME …]`: runs the benchmarks (all of them without a name), one after another: two at once would measure
// each other. Each prints a table of medians and ratios against peers of the same run, and writes bench-results/NAME.json.
//   npm run bench -- quick    all of them, with fewer rounds and smaller files
//   npm run bench -- report   writes what was measured last into docs/performance.md
//   npm run bench -- --help   describes the benchmarks and their options
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { built } from './built.mjs';
import { headComment } from './measure/head-comment.mjs';

const scripts = fileURLToPath(new URL('.', import.meta.url));
const root = fileURLToPath(new URL('..', import.meta.url));
const known = readdirSync(scripts)
  .map((file) => /^bench-(.+)\.mjs$/.exec(file)?.[1])
  .filter((name) => name !== undefined)
  .sort();
const words = process.argv.slice(2).filter((word) => !word.startsWith('-'));
const flags = process.argv.slice(2).filter((word) => word.startsWith('-'));
const descriptions = new Map(known.map((name) => [name, headComment(new URL(`bench-${name}.mjs`, import.meta.url))]));
if (flags.some((flag) => flag === '--help' || flag === '-h')) {
  console.log(headComment(import.meta.url));
  for (const [name, text] of descriptions) console.log(`\n== ${name}\n${text}`);
  process.exit(0);
}
// An option that no benchmark describes is a typing error: it must not start an hour of measurements.
const options = new Set([...descriptions.values()].flatMap((text) => text.match(/--[a-z-]*[a-z]/g) ?? []));
const unknownFlags = flags.filter((flag) => !options.has(flag.replace(/=.*/, '')));
if (unknownFlags.length > 0) {
  console.error(`no option ${unknownFlags.join(', ')}; npm run bench -- --help names the benchmarks and their options`);
  process.exit(2);
}
if (words.includes('report')) {
  process.exit(
    spawnSync(process.execPath, ['scripts/measure/report.mjs'], { cwd: root, stdio: 'inherit' }).status ?? 1,
  );
}
if (words.includes('quick')) flags.push('--quick');
const names = words.filter((word) => word !== 'quick');
const unknown = names.filter((name) => !known.includes(name));
if (unknown.length > 0) {
  console.error(`no benchmark ${unknown.join(', ')}; there are: ${known.join(', ')}, quick, report`);
  process.exit(2);
}
const boot = spawnSync(process.execPath, ['scripts/bootstrap.mjs'], { cwd: root, stdio: 'inherit' });
if (boot.status !== 0) process.exit(boot.status ?? 1);
mkdirSync(`${root}/bench-results`, { recursive: true });

// A benchmark that is itself a client runs with the V8 flags of the mount.
/** @type {typeof import('../src/mount/launch.ts')} */
const { MOUNT_FLAGS } = await import(built('mount/launch.js'));
const missed = [];
for (const name of names.length > 0 ? names : known) {
  console.log(`\n== bench ${name}`);
  const started = performance.now();
  const run = spawnSync(process.execPath, [...MOUNT_FLAGS, `scripts/bench-${name}.mjs`, ...flags], {
    cwd: root,
    stdio: 'inherit',
  });
  console.log(`bench ${name}: ${Math.round((performance.now() - started) / 1000)} s`);
  if (run.status !== 0) missed.push(name);
}
if (missed.length > 0) console.log(`\nnot all gates hold: ${missed.join(', ')}`);
process.exit(missed.length > 0 ? 1 : 0);
