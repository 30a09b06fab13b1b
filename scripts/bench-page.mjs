// What the page of `cfs web` costs an idle mount: the processor time of the mounting process without and with an open page.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Ground } from './measure/ground.mjs';
import { OURS, Results } from './measure/results.mjs';

const quick = process.argv.includes('--quick');
const ROUNDS = quick ? 1 : 3;
const WINDOW_MS = quick ? 5_000 : 20_000;
/** Of /proc/PID/stat: USER_HZ of all Linux systems that Node runs on. */
const TICKS_PER_SECOND = 100;
const CFS = fileURLToPath(new URL('../dist/cli/cfs.js', import.meta.url));

const CLOSED = 'idle mount, page closed';
const OPEN = 'idle mount, page open';
const MORE = 'open page, more than closed';

const results = new Results('page', { rounds: ROUNDS, quick });
const ground = await Ground.lay();
try {
  const mount = ground.mount('ours');
  for (let round = 0; round < ROUNDS; round++) {
    const closed = await percentOf(mount.pid);
    const page = await openPage(mount.env);
    await sleep(3_000); // the history has been sent
    const open = await percentOf(mount.pid);
    page.kill();
    await sleep(1_000);
    results.note(CLOSED, '% of a processor', OURS, closed);
    results.note(OPEN, '% of a processor', OURS, open);
    results.note(MORE, '% of a processor', OURS, Math.max(0, open - closed));
  }
  results.gate(MORE, 'at most', 1);
  process.exitCode = results.finish();
} finally {
  await ground.clear();
}

/** Processor time of a process over the window. @param {number} pid */
async function percentOf(pid) {
  const before = ticksOf(pid);
  await sleep(WINDOW_MS);
  return ((ticksOf(pid) - before) / TICKS_PER_SECOND / (WINDOW_MS / 1000)) * 100;
}

/** utime and stime of proc(5). @param {number} pid */
function ticksOf(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return Number(fields[11]) + Number(fields[12]);
}

/** `cfs web`, with its live stream read as a browser reads it. @param {NodeJS.ProcessEnv} env */
async function openPage(env) {
  const child = spawn(process.execPath, [CFS, 'web'], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  for await (const chunk of child.stdout) {
    text += chunk;
    if (text.includes('it ends with')) break;
  }
  const [, origin = '', code = ''] = /the page: (\S+)\/\n.*browser: (\S+)/s.exec(text) ?? [];
  /** @param {string} path @param {unknown} body @param {Record<string, string>} [headers] */
  const post = (path, body, headers = {}) =>
    fetch(`${origin}${path}`, { method: 'POST', headers: { origin, ...headers }, body: JSON.stringify(body) });
  const { token } = /** @type {{ token: string }} */ (await (await post('/session', { code })).json());
  const live = await post('/live', {}, { authorization: `Bearer ${token}` });
  void (async () => {
    for await (const _ of /** @type {AsyncIterable<Uint8Array>} */ (/** @type {unknown} */ (live.body)));
  })().catch(() => {}); // the page ends first
  return child;
}
