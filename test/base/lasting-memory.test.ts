import { spawnSync } from 'node:child_process';
import { expect } from 'vitest';
import { missingAddon, testUnless } from '../harness/requirement.ts';

/** `keepUncounted` of src/base/native.ts, in processes of their own: from Node 24 on, V8 ends a process whose count falls below 0. */

const ADDON = new URL('../../native-deps/fuse-kernel/build/fuse-kernel.node', import.meta.url).pathname;
const missing = missingAddon();
const MIB = 1 << 20;
const isUncounted = Number(process.versions.node.split('.')[0]) < 24;

/** Runs a script that has the addon, and `collect()`. @returns what it printed as JSON */
function run(script: string): unknown {
  const { stdout, stderr, status, signal } = spawnSync(
    process.execPath,
    [
      '--expose-gc',
      '-e',
      `const addon = require(${JSON.stringify(ADDON)}); const { Worker } = require('node:worker_threads');
       const collect = () => { for (let i = 0; i < 3; i++) gc(); };
       const say = (value) => require('node:fs').writeSync(1, JSON.stringify(value));
       ${script}`,
    ],
    { encoding: 'utf8', timeout: 60_000 },
  );
  expect({ stderr, status, signal }).toEqual({ stderr: '', status: 0, signal: null });
  return JSON.parse(stdout);
}

testUnless(missing)('V8 does not count a buffer that lasts, and keeps its bytes', () => {
  const [taken, again, last] = run(`
    let bytes = new Uint8Array(64 * ${MIB}).fill(7);
    const kept = new WeakRef(bytes.buffer);
    const taken = addon.keepUncounted(bytes.buffer);
    const again = addon.keepUncounted(bytes.buffer); // V8 counts less than its bytes
    if (taken > 0) bytes = null;
    setTimeout(() => {
      collect();
      say([taken, again, new Uint8Array(kept.deref())[64 * ${MIB} - 1]]);
    }, 10);
  `) as number[];

  expect([taken, again, last]).toEqual([isUncounted ? 64 * MIB : 0, 0, 7]);
});

for (const end of ['', 'process.exit()', 'setInterval(() => {}, 1000)'])
  testUnless(missing)(`a thread with such a buffer ends as any other: "${end}"`, () => {
    const ofWorker = `
      const addon = require(${JSON.stringify(ADDON)});
      addon.keepUncounted(new ArrayBuffer(64 * ${MIB}));
      require('node:worker_threads').parentPort.postMessage('kept');
      ${end}`;

    expect(
      run(`const worker = new Worker(${JSON.stringify(ofWorker)}, { eval: true });
           worker.once('message', () => { if (${end.startsWith('setInterval')}) worker.terminate(); });
           worker.once('exit', () => { collect(); say('ended'); });`),
    ).toBe('ended');
  });
