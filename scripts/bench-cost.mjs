// `npm run bench -- cost [--quick] [--node=PATH …]`: what a mount costs beside `node -e 0` in the same rounds: the time and the processor
// time of a start, `cfs status`, memory, requests. `--node` names Node programs to compare, such as one of each supported line;
// without it, the Node that runs this.
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Ground, run } from './measure/ground.mjs';
import { plant } from './measure/plant.mjs';
import { OURS, Results } from './measure/results.mjs';

const bin = fileURLToPath(new URL('../bin/', import.meta.url));
const quick = process.argv.includes('--quick');
const ROUNDS = quick ? 5 : 9;
/**
 * V8 collects what the start and the listing left once, in the first minute: that is part of ten idle minutes, but most of ten seconds.
 * `waitS` lies between the collections of the two threads.
 */
const IDLE = quick ? { waitS: 15, forS: 25 } : { waitS: 5, forS: 600 };
const given = process.argv.filter((word) => word.startsWith('--node=')).map((word) => word.slice('--node='.length));
const nodes = (given.length > 0 ? given : [process.execPath]).map((path) => ({ path, line: lineOf(path) }));
const BARE = 'node -e 0';

const results = new Results('cost', { rounds: ROUNDS, quick });
const ground = await Ground.lay();
try {
  const mount = ground.mount('cost', ['--dir-ttl', '24h']);
  ground.end(mount); // the store has its root from now on
  plant(mount.store, [
    ['folder', 100],
    ['file', 99],
  ]);
  const env = ground.envOf('cost');
  for (const { path } of nodes) storeCompiledCode(path, mount, env);
  for (let round = 0; round < ROUNDS; round++)
    for (const node of nodes) measure(node, mount, env, round === ROUNDS - 1);
} finally {
  await ground.clear();
}
for (const { line } of nodes) {
  const isOld = line === 'Node 20';
  results.gate(`warm start until a listing answers, ${line}`, 'at most', isOld ? 7 : 5, BARE);
  results.gate(`processor time of the start, ${line}`, 'at most', 7, BARE);
  results.gate(`cfs status, ${line}`, 'at most', 2.5, BARE);
  results.gate(`private memory at rest, 10⁴ nodes known, ${line}`, 'at most', 60);
  results.gate(`proportional memory at rest, ${line}`, 'at most', 90);
  results.gate(`processor time at rest, ${line}`, 'at most', 0.1);
  results.gate(`bytes written at rest, ${line}`, 'at most', 0);
}
process.exitCode = results.finish();

/**
 * Every start but the first one with a Node has compiled code (ADR 23). It is stored some seconds after a start.
 * @param {string} path
 * @param {{ directory: string }} mount
 * @param {NodeJS.ProcessEnv} env
 */
function storeCompiledCode(path, { directory }, env) {
  run(`'${bin}cfs-mount' --dir-ttl 24h '${directory}' && sleep 5`, {
    env: { ...env, PATH: `${dirname(path)}:${env.PATH}` },
  });
  endMount(directory, pidOf(env));
}

/** @param {string} directory @param {number} pid */
function endMount(directory, pid) {
  ground.unmount(directory);
  while (existsProcess(pid)) spawnSync('sleep', ['0.05']);
}

/**
 * One start with one Node, in turns with the others.
 * @param {{ path: string, line: string }} node
 * @param {{ directory: string }} mount
 * @param {NodeJS.ProcessEnv} env
 * @param {boolean} isLast
 */
function measure({ path, line }, { directory }, env, isLast) {
  const withNode = { ...env, PATH: `${dirname(path)}:${env.PATH}` };
  const timed = (/** @type {string} */ command) => timedIn(withNode, command);
  const bare = timed(`'${path}' -e 0`);
  const start = timed(`'${bin}cfs-mount' --dir-ttl 24h '${directory}' && ls '${directory}'`);
  const pid = pidOf(withNode);
  const cpuMs = start.cpuMs + processorMs(pid);
  results.note(`warm start until a listing answers, ${line}`, 'ms', OURS, start.ms);
  results.note(`warm start until a listing answers, ${line}`, 'ms', BARE, bare.ms);
  results.note(`processor time of the start, ${line}`, 'ms', OURS, cpuMs);
  results.note(`processor time of the start, ${line}`, 'ms', BARE, bare.cpuMs);
  results.note(`… of what starts it, ${line}`, 'ms', OURS, start.cpuMs);
  const status = timed(`'${bin}cfs' status`);
  results.note(`cfs status, ${line}`, 'ms', OURS, status.ms);
  results.note(`cfs status, ${line}`, 'ms', BARE, bare.ms);
  if (isLast) {
    run(`find '${directory}' | wc -l`);
    const asked = operationsOf(withNode);
    spawnSync('sleep', [String(IDLE.waitS)]);
    const before = { ms: processorMs(pid), written: writtenBytes(pid) };
    spawnSync('sleep', [String(IDLE.forS)]);
    const percent = (processorMs(pid) - before.ms) / (IDLE.forS * 10);
    results.note(`processor time at rest, ${line}`, '% of a core', OURS, percent);
    results.note(`bytes written at rest, ${line}`, 'bytes', OURS, writtenBytes(pid) - before.written);
    // Another program that looks into the mount, such as a search through /tmp, makes it read LMDB: two pages of its lock file.
    const others = operationsOf(withNode) - asked;
    results.note(`… operations of other programs meanwhile, ${line}`, 'number', OURS, others);
    results.note(
      `private memory at rest, 10⁴ nodes known, ${line}`,
      'MiB',
      OURS,
      kibOf(pid, 'status', 'RssAnon') / 1024,
    );
    results.note(`proportional memory at rest, ${line}`, 'MiB', OURS, kibOf(pid, 'smaps_rollup', 'Pss') / 1024);
    const sent = /^cfs_requests_total\S* (\d+)$/m.exec(timed(`'${bin}cfs' metrics`).out) ?? [];
    results.note(`requests of a warm start, ${line}`, 'number', OURS, Number(sent[1]));
  }
  endMount(directory, pid);
}

/** Wall time, and the processor time of all processes that were waited for. @param {NodeJS.ProcessEnv} env @param {string} command */
function timedIn(env, command) {
  const { seconds, out } = run(`{ ${command}; } && times`, { env, timeoutMs: 60_000 });
  const words = out.trim().split('\n').at(-1)?.split(' ') ?? [];
  const cpuMs = words.reduce((sum, word) => {
    const [, minutes, seconds] = /^(\d+)m([\d.]+)s$/.exec(word) ?? [];
    return sum + Number(minutes) * 60_000 + Number(seconds) * 1000;
  }, 0);
  return { ms: seconds * 1000, cpuMs, out };
}

/** Operations that the mount has answered. @param {NodeJS.ProcessEnv} env */
function operationsOf(env) {
  const counts = timedIn(env, `'${bin}cfs' metrics`).out.matchAll(/^cfs_operation_seconds_count\S* (\d+)$/gm);
  return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
}

/**
 * The mounting process with this environment. `cfs status` would name it, too, but the answer costs the mount half as much processor
 * time as its start.
 * @param {NodeJS.ProcessEnv} env
 */
function pidOf(env) {
  const wanted = `XDG_RUNTIME_DIR=${env.XDG_RUNTIME_DIR}`;
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const [words, variables] = ['cmdline', 'environ'].map((file) => readFileSync(join('/proc', name, file), 'utf8'));
      const isMount = words?.split('\0').some((word) => word.endsWith('/mounting-process.cjs'));
      if (isMount && variables?.split('\0').includes(wanted)) return Number(name);
    } catch {
      // ended meanwhile, or belongs to another user
    }
  }
  throw new Error(`no mounting process with ${wanted}`);
}

/** @param {number} pid */
function existsProcess(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

/** Of the process and of its ended children (proc(5)); a tick is 10 ms. @param {number} pid */
function processorMs(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks) * 10, 0);
}

/** @param {number} pid */
function writtenBytes(pid) {
  return Number(/^write_bytes: (\d+)/m.exec(readFileSync(`/proc/${pid}/io`, 'utf8'))?.[1]);
}

/** @param {number} pid @param {string} file @param {string} name */
function kibOf(pid, file, name) {
  return Number(
    new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(readFileSync(join('/proc', String(pid), file), 'utf8'))?.[1],
  );
}

/** @param {string} path */
function lineOf(path) {
  const { stdout } = spawnSync(path, ['--version'], { encoding: 'utf8' });
  return `Node ${/^v(\d+)/.exec(stdout)?.[1]}`;
}
