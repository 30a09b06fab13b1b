import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { MountFixture } from '../harness/mount-fixture.ts';

/** The service answers before the store is open. */
const OPENING_MS = 700;

/** The first stack trace in a bundle lets V8 look for all its line ends: 4 ms of a start. */
test('no thread renders the stack of an error while a mount starts', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'cfs-errors-'));
  const [hook, seen] = [join(folder, 'hook.cjs'), join(folder, 'seen')];
  writeFileSync(
    hook,
    `const fs = require('node:fs');
     Error.prepareStackTrace = (error, sites) => {
       fs.appendFileSync(${JSON.stringify(seen)}, error + ' at ' + sites.join(' < ') + '\\n');
       return String(error);
     };
     const { mkdirSync } = fs;
     if (!require('node:worker_threads').isMainThread) fs.mkdirSync = (...words) => {
       Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ${OPENING_MS});
       return mkdirSync(...words);
     };`,
  );
  const mount = await MountFixture.start({ env: { NODE_OPTIONS: `--require ${hook}` } });
  try {
    await mount.run('ls');
    expect(existsSync(seen) ? readFileSync(seen, 'utf8') : '').toBe('');
  } finally {
    await mount.dispose();
    rmSync(folder, { recursive: true });
  }
});
