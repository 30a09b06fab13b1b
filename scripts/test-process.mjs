// A process with its descendants and a time limit. Afterwards none of them is left.
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';

/** A variable in the environment of a process and its descendants, which identifies them: mounts are in process groups of their own. */
const RUN = `${process.pid}-${Math.random().toString(36).slice(2)}`;
let runs = 0;

/** Ends the process groups that run now. */
const underWay = new Set();
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.once(signal, () => {
    for (const killGroup of underWay) killGroup();
    process.exit(130);
  });
}

/**
 * Runs a command. After the limit the whole process group is killed.
 *
 * @param {string} command
 * @param {readonly string[]} args
 * @param {number} limitMs
 * @param {{ cwd: string, output?: number | 'inherit' }} options `output`: descriptor for its output
 * @returns {Promise<number | null>} the exit code; null after the limit
 */
export function run(command, args, limitMs, { cwd, output = 'inherit' }) {
  return new Promise((resolve) => {
    const mark = `${RUN}-${++runs}`;
    const child = spawn(command, args, {
      cwd,
      stdio: ['ignore', output, output],
      detached: true,
      env: { ...process.env, TEST_RUN_OF_CFS: mark },
    });
    let late = false;
    const killGroup = () => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
      } catch {
        // The process group has ended already.
      }
    };
    underWay.add(killGroup);
    const timer = setTimeout(() => {
      late = true;
      killGroup();
    }, limitMs);
    child.on('error', () => resolve(1));
    child.on('exit', (code) => {
      clearTimeout(timer);
      underWay.delete(killGroup);
      if (late) void sweep(mark).then(() => resolve(null));
      else resolve(code ?? 1);
    });
  });
}

/** @param {string} mark */
function processesOf(mark) {
  return readdirSync('/proc').filter((name) => {
    if (!/^\d+$/.test(name) || Number(name) === process.pid) return false;
    try {
      return readFileSync(`/proc/${name}/environ`, 'latin1').split('\0').includes(`TEST_RUN_OF_CFS=${mark}`);
    } catch {
      return false; // it has ended, or is not ours
    }
  });
}

/**
 * Ends the processes of killed tests: mounts end in order at SIGTERM; what is left after 10 s is killed.
 * @param {string} mark
 */
async function sweep(mark) {
  for (const { signal, waitMs } of /** @type {const} */ ([
    { signal: 'SIGTERM', waitMs: 10_000 },
    { signal: 'SIGKILL', waitMs: 5_000 },
  ])) {
    for (const pid of processesOf(mark)) {
      try {
        process.kill(Number(pid), signal);
      } catch {
        // The process has ended.
      }
    }
    for (let waited = 0; waited < waitMs && processesOf(mark).length > 0; waited += 100) {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}
