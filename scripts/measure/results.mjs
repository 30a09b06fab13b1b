// The results of a benchmark: samples by measure and peer, gates on their medians, one table, one JSON file.
//
//   const results = new Results('kernel', { rounds: 3 });
//   results.note('getattr, one at a time', 'µs', 'bindfs', 44.7);         once for each round and peer; ours is OURS
//   results.gate('getattr, one at a time', 'at most', 1.2, 'bindfs');     our median against that of a peer
//   results.gate('first byte', 'at most', 50);                            or against a number
//   process.exitCode = results.finish();                                  prints, writes bench-results/kernel.json
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, release, totalmem } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * `samples` and `medians`: by peer. A judged gate `holds`, does not, or was not measured (null).
 * @typedef {'at most' | 'at least'} Bound
 * @typedef {{ bound: Bound, factor: number, peer?: string }} Gate
 * @typedef {Gate & { ratio: number | null, holds: boolean | null }} Judged
 * @typedef {{ measure: string, unit: string, medians: Record<string, number>, samples: Record<string, number[]>, gates: Judged[] }} Row
 * @typedef {{ cpus: number, model: string, memoryGiB: number, kernel: string, node: string, load: number, peers: Record<string, string> }} Machine
 * @typedef {{ name: string, date: string, machine: Machine, rounds?: number, quick?: boolean, rows: Row[] }} Summary
 */

export const OURS = 'cfs-mount';
export const RESULTS = fileURLToPath(new URL('../../bench-results/', import.meta.url));

export class Results {
  #name;
  #facts;
  /** By measure. @type {Map<string, { unit: string, samples: Record<string, number[]>, gates: Gate[] }>} */
  #measures = new Map();

  /** @param {string} name */
  constructor(name, facts = {}) {
    this.#name = name;
    this.#facts = facts;
  }

  /**
   * @param {string} measure
   * @param {string} unit
   * @param {string} peer
   * @param {number} value
   */
  note(measure, unit, peer, value) {
    if (!Number.isFinite(value)) throw new Error(`${measure}, ${peer}: ${value} is not a measurement`);
    const { samples } = this.#measure(measure, unit);
    samples[peer] ??= [];
    samples[peer].push(value);
  }

  /**
   * `bound`: 'at most' or 'at least' `factor` times the peer's median; without a peer, `factor` itself in the measure's unit.
   * @param {string} measure
   * @param {Bound} bound
   * @param {number} factor
   * @param {string} [peer]
   */
  gate(measure, bound, factor, peer) {
    const known = this.#measures.get(measure);
    if (known === undefined) throw new Error(`a gate for ${measure}, which was not measured`);
    known.gates.push({ bound, factor, ...(peer !== undefined && { peer }) });
  }

  /** The summary as it is written to the file. @returns {Summary} */
  summary() {
    const rows = [...this.#measures].map(([measure, { unit, samples, gates }]) => {
      const medians = Object.fromEntries(Object.entries(samples).map(([peer, values]) => [peer, median(values)]));
      return { measure, unit, medians, samples, gates: gates.map((gate) => judged(gate, medians)) };
    });
    return { name: this.#name, date: new Date().toISOString(), machine: machine(), ...this.#facts, rows };
  }

  /** @returns how many gates were missed, at most 1: an exit code */
  finish() {
    const summary = this.summary();
    mkdirSync(RESULTS, { recursive: true });
    writeFileSync(join(RESULTS, `${this.#name}.json`), `${JSON.stringify(summary, null, 1)}\n`);
    console.log(tableOf(summary));
    const all = summary.rows.flatMap(({ gates }) => gates);
    const count = (/** @type {boolean | null} */ wanted) => all.filter(({ holds }) => holds === wanted).length;
    const unknown = count(null) > 0 ? `, ${count(null)} not measured` : '';
    console.log(`\n${count(true)} of ${all.length} gates hold${unknown}`);
    return count(false) > 0 ? 1 : 0;
  }

  /**
   * @param {string} measure
   * @param {string} unit
   */
  #measure(measure, unit) {
    let known = this.#measures.get(measure);
    if (known === undefined) {
      known = { unit, samples: {}, gates: [] };
      this.#measures.set(measure, known);
    }
    return known;
  }
}

/**
 * A summary as a table of Markdown: a row for each measure, a column for each peer, and the gates.
 * @param {Pick<Summary, 'rows'>} summary
 */
export function tableOf({ rows }) {
  const peers = [...new Set(rows.flatMap(({ medians }) => Object.keys(medians)))].sort(oursFirst);
  const line = (/** @type {string[]} */ cells) => `| ${cells.join(' | ')} |`;
  const body = rows.map(({ measure, unit, medians, gates }) =>
    line([
      `${measure}, ${unit}`,
      ...peers.map((peer) => (medians[peer] === undefined ? '' : readable(medians[peer]))),
      gates
        .map(({ bound, factor, peer }) => `${bound === 'at most' ? '≤' : '≥'} ${factor}${peer ? ` × ${peer}` : ''}`)
        .join(', '),
      gates.map(verdict).join(', '),
    ]),
  );
  return [line(['', ...peers, 'gate', 'holds']), line(['---', ...peers.map(() => '---:'), '---', '---']), ...body].join(
    '\n',
  );
}

/** @param {number[]} values */
export function median(values) {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
}

/**
 * @param {Gate} gate
 * @param {Record<string, number>} medians
 * @returns {Judged}
 */
function judged(gate, medians) {
  const ours = medians[OURS];
  const against = gate.peer === undefined ? 1 : medians[gate.peer];
  // A peer that is not installed: the gate counts as not measured, not as held.
  if (ours === undefined || against === undefined) return { ...gate, ratio: null, holds: null };
  const ratio = ours / against;
  return { ...gate, ratio, holds: gate.bound === 'at most' ? ratio <= gate.factor : ratio >= gate.factor };
}

/** @param {Judged} gate */
function verdict({ ratio, holds, peer }) {
  if (holds === null || ratio === null) return 'not measured';
  const figure = peer === undefined ? '' : `, ${readable(ratio)} ×`;
  return holds ? `yes${figure}` : `**no**${figure}`;
}

/**
 * @param {string} a
 * @param {string} b
 */
function oursFirst(a, b) {
  return Number(b === OURS) - Number(a === OURS);
}

/**
 * The value with three significant digits.
 * @param {number} value
 */
function readable(value) {
  if (value >= 100) return Math.round(value).toLocaleString('en-US');
  return String(Number(value.toPrecision(3)));
}

/** The machine: the facts that a reader needs for a comparison, without its name. */
function machine() {
  const version = (/** @type {string} */ command, /** @type {string[]} */ ...words) => {
    const { stdout = '', stderr = '' } = spawnSync(command, words, { encoding: 'utf8' });
    return /\d+(\.\d+)+/.exec(`${stdout ?? ''}${stderr ?? ''}`)?.[0];
  };
  const peers = Object.fromEntries(
    [
      ['rclone', version('rclone', 'version')],
      ['bindfs', version('bindfs', '--version')],
      ['curl', version('curl', '--version')],
      ['fio', version('fio', '--version')],
    ].filter(([, found]) => found !== undefined),
  );
  return {
    cpus: cpus().length,
    model: cpus()[0]?.model.trim() ?? 'unknown',
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    kernel: release().split('-')[0],
    node: process.versions.node,
    load: Number(readFileSync('/proc/loadavg', 'utf8').split(' ')[0]),
    peers,
  };
}
