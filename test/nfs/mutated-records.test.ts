import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { NfsServer } from '../../src/nfs/nfs-server.ts';
import { PROCEDURE } from '../../src/nfs/protocol.ts';
import { XdrWriter } from '../../src/nfs/xdr.ts';
import { MemoryFileSystem } from '../kernel/memory-file-system.ts';
import { NfsClient } from './nfs-client.ts';

const SEED = 20261125;
/** CFS_NFS_RECORDS=1000000 for a long run. */
const RECORDS = Number(process.env.CFS_NFS_RECORDS ?? 10_000);
/** Sent before the replies are awaited. */
const AT_ONCE = 50;
const MEMORY_BYTES_MAX = 256 * 1024 * 1024;

/** mulberry32 */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

test('mutated records neither end the server nor fill its memory', { timeout: 120_000 + 10 * RECORDS }, async () => {
  const fileSystem = new MemoryFileSystem();
  const deps = { log: silentLogger, clock: systemClock };
  const server = await NfsServer.start(fileSystem, { readOnly: false, allowOther: true }, deps);
  const random = randomOf(SEED);
  const below = (limit: number): number => Math.floor(random() * limit);
  let client = await NfsClient.connect(server.exported.port);
  const root = await client.mnt(server.exported.path);
  server.admit();
  const file = await client.create(root, 'file');
  const valid = (): Buffer => {
    const procedure = below(Object.keys(PROCEDURE).length);
    const args = new XdrWriter().opaque(random() < 0.5 ? root : file).text('name');
    for (let word = 0; word < 12; word++) args.u32(random() < 0.7 ? below(3) : below(2 ** 32));
    return client.record(random() < 0.9 ? 100003 : 100005, 3, procedure, args.done());
  };
  const mutated = (record: Buffer): Buffer => {
    const copy = Buffer.from(record.subarray(0, random() < 0.3 ? below(record.byteLength) : record.byteLength));
    for (let change = below(4); change > 0 && copy.byteLength > 0; change--) copy[below(copy.byteLength)] = below(256);
    return copy;
  };
  const before = process.memoryUsage().rss;
  for (let sent = 0; sent < RECORDS; sent += AT_ONCE) {
    for (let each = 0; each < AT_ONCE; each++) client.send(mutated(valid()));
    // A NULL call behind them: its reply, or the end of the connection, shows that they were read.
    const isOpen = await client.call(100003, 0, new XdrWriter()).then(
      () => true,
      () => false,
    );
    if (!isOpen) client = await NfsClient.connect(server.exported.port);
  }

  expect(await client.getattr(root)).toMatchObject({ type: 2 });
  expect(process.memoryUsage().rss - before).toBeLessThan(MEMORY_BYTES_MAX);
  client.close();
  await server.close();
  expect({ lookups: fileSystem.lookups, handles: fileSystem.openHandles }).toEqual({ lookups: 0, handles: 0 });
});
