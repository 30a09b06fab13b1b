import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { Accounts } from '../../src/server/accounts.ts';
import { Database } from '../../src/server/database.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { RequestLog } from '../../src/server/request-log.ts';
import { RawClient } from './raw-client.ts';

/** What anybody may send, without a sign-in, must not be kept as long as he likes. */

const MIB = 1024 * 1024;

/** What `run` leaves in memory, in bytes. */
async function growth(run: () => Promise<void> | void): Promise<number> {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  collect();
  const before = getHeapStatistics().used_heap_size;
  await run();
  collect();
  return getHeapStatistics().used_heap_size - before;
}

/** A new text at each call. Of a megabyte it would lie outside of V8's heap. */
const longText = (length: number, n: number) => Buffer.alloc(length, `${n} `).toString('latin1');

test('the log of requests keeps the front of a path and of a query', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-memory-'));
  const server = await ReferenceServer.open({ dataDirectory: directory });

  await new RawClient(server.origin).get(`/${'p'.repeat(10_000)}?${'q'.repeat(10_000)}`);
  const [entry] = server.requests.entries;
  await server.close();
  rmSync(directory, { recursive: true });

  expect(entry).toMatchObject({ path: `/${'p'.repeat(511)}`, query: 'q'.repeat(512) });
});

test('what the log of requests cut off is not kept alive by the rest', async () => {
  const log = new RequestLog({ entriesMax: 1000 });
  const counts = { kind: null, status: 404, bytesIn: 0, bytesOut: 0, durationMs: 1 };

  const bytes = await growth(() => {
    for (let n = 0; n < 1000; n++) {
      const target = longText(30_000, n);
      log.add({ method: 'GET', path: target.slice(0, 100), query: target.slice(101), ...counts });
    }
  });

  expect(log.entries).toHaveLength(1000);
  expect(bytes).toBeLessThan(5 * MIB);
});

test('a wrong sign-in is remembered without its name', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-memory-'));
  const database = Database.open(directory);
  const accounts = new Accounts({ database, clock: systemClock, accessTokenMs: 1, acceptAnyKeys: false });
  const keys = { accessKeyId: '', privateAccessKey: '' };
  const sender = { network: '127.0.0.1', isGone: () => false };

  const bytes = await growth(async () => {
    for (let n = 0; n < 12; n++) {
      const request = { username: longText(900_000, n), password: 'wrong', ...keys };
      await expect(accounts.createAccessTokenByPassword(request, sender)).rejects.toThrow('Authorization');
    }
  });
  await database.close();
  rmSync(directory, { recursive: true });

  expect(bytes).toBeLessThan(5 * MIB);
});
