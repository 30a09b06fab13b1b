import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import { DirectoryStore } from '../../../src/server/directory-store.ts';
import { ReferenceServer } from '../../../src/server/reference-server.ts';
import { PortClaim } from '../../harness/port-claim.ts';
import { titled } from '../../harness/requirement.ts';
import { miscounts } from './miscounts.ts';
import { missingPostgres, PostgresServer } from './postgres-server.ts';

/** The server's own suite, once more: every server that it opens has its rows in PostgreSQL and its bytes in objects. */

const { open } = ReferenceServer;
const missing = missingPostgres();

describe.skipIf(missing !== null)(titled('over PostgreSQL', missing), () => {
  let postgres: PostgresServer;
  /** By data directory: a restart finds its rows and its origin again. */
  const databases = new Map<string, { readonly url: string; origin?: string }>();
  const claims: PortClaim[] = [];
  const claimedPort = async (): Promise<number> => {
    const claim = await PortClaim.make();
    claims.push(claim);
    return claim.port;
  };

  beforeAll(async () => {
    postgres = await PostgresServer.start();
    ReferenceServer.open = async (options) => {
      const { dataDirectory } = options;
      const known = databases.get(dataDirectory) ?? { url: await postgres.newDatabase() };
      databases.set(dataDirectory, known);
      const database = { url: known.url, partBytes: 64 * 1024, deletedAfterMs: 0 };
      const objects = new DirectoryStore(join(dataDirectory, 'objects'));
      const port = known.origin === undefined ? await claimedPort() : Number(new URL(known.origin).port);
      known.origin ??= options.publicOrigin ?? `http://127.0.0.1:${port}`;
      const listen = { port, ...options.listen };
      return open.call(ReferenceServer, { objects, publicOrigin: known.origin, ...options, listen, database });
    };
  }, 60_000);

  afterAll(async () => {
    ReferenceServer.open = open;
    await Promise.all(claims.map((claim) => claim.release()));
    // After everything that the suite did, with all its interruptions.
    const counting = Promise.all([...databases.values()].map(({ url }) => miscounts(url)));
    const faults = await counting.finally(() => postgres.close());
    expect(databases.size).toBeGreaterThan(20);
    expect(faults.flat()).toEqual([]);
  }, 60_000);

  // The suffix makes a module of its own: each file also runs by itself, over the disk.
  describe('service', async () => void (await import('../service.test.ts?postgres' as string)));
  describe('service examples', async () => void (await import('../service-examples.test.ts?postgres' as string)));
  describe('versions', async () => void (await import('../versions.test.ts?postgres' as string)));
  describe('shares', async () => void (await import('../shares.test.ts?postgres' as string)));
  describe('isolation', async () => void (await import('../isolation.test.ts?postgres' as string)));
  describe('odd requests', async () => void (await import('../odd-requests.test.ts?postgres' as string)));
  describe('holdings', async () => void (await import('../holdings.test.ts?postgres' as string)));
  describe('slow senders', async () => void (await import('../slow-senders.test.ts?postgres' as string)));
  describe('upload order', async () => void (await import('../upload-order.test.ts?postgres' as string)));
});
