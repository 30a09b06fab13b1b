// The kernel binding compared with its peers: `npm run bench -- kernel [--rounds 5] [--quick] [--continuity]`. Needs root, cc; peers are used
// where they are installed (bindfs; libfuse's passthrough_ll is built from the examples of libfuse3-dev; rclone; fuse-native over libfuse2).
// `--continuity`: ours without and with a keeper, side by side, and what the keeper costs. Ours is measured twice: what the second one
// differs by is chance.
//
// Ours is an in-memory file system (test/kernel/memory-file-system.ts) behind the binding; peers pass through to a tmpfs. Rounds are
// interleaved, and every round mounts again, so that first listings are really first. The table shows medians and the gates.
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { CONTINUITY, continuityGates } from './measure/continuity-gates.mjs';
import { builtPassthrough } from './measure/passthrough.mjs';
import { OURS, Results } from './measure/results.mjs';

const { values: options } = parseArgs({
  options: {
    rounds: { type: 'string' },
    quick: { type: 'boolean', default: false },
    continuity: { type: 'boolean', default: false },
  },
});
const root = new URL('..', import.meta.url).pathname;
const rounds = Number(options.rounds ?? (options.quick ? 1 : 5));
const FILES = 10_000;
/** The peer that is ours once more. */
const CONTROL = 'ours again';
/** The slow peers, 20 s in total. In a quick run their gates are reported as not measured. */
const NOT_IN_QUICK = ['rclone', 'fuse-native', 'fuse-native, bare'];

if (process.getuid?.() !== 0) {
  console.error('bench-kernel: needs root (it mounts a tmpfs for the peers)');
  process.exit(1);
}
const place = mkdtempSync(join(tmpdir(), 'cfs-bench-'));
const at = (/** @type {string} */ name) => join(place, name);
/** @type {string[]} */
const mounts = [];
const has = (/** @type {string} */ program) => spawnSync('sh', ['-c', `command -v ${program}`]).status === 0;
const isMounted = (/** @type {string} */ directory) =>
  readFileSync('/proc/self/mounts', 'utf8').includes(` ${directory.replaceAll(' ', '\\040')} `);

/**
 * @param {() => boolean} condition
 * @param {string} what
 */
async function until(condition, what) {
  const end = performance.now() + 20_000;
  while (!condition()) {
    if (performance.now() > end) throw new Error(`bench-kernel: waited in vain for ${what}`);
    await new Promise((resume) => setImmediate(resume));
  }
}

function prepare() {
  execFileSync('cc', ['-O2', '-w', '-pthread', '-o', at('measure'), join(root, 'scripts/bench-kernel.c')]);
  execFileSync(process.execPath, [join(root, 'scripts/build-native.mjs')], { stdio: 'inherit' });
  const sources = execFileSync(process.execPath, [join(root, 'test/kernel/compile-sources.mjs')], { encoding: 'utf8' });

  for (const name of ['tmpfs', 'source']) {
    mkdirSync(at(name));
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2g', 'none', at(name)]);
    mounts.push(at(name));
    mkdirSync(join(at(name), 'many'));
    for (let i = 0; i < FILES; i++) writeFileSync(join(at(name), 'many', `file-${i}`), '');
  }
  const hostAt = (/** @type {string} */ name) => {
    const options = {
      mount: { directory: at(name) },
      plantFiles: FILES,
      fileSystem: { entryTimeoutMs: 300_000, attributeTimeoutMs: 300_000, cacheListing: true },
    };
    return [process.execPath, join(sources, 'test/kernel/memory-mount-host.js'), JSON.stringify(options)];
  };
  if (options.continuity) {
    const keeper = join(root, 'native-deps/fuse-kernel/build/cfs-keeper');
    return {
      ours: { command: hostAt('ours') },
      [CONTINUITY]: { command: [keeper, ...hostAt(CONTINUITY)], isChild: true },
      [CONTROL]: { command: hostAt(CONTROL) },
    };
  }
  const passthrough = builtPassthrough(place);
  const withFuseNative = spawnSync(process.execPath, ['-e', 'require("fuse-native")'], { cwd: root }).status === 0;
  return {
    tmpfs: null,
    ours: { command: hostAt('ours') },
    ...(has('bindfs') && { bindfs: { command: ['bindfs', '-f', at('source'), at('bindfs')] } }),
    ...(passthrough !== null && {
      passthrough_ll: {
        command: [passthrough, '-f', '-o', `source=${at('source')}`, at('passthrough_ll.mount')],
        ...(options.quick && { part: 'bytes' }), // its only gate
      },
    }),
    ...(has('rclone') && {
      rclone: {
        command: [
          'rclone',
          'mount',
          '--vfs-cache-mode',
          'writes',
          '--cache-dir',
          at('cache'),
          at('source'),
          at('rclone'),
        ],
        part: 'short',
      },
    }),
    // The same in-memory file system through the second binding, and the bare package over a map as its lower bound.
    ...(withFuseNative && {
      'fuse-native': {
        command: [
          process.execPath,
          join(sources, 'test/kernel/fuse-native-memory-host.js'),
          at('fuse-native'),
          `${FILES}`,
        ],
        part: 'short',
      },
      'fuse-native, bare': {
        command: [process.execPath, join(root, 'scripts/measure/fuse-native-memory.mjs'), at('bare'), `${FILES}`],
        directory: at('bare'),
        part: 'short',
      },
    }),
  };
}

/**
 * `isChild`: a child of the command serves the mount.
 * @typedef {{ command: string[], directory?: string, part?: string, isChild?: boolean }} Server
 *
 * @param {string} name
 * @param {Server | null} server
 */
async function round(name, server) {
  const directory = server?.directory ?? at(name === 'passthrough_ll' ? 'passthrough_ll.mount' : name);
  mkdirSync(directory, { recursive: true });
  const child = server && spawn(server.command[0], server.command.slice(1), { stdio: 'ignore' });
  try {
    if (child !== null) await until(() => isMounted(directory), `${name} to mount`);
    const words = [
      directory,
      String(child?.pid ?? process.pid),
      ...(server?.part === undefined ? [] : [server.part]),
      ...(options.quick ? ['quick'] : []),
    ];
    return measured(name, words);
  } finally {
    if (child !== null) await unmounted(directory, child);
  }
}

/**
 * @param {string} name
 * @param {string[]} words
 */
function measured(name, words) {
  const result = spawnSync(at('measure'), words, { encoding: 'utf8', timeout: 180_000 });
  if (result.status !== 0) throw new Error(`bench-kernel: ${name}: ${result.signal ?? result.status} ${result.stderr}`);
  return JSON.parse(result.stdout);
}

/**
 * Also ends a server that has not mounted.
 *
 * @param {string} directory
 * @param {import('node:child_process').ChildProcess} child
 */
async function unmounted(directory, child) {
  const ended = child.exitCode ?? child.signalCode ?? new Promise((resolve) => child.on('exit', resolve));
  if (spawnSync('fusermount3', ['-uz', directory]).status !== 0) child.kill();
  await ended;
}

/**
 * All servers are mounted at once and take turns, every fraction of a second: the cost of `--continuity` is smaller than what two runs of the
 * same server differ by, if they are some seconds apart.
 *
 * @param {Record<string, Server>} servers
 * @param {Results} results
 */
async function sideBySide(servers, results) {
  /** @type {[name: string, directory: string, child: import('node:child_process').ChildProcess][]} */
  const mounted = [];
  try {
    const words = ['side-by-side'];
    for (const [name, server] of Object.entries(servers)) {
      const directory = at(name);
      mkdirSync(directory, { recursive: true });
      const child = spawn(server.command[0], server.command.slice(1), { stdio: 'ignore' });
      mounted.push([name, directory, child]);
      await until(() => isMounted(directory), `${name} to mount`);
      const { pid } = child;
      words.push(
        directory,
        server.isChild ? readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim() : `${pid}`,
      );
    }
    const figures = measured('side by side', [...words, ...(options.quick ? ['quick'] : [])]);
    for (const [key, measure, unit] of SIDE_BY_SIDE) {
      for (const [index, [name]] of mounted.entries()) {
        results.note(measure, unit, name === 'ours' ? OURS : name, figures[`${key} ${index}`]);
      }
    }
  } finally {
    for (const [, directory, child] of mounted) await unmounted(directory, child);
  }
}

/**
 * High percentiles of metadata calls while the main thread of the mounting process computes: 20 ms busy, 20 ms idle.
 * @param {{ command: string[] }} server
 * @param {Results} results
 */
async function tails(server, results) {
  const directory = at('ours');
  mkdirSync(directory, { recursive: true });
  const child = spawn(server.command[0], server.command.slice(1), { stdio: ['ignore', 'ignore', 'ignore', 'ipc'] });
  const ended = new Promise((resolve) => child?.on('exit', resolve));
  await until(() => isMounted(directory), 'ours to mount');
  const measure = () => {
    const words = [directory, String(child.pid), 'tail', ...(options.quick ? ['quick'] : [])];
    const { stdout } = spawnSync(at('measure'), words, { encoding: 'utf8', timeout: 60_000 });
    return JSON.parse(stdout);
  };
  try {
    const idle = measure();
    child.send({ id: 1, command: { do: 'busy-bursts', burstMs: 20 } });
    const busy = measure();
    for (const what of ['getattr', 'lookup']) {
      results.note(`${what} p99, main thread busy`, 'µs', 'idle', idle[`${what}_p99_us`]);
      results.note(`${what} p99, main thread busy`, 'µs', OURS, busy[`${what}_p99_us`]);
    }
  } finally {
    spawnSync('fusermount3', ['-uz', directory]);
    await ended;
  }
}

/** The output of bench-kernel.c: [key, measure, unit]. */
const MEASURES = [
  ['getattr_us', 'getattr, one at a time', 'µs'],
  ['getattr_cpu_us', 'CPU of the mount per getattr', 'µs'],
  ['lookup_us', 'lookup', 'µs'],
  ['read_4k_us', '4 KiB read', 'µs'],
  ['read_4k_cached_us', '4 KiB read from the page cache', 'µs'],
  ['getattr_4_threads_per_s', 'getattr, 4 threads', 'per s'],
  ['listing_first_ms', 'readdir + lstat of 10,000, first', 'ms'],
  ['listing_again_ms', '… again', 'ms'],
  ['write_1m_mb_s', 'sequential write, 1 MiB calls', 'MB/s'],
  ['read_1m_mb_s', 'sequential read from user space', 'MB/s'],
  ['reread_mb_s', 're-open and read', 'MB/s'],
  ['write_4k_mb_s', 'sequential write, 4 KiB calls', 'MB/s'],
  ['create_4k_per_s', 'create + 4 KiB + close', 'per s'],
];

/**
 * What bench-kernel.c measures of mounts side by side: what the mount is asked for (no read from the page cache), and what a mount repeats
 * (no first listing).
 */
const SIDE_BY_SIDE = MEASURES.filter(
  ([key]) =>
    !['read_4k_cached_us', 'listing_first_ms', 'listing_again_ms', 'read_1m_mb_s', 'reread_mb_s'].includes(key),
);

/** [measure, bound, factor, peer] */
/** @type {[measure: string, bound: 'at most' | 'at least', factor: number, peer?: string][]} */
const GATES = [
  ['getattr, one at a time', 'at most', 1.2, 'bindfs'],
  ['getattr, one at a time', 'at most', 0.4, 'fuse-native'],
  ['lookup', 'at most', 1.2, 'bindfs'],
  ['lookup', 'at most', 0.4, 'fuse-native'],
  ['4 KiB read', 'at most', 1.2, 'bindfs'],
  ['4 KiB read', 'at most', 0.4, 'fuse-native'],
  ['getattr, 4 threads', 'at least', 1.0, 'bindfs'],
  ['getattr, 4 threads', 'at least', 2.0, 'rclone'],
  ['readdir + lstat of 10,000, first', 'at most', 0.25, 'bindfs'],
  ['… again', 'at most', 1.5, 'tmpfs'],
  ['sequential read from user space', 'at least', 1.0, 'bindfs'],
  ['re-open and read', 'at least', 0.5, 'tmpfs'],
  ['sequential write, 1 MiB calls', 'at least', 1.0, 'bindfs'],
  ['sequential write, 1 MiB calls', 'at least', 1.0, 'passthrough_ll'],
  ['sequential write, 4 KiB calls', 'at least', 1.0, 'bindfs'],
  ['create + 4 KiB + close', 'at least', 1.5, 'bindfs'],
  ['CPU of the mount per getattr', 'at most', 1.0, 'bindfs'],
];

try {
  /** @type {Record<string, Server | null> & { ours: Server }} */
  const servers = prepare();
  if (options.quick) for (const name of NOT_IN_QUICK) delete servers[name];
  const results = new Results(options.continuity ? 'kernel-continuity' : 'kernel', { rounds, quick: options.quick });
  if (options.continuity) {
    for (let i = 0; i < rounds; i++) await sideBySide(/** @type {Record<string, Server>} */ (servers), results);
    continuityGates(results, SIDE_BY_SIDE);
  } else {
    for (let i = 0; i < rounds; i++) {
      for (const [name, server] of Object.entries(servers)) {
        const figures = await round(name, server);
        for (const [key, measure, unit] of MEASURES) {
          // On tmpfs no user-space process answers: this would be the CPU time of the caller.
          if (name === 'tmpfs' && key === 'getattr_cpu_us') continue;
          if (figures[key] === undefined) continue; // of another part
          results.note(measure, unit, name === 'ours' ? OURS : name, figures[key]);
        }
      }
    }
    for (let i = 0; i < rounds; i++) await tails(servers.ours, results);
    for (const gate of GATES) results.gate(...gate);
    for (const what of ['getattr', 'lookup']) results.gate(`${what} p99, main thread busy`, 'at most', 3, 'idle');
  }
  process.exitCode = results.finish();
} finally {
  for (const directory of mounts) spawnSync('umount', ['-l', directory]);
  rmSync(place, { recursive: true, force: true });
}
