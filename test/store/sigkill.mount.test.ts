import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { ContentId, Inode } from '../../src/base/vocabulary.ts';
import { BLOCK_BYTES } from '../../src/base/vocabulary.ts';
import { ContentStore } from '../../src/bytes/content-store.ts';
import { SeededRandom } from './seeded-random.ts';
import { TemporaryStores } from './temporary-store.ts';

const DIST = fileURLToPath(new URL('../../dist', import.meta.url));
const stores = new TemporaryStores();

/**
 * Writes for ever: pairs of rows that must change together, and a draft whose blocks all hold the number of their round.
 * What stands on standard output is acknowledged.
 */
const CHILD = `
const [dist, directory] = process.argv.slice(1);
const { Store } = await import(dist + '/store/environment.js');
const { ContentStore } = await import(dist + '/bytes/content-store.js');
const { systemClock: clock } = await import(dist + '/base/clock.js');
const { silentLogger: log } = await import(dist + '/base/log.js');
const { writeSync } = await import('node:fs');
const store = await Store.open({ directory, log, clock, segmentBytes: 65536 });
const contents = new ContentStore({ store, directory, log, clock, options: { inlineMaxBytes: 4096, cacheBytes: 1e9 } });
let n = (store.get('meta', 'n') ?? 0);
// Whoever reads may be slow, and does not make a write to the pipe wait.
const tell = (line) => {
  try {
    writeSync(1, line);
  } catch (error) {
    if (error.code !== 'EAGAIN') throw error;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
    tell(line);
  }
};
for (;;) {
  n++;
  const size = n % 3 === 0 ? 200_000 : 1000;
  const data = new Uint8Array(size).fill(n % 251);
  store.transact((tx) => {
    const old = store.get('meta', 'draft');
    const draft = contents.createDraft(tx, null);
    contents.write(draft, 0, data);
    contents.flush(tx, draft);
    tx.put('meta', 'draft', draft);
    tx.put('meta', 'n', n);
    tx.put('name', [1, 'n'], n);
    if (old !== undefined) tx.put('garbage', old, true);
  });
  tell(n + '\\n');
  if (n % 7 === 0) await new Promise((resolve) => setImmediate(resolve));
  if (n % 50 === 0) contents.collect();
}
`;

test('acknowledged changes survive SIGKILL completely, twelve times in a row', async () => {
  const random = new SeededRandom(12);
  const directory = stores.directory();
  for (let round = 0; round < 12; round++) {
    const child = spawn(process.execPath, ['--input-type=module', '-e', CHILD, DIST, directory], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let acknowledged = 0;
    let lines = 0;
    const killAfter = 1 + random.below(400);
    for await (const line of createInterface({ input: child.stdout })) {
      acknowledged = Number(line);
      if (++lines === killAfter) child.kill('SIGKILL');
    }
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    expect(child.signalCode, 'the child ended by our signal').toBe('SIGKILL');

    const store = await stores.open(directory);
    const contents = new ContentStore({
      store,
      directory,
      log: silentLogger,
      clock: systemClock,
      options: { inlineMaxBytes: 4096, cacheBytes: 1e9 },
    });
    const n = store.get('meta', 'n') as number;
    expect(n).toBeGreaterThanOrEqual(acknowledged);
    expect(n).toBeLessThanOrEqual(acknowledged + 1);
    expect(store.get('name', [1 as Inode, 'n'])).toBe(n);
    const draft = store.get('meta', 'draft') as ContentId;
    const size = n % 3 === 0 ? 200_000 : 1000;
    expect(contents.sizeOf(draft)).toBe(size);
    const bytes = contents.readAll(draft, { start: 0, end: size + BLOCK_BYTES }) as Uint8Array;
    expect(bytes.every((byte) => byte === n % 251)).toBe(true);
    contents.close();
    await store.close();
  }
});
