import { randomUUID } from 'node:crypto';
import { HOLDING_LIMITS } from '../../../src/server/holdings.ts';
import { Postgres } from '../../../src/server/postgres/postgres.ts';
import { PostgresAccounts } from '../../../src/server/postgres/postgres-accounts.ts';
import { PostgresAdministration } from '../../../src/server/postgres/postgres-administration.ts';
import { PostgresCollections } from '../../../src/server/postgres/postgres-collections.ts';
import { PostgresHistories } from '../../../src/server/postgres/postgres-histories.ts';
import { PostgresRepository } from '../../../src/server/postgres/postgres-repository.ts';
import { ManualClock } from '../../tree/tree-fixture.ts';
import type { BackEnd, BackEndOptions } from './back-end.ts';

/** The rules over a database, which is brought up to date. */
export async function openPostgresBackEnd(url: string, options: BackEndOptions): Promise<BackEnd> {
  const clock = new ManualClock();
  const postgres = await Postgres.open(url);
  await postgres.migrate();
  const { uniqueNames = false, foldCase = false, pageMax = 1000, accessTokenMs = 3_600_000 } = options;
  const parts = {
    postgres,
    clock,
    rules: { uniqueNames, foldCase },
    pageMax,
    accessTokenMs,
    acceptAnyKeys: false,
    limits: HOLDING_LIMITS,
  };
  const rules = {
    accounts: new PostgresAccounts(parts),
    repository: new PostgresRepository(parts),
    collections: new PostgresCollections(parts),
    histories: new PostgresHistories({ ...parts, newBlob: () => randomUUID() }),
  };
  return { rules, administration: new PostgresAdministration(parts), clock, close: () => postgres.close() };
}
