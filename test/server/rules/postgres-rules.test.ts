import { afterAll, beforeAll, describe } from 'vitest';
import { titled } from '../../harness/requirement.ts';
import { missingPostgres, PostgresServer } from '../postgres/postgres-server.ts';
import { accountSuite } from './account-suite.ts';
import type { BackEnd, BackEndOptions } from './back-end.ts';
import { modelSuite } from './model-suite.ts';
import { openPostgresBackEnd } from './postgres-back-end.ts';
import { repositorySuite } from './repository-suite.ts';

const missing = missingPostgres();

describe.skipIf(missing !== null)(titled('over PostgreSQL', missing), () => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await PostgresServer.start();
  }, 60_000);
  afterAll(() => server.close());

  const open = async (options: BackEndOptions): Promise<BackEnd> =>
    openPostgresBackEnd(await server.newDatabase(), options);

  accountSuite('the rules for accounts', open);
  repositorySuite('the rules for folders and files', open);
  modelSuite('PostgreSQL', open, { runs: 4 });
});
