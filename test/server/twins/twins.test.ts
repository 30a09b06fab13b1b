import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { DirectoryStore } from '../../../src/server/directory-store.ts';
import { HOLDING_LIMITS } from '../../../src/server/holdings.ts';
import { ReferenceServer } from '../../../src/server/reference-server.ts';
import { tellFigures } from '../../harness/figures.ts';
import { PortClaim } from '../../harness/port-claim.ts';
import { titled } from '../../harness/requirement.ts';
import { SeededRandom } from '../../store/seeded-random.ts';
import { miscounts } from '../postgres/miscounts.ts';
import { missingPostgres, PostgresServer } from '../postgres/postgres-server.ts';
import { described, EMAILS, perform, RandomRequests } from './random-requests.ts';
import { ServiceSide } from './service-side.ts';

/** Random operations on both back ends: each is the oracle of the other. */

const OPERATIONS = Number(process.env.CFS_BACK_END_OPERATIONS ?? 1000);
const SEED = Number(process.env.CFS_CASES_SEED);
const RULES = [
  { uniqueNames: false, foldCase: false },
  { uniqueNames: true, foldCase: true },
];
const missing = missingPostgres();

describe.skipIf(missing !== null)(titled('two back ends', missing), () => {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-twins-'));
  let postgres: PostgresServer;

  beforeAll(async () => {
    postgres = await PostgresServer.start();
  }, 60_000);

  afterAll(async () => {
    await postgres.close();
    rmSync(directory, { recursive: true });
  });

  test.each(RULES)(
    `${OPERATIONS / RULES.length} random operations (seed ${SEED}) have the same responses over LMDB and PostgreSQL: %o`,
    async (rules) => {
      const claims = [await PortClaim.make(), await PortClaim.make()] as const;
      const url = await postgres.newDatabase();
      const limits = { ...HOLDING_LIMITS, entriesMax: 400, unfinishedMax: 20 };
      const open = (at: 0 | 1, more: object) =>
        ReferenceServer.open({
          dataDirectory: join(directory, `${rules.uniqueNames} ${at}`),
          publicOrigin: `http://127.0.0.1:${claims[at].port}`,
          listen: { port: claims[at].port },
          ...{ ...rules, limits, ...more },
        });
      const database = { url, partBytes: 64 * 1024, deletedAfterMs: 0 };
      const objects = new DirectoryStore(join(directory, `objects ${rules.uniqueNames}`));
      const servers = [await open(0, {}), await open(1, { database, objects })] as const;
      const [local, shared] = servers.map(({ origin, administration }) => new ServiceSide(origin, administration));
      try {
        await compareSides(local as ServiceSide, shared as ServiceSide, OPERATIONS / RULES.length);
        expect(await miscounts(url)).toEqual([]);
      } finally {
        await Promise.all(servers.map((server) => server.close()));
        await Promise.all(claims.map((claim) => claim.release()));
      }
    },
    3_600_000,
  );
});

async function compareSides(local: ServiceSide, shared: ServiceSide, operations: number): Promise<void> {
  for (const email of EMAILS)
    expect(await local.addUser(email, 3_000_000)).toBe(await shared.addUser(email, 3_000_000));
  const requests = new RandomRequests(new SeededRandom(SEED));
  const done: string[] = [];
  const statuses = new Map<string, number>();
  for (let at = 0; at < operations; at += 1) {
    const operation = requests.next();
    const [mine, its] = await Promise.all([perform(operation, local), perform(operation, shared)]);
    const text = `${at} ${described(operation)}`;
    expect(its, `operation ${text}, after\n${done.slice(-8).join('\n')}\n`).toBe(mine);
    const status = mine.split(' ', 1)[0] as string;
    done.push(`${text} → ${status}`);
    statuses.set(status, (statuses.get(status) ?? 0) + 1);
    requests.learn(operation, mine);
  }
  tellFigures(
    `${operations} operations, seed ${SEED}: ${[...statuses].map(([status, n]) => `${n} × ${status}`).join(', ')}`,
  );
  // So that the comparison is worth something.
  for (const status of ['200', '201', '204', '403', '404'])
    expect(statuses.get(status) ?? 0, status).toBeGreaterThan(0);
}
