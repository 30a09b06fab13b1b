// `npm run bench [-- NAME …]`: runs the benchmarks (all of them without a name), one after another: two at once would measure
// each other. Each prints a table of medians and ratios against peers of the same run, and writes bench-results/NAME.json.
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const scripts = fileURLToPath(new URL('.', import.meta.url));
const root = fileURLToPath(new URL('..', import.meta.url));
const known = readdirSync(scripts)
  .map((file) => /^bench-(.+)\.mjs$/.exec(file)?.[1])
  .filter((name) => name !== undefined)
  .sort();
const names = process.argv.slice(2).filter((word) => !word.startsWith('-'));
const unknown = names.filter((name) => !known.includes(name));
if (unknown.length > 0) {
  console.error(`no benchmark ${unknown.join(', ')}; there are: ${known.join(', ')}`);
  process.exit(2);
}
const boot = spawnSync(process.execPath, ['scripts/bootstrap.mjs'], { cwd: root, stdio: 'inherit' });
if (boot.status !== 0) process.exit(boot.status ?? 1);
mkdirSync(`${root}/bench-results`, { recursive: true });

let failed = 0;
for (const name of names.length > 0 ? names : known) {
  console.log(`\n== bench ${name}`);
  const flags = process.argv.slice(2).filter((word) => word.startsWith('-'));
  const run = spawnSync(process.execPath, [`scripts/bench-${name}.mjs`, ...flags], { cwd: root, stdio: 'inherit' });
  if (run.status !== 0) failed++;
}
process.exit(failed > 0 ? 1 : 0);
