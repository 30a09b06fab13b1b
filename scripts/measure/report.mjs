// `npm run bench -- report`: writes the latest results of the benchmarks (bench-results/*.json) into docs/performance.md, between the
// lines `<!-- bench NAME -->` and `<!-- /bench -->`. The text around the tables is written by hand and stays.
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { RESULTS, tableOf } from './results.mjs';

/** @typedef {import('./results.mjs').Summary} Summary */
const DOCUMENT = fileURLToPath(new URL('../../docs/performance.md', import.meta.url));
const MARKED = /<!-- bench ([a-z-]+) -->\n[\s\S]*?<!-- \/bench -->/g;

/**
 * The document with new tables in the parts for which `read(name)` has a summary. The other parts do not change.
 * @param {string} text
 * @param {(name: string) => Summary | null} read
 */
export function withResults(text, read) {
  return text.replace(MARKED, (/** @type {string} */ part, /** @type {string} */ name) => {
    const summary = read(name);
    return summary === null ? part : `<!-- bench ${name} -->\n${sectionOf(summary)}\n<!-- /bench -->`;
  });
}

/**
 * One benchmark: where and when, its table, how many gates hold.
 * @param {Summary} summary
 */
export function sectionOf(summary) {
  const { machine, date, rounds, quick } = summary;
  const peers = Object.entries(machine.peers).map(([name, version]) => `${name} ${version}`);
  const gates = summary.rows.flatMap(({ gates }) => gates);
  const of = (/** @type {boolean | null} */ verdict) => gates.filter(({ holds }) => holds === verdict).length;
  const unmeasured = of(null) === 0 ? '' : `, ${of(null)} not measured`;
  return [
    `*${date.slice(0, 10)}, ${machine.cpus} × ${machine.model}, ${machine.memoryGiB} GiB, Linux ${machine.kernel}, Node ${machine.node}, load ${machine.load} at the end;`,
    `${peers.join(', ')}; medians of ${rounds ?? 1} ${rounds === 1 ? 'round' : 'rounds'}${quick ? ', the quick form' : ''}.`,
    `${of(true)} of ${gates.length} gates hold${unmeasured}.*`,
    '',
    tableOf(summary),
  ].join('\n');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const read = (/** @type {string} */ name) => {
    const file = join(RESULTS, `${name}.json`);
    const summary = existsSync(file) ? JSON.parse(readFileSync(file, 'utf8')) : null;
    return summary?.machine === undefined ? null : summary; // results of an older format are ignored
  };
  writeFileSync(DOCUMENT, withResults(readFileSync(DOCUMENT, 'utf8'), read));
}
