// `npm run bench -- pause [--quick] [--part=NAME] [--deaths=N] [--busy=N] [--verbose]`: how long programs wait when the process of a mount
// with `--continuity` is killed. One program calls stat and writes a byte each millisecond; a figure is its longest call around a death.
// The parts are three mounts: `standby`; `changes`, with a standby and 500 changes that are not pushed; and `cold`, without a standby.
// `--deaths`: of each, 50 by default. `--busy`: how many other processes want a processor. `--verbose`: each death, with the start and the
// duration of its calls of 5 ms or more.
import { spawn } from 'node:child_process';
import { openSync, readdirSync, statSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { built } from './built.mjs';
import { Ground, run } from './measure/ground.mjs';
import { OURS, Results } from './measure/results.mjs';

/** Calls that take longer are reported. */
const LONG_MS = 5;
/** After a death, before the mount is asked anything: the question would delay the calls. */
const AFTER_MS = 1_000;

const PARTS = /** @type {const} */ ([
  ['standby', 'with a standby', true, 0],
  ['changes', 'with a standby, 500 changes not pushed', true, 500],
  ['cold', 'without a standby', false, 0],
]);

if (process.argv[2] === '--calls') {
  call(String(process.argv[3]));
} else {
  process.exitCode = await measure();
}

/** Calls until it is ended. Writes the start and the duration of each long call, ms of the wall clock. @param {string} directory */
function call(directory) {
  const path = join(directory, 'called');
  writeFileSync(path, 'x');
  const fd = openSync(path, 'r+');
  const byte = Buffer.from('y');
  const still = new Int32Array(new SharedArrayBuffer(4));
  const timed = (/** @type {() => void} */ act) => {
    const startMs = performance.now();
    act();
    const ms = performance.now() - startMs;
    if (ms > LONG_MS) writeSync(1, `${JSON.stringify({ startMs: performance.timeOrigin + startMs, ms })}\n`);
  };
  writeSync(1, '{"startMs":0,"ms":0}\n');
  for (;;) {
    timed(() => statSync(path));
    timed(() => writeSync(fd, byte, 0, 1, 0));
    Atomics.wait(still, 0, 0, 1);
  }
}

async function measure() {
  const quick = process.argv.includes('--quick');
  const numberOf = (/** @type {string} */ flag, /** @type {number} */ usual) =>
    Number(process.argv.find((word) => word.startsWith(`${flag}=`))?.slice(flag.length + 1) ?? usual);
  const deaths = numberOf('--deaths', quick ? 2 : 50);
  const busy = Array.from({ length: numberOf('--busy', 0) }, () =>
    spawn(process.execPath, ['-e', 'const parent = process.ppid; while (process.ppid === parent);'], {
      stdio: 'ignore',
    }),
  );
  const results = new Results(busy.length > 0 ? 'pause-busy' : 'pause', { rounds: deaths, quick });
  process.env.CFS_TEST_KEEPER_UNLIMITED = '1';
  const ground = await Ground.lay();
  try {
    for (const [part, what, hasStandby, changes] of PARTS) {
      if (!process.argv.includes(`--part=${part}`) && process.argv.some((word) => word.startsWith('--part='))) continue;
      const pauses = await pausesOf(ground, { what, hasStandby, changes, deaths });
      const sorted = pauses.map(({ longestMs }) => longestMs).sort((a, b) => a - b);
      for (const ms of sorted) results.note(`${what}: longest call, median`, 'ms', OURS, ms);
      results.note(`… 99 %, ${what}`, 'ms', OURS, sorted[Math.floor(sorted.length * 0.99)] ?? 0);
      results.note(`… longest, ${what}`, 'ms', OURS, sorted.at(-1) ?? 0);
      for (const { nextMs } of pauses) results.note(`… second longest call, ${what}`, 'ms', OURS, nextMs);
      if (hasStandby) results.gate(`${what}: longest call, median`, 'at most', 100);
      results.gate(`… 99 %, ${what}`, 'at most', hasStandby ? 500 : 2000);
    }
  } finally {
    for (const process of busy) process.kill();
    await ground.clear();
  }
  return results.finish();
}

/**
 * @param {Ground} ground
 * @param {{ what: string, hasStandby: boolean, changes: number, deaths: number }} scene
 */
async function pausesOf(ground, { what, hasStandby, changes, deaths }) {
  /** @type {typeof import('../src/control/client.ts')} */
  const { callControl } = await import(built('control/client.js'));
  const name = `pause-${Number(hasStandby)}-${changes}`;
  const flags = `--dir-ttl 24h --attr-timeout 0s --entry-timeout 0s --drain 0s --continuity --standby=${hasStandby ? 'on' : 'off'}`;
  const mount = ground.mount(name, flags.split(' '));
  const [socket] = readdirSync(mount.env.XDG_RUNTIME_DIR ?? '', { recursive: true }).filter((path) =>
    String(path).endsWith('.sock'),
  );
  const status = () =>
    callControl(join(mount.env.XDG_RUNTIME_DIR ?? '', String(socket)), 'status', {}).catch(() => null);
  if (changes > 0) {
    mount.cfs('pause');
    run(`cd '${mount.directory}' && for i in $(seq ${changes}); do echo $i > changed-$i; done`);
  }
  const caller = spawn(process.execPath, [fileURLToPath(import.meta.url), '--calls', mount.directory], {
    cwd: '/',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  /** @type {{ startMs: number, ms: number }[]} */
  let calls = [];
  createInterface({ input: caller.stdout }).on('line', (line) => calls.push(JSON.parse(line)));
  try {
    const pauses = [];
    for (let death = 0, pid = 0; death < deaths; death++) {
      for (;;) {
        const now = await status();
        if (now !== null && now.pid !== pid && now.continuity?.hasStandby === hasStandby) {
          pid = now.pid;
          break;
        }
        await sleep(50);
      }
      await sleep(200);
      calls = [];
      const diedMs = Date.now();
      process.kill(pid, 'SIGKILL');
      for (await sleep(AFTER_MS); calls.length === 0; await sleep(50))
        if (caller.exitCode !== null) throw new Error(`${what}: a call failed, or the caller ended`);
      const times = calls
        .filter(({ startMs, ms }) => startMs + ms > diedMs)
        .map(({ ms }) => ms)
        .sort((a, b) => b - a);
      pauses.push({ longestMs: times[0] ?? 0, nextMs: times[1] ?? 0 });
      const shown = calls.map(({ startMs, ms }) => `${Math.round(startMs - diedMs)}: ${Math.round(ms)}`).join(', ');
      if (process.argv.includes('--verbose')) console.log(`${what}, death ${death + 1}: ${shown}`);
    }
    return pauses;
  } finally {
    const ended = new Promise((resolve) => caller.on('close', resolve));
    caller.kill('SIGKILL');
    await ended;
    ground.unmount(mount.directory);
  }
}
