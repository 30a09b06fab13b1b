import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { FaultRule } from '../../src/server/fault-plan.ts';
import { ReferenceServer } from '../../src/server/reference-server.ts';
import { FAST_DISK } from '../harness/fast-disk.ts';
import { faultSuite } from './fault-suite.ts';

faultSuite('each request × each trouble', {
  missing: null,
  lanes: 12,
  async open() {
    const directory = mkdtempSync(join(FAST_DISK, 'cfs-faults-'));
    const server = await ReferenceServer.open({ dataDirectory: directory });
    return {
      origin: server.origin,
      administration: server.administration,
      set faults(rules: readonly FaultRule[]) {
        server.faults = rules;
      },
      async close() {
        await server.close();
        rmSync(directory, { recursive: true });
      },
    };
  },
});
