// The NFS server compared with the FUSE binding: `npm run bench -- nfs [--rounds 5] [--quick]`. Needs root, cc.
//
// The same in-memory file system (test/kernel/memory-file-system.ts) is behind both. The client of the NFS server is bench-nfs.c, in user space
// and over loopback, because the server alone is measured: no kernel client, which few machines have. The client of the mount is bench-kernel.c.
// Rounds are interleaved, and each starts its servers again.
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { parseArgs } from 'node:util';
import { OURS, Results } from './measure/results.mjs';

const { values: options } = parseArgs({
  options: { rounds: { type: 'string' }, quick: { type: 'boolean', default: false } },
});
const root = new URL('..', import.meta.url).pathname;
const rounds = Number(options.rounds ?? (options.quick ? 1 : 5));
const FILES = 5_000;
const FUSE = 'our FUSE binding';
const START_MS_MAX = 20_000;
const quick = options.quick ? ['quick'] : [];

if (process.getuid?.() !== 0) {
  console.error('bench-nfs: needs root (it mounts the peer)');
  process.exit(1);
}
const place = mkdtempSync(join(tmpdir(), 'cfs-bench-nfs-'));
const mountPoint = join(place, 'mount');
mkdirSync(mountPoint);

/**
 * @param {string} program
 * @param {string[]} words
 * @returns {Record<string, number>}
 */
function measured(program, words) {
  const result = spawnSync(join(place, program), words, { encoding: 'utf8', timeout: 180_000 });
  if (result.status !== 0) throw new Error(`${program}: ${result.signal ?? result.status} ${result.stderr}`);
  return JSON.parse(result.stdout);
}

/** @param {string} sources */
async function nfsRound(sources) {
  const host = spawn(process.execPath, [join(sources, 'test/nfs/memory-nfs-host.js'), `${FILES}`], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const ended = new Promise((resolve) => host.on('exit', resolve));
  try {
    const line = await new Promise((resolve, reject) => {
      createInterface(host.stdout).once('line', resolve);
      host.on('exit', (code) => reject(new Error(`the NFS server ended with ${code}`)));
    });
    const { port, root: handle } = JSON.parse(line);
    return measured('nfs', [`${port}`, handle, `${host.pid}`, ...quick]);
  } finally {
    host.stdin.end();
    await ended;
  }
}

/** @param {string} sources */
async function fuseRound(sources) {
  const how = JSON.stringify({
    mount: { directory: mountPoint },
    plantFiles: FILES,
    fileSystem: { entryTimeoutMs: 300_000, attributeTimeoutMs: 300_000, cacheListing: true },
  });
  const host = spawn(process.execPath, [join(sources, 'test/kernel/memory-mount-host.js'), how], { stdio: 'ignore' });
  const ended = new Promise((resolve) => host.on('exit', resolve));
  try {
    const end = performance.now() + START_MS_MAX;
    while (!readFileSync('/proc/self/mounts', 'utf8').includes(` ${mountPoint} `)) {
      if (performance.now() > end) throw new Error('bench-nfs: waited in vain for the FUSE mount');
      await new Promise((resume) => setTimeout(resume, 20));
    }
    return measured('kernel', [mountPoint, `${host.pid}`, ...quick]);
  } finally {
    spawnSync('fusermount3', ['-uz', mountPoint]);
    await ended;
  }
}

/** [key, measure, unit] of both programs. */
const MEASURES = [
  ['getattr_us', 'getattr, one at a time', 'µs'],
  ['getattr_cpu_us', 'CPU of the mount per getattr', 'µs'],
  ['getattr_4_threads_per_s', 'getattr, 16 at once (FUSE: 4 threads)', 'per s'],
  ['lookup_us', 'lookup of an absent name', 'µs'],
  ['listing_first_ms', 'list 5,000 with attributes, first', 'ms'],
  ['write_1m_mb_s', 'sequential write, 1 MiB calls', 'MB/s'],
  ['write_32k_mb_s', 'sequential write, 32 KiB calls', 'MB/s'],
  ['read_1m_mb_s', 'cold sequential read, 1 MiB calls', 'MB/s'],
  ['read_64k_mb_s', 'cold sequential read, 64 KiB calls', 'MB/s'],
  ['create_4k_per_s', 'create + 4 KiB + commit (FUSE: close)', 'per s'],
];

/** [measure, bound, factor] beside the FUSE binding. */
/** @type {[measure: string, bound: 'at most' | 'at least', factor: number][]} */
const GATES = [
  ['getattr, one at a time', 'at most', 2.5],
  ['list 5,000 with attributes, first', 'at most', 1],
  ['sequential write, 1 MiB calls', 'at least', 0.6],
  ['cold sequential read, 1 MiB calls', 'at least', 0.6],
];

try {
  for (const name of ['nfs', 'kernel']) {
    const source = join(root, `scripts/bench-${name}.c`);
    execFileSync('cc', ['-O2', '-w', '-pthread', '-o', join(place, name), source]);
  }
  execFileSync(process.execPath, [join(root, 'scripts/build-native.mjs')], { stdio: 'inherit' });
  const sources = execFileSync(process.execPath, [join(root, 'test/kernel/compile-sources.mjs')], { encoding: 'utf8' });
  const results = new Results('nfs', { rounds, quick: options.quick });
  for (let round = 0; round < rounds; round++) {
    /** @type {[string, Record<string, number>][]} */
    const both = [
      [OURS, await nfsRound(sources)],
      [FUSE, await fuseRound(sources)],
    ];
    for (const [name, values] of both)
      for (const [key, measure, unit] of MEASURES)
        if (values[key] !== undefined) results.note(measure, unit, name, values[key]);
  }
  for (const gate of GATES) results.gate(...gate, FUSE);
  process.exitCode = results.finish();
} finally {
  rmSync(place, { recursive: true, force: true });
}
