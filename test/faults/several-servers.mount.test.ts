import { afterAll, expect } from 'vitest';
import type { FaultRule } from '../../src/server/fault-plan.ts';
import { BalancedServers } from '../server/postgres/balanced-servers.ts';
import { missingPostgres, PostgresServer } from '../server/postgres/postgres-server.ts';
import { faultSuite } from './fault-suite.ts';

// The suite in front of three servers on one database: each request meets the next one, also the request after a fault.
const isWhole = process.env.CFS_SEVERAL_SERVERS === '1';
let postgres: PostgresServer | undefined;
faultSuite('each request × each trouble, in front of three servers', {
  missing: missingPostgres(),
  lanes: isWhole ? 6 : 2,
  every: isWhole ? 1 : 50,
  async open() {
    postgres ??= await PostgresServer.start();
    const servers = await BalancedServers.start(postgres);
    return {
      origin: servers.account.url,
      administration: servers.administration,
      set faults(rules: readonly FaultRule[]) {
        servers.faults = rules;
      },
      async close() {
        const [counts, miscounts] = [servers.requestCounts, await servers.miscounts()];
        await servers.dispose();
        expect(Math.min(...counts), String(counts)).toBeGreaterThan(0);
        expect(miscounts).toEqual([]);
      },
    };
  },
});

afterAll(() => postgres?.close());
