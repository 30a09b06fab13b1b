import { afterAll, expect } from 'vitest';
import { MountFixture, missingForMounts } from '../harness/mount-fixture.ts';
import type { ReferenceServer } from '../harness/reference-server.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';
import { BalancedServers } from '../server/postgres/balanced-servers.ts';
import { missingPostgres } from '../server/postgres/postgres-server.ts';
import { DOCUMENTED_DIFFERENCES } from './documented-differences.ts';
import { conformanceSuite } from './suite.ts';

// The suite of the real mount, in front of three servers on one database: each request meets the next one.
const isRoot = process.getuid?.() === 0;
const isAsked = process.env.CFS_SEVERAL_SERVERS === '1';
let mount: MountFixture | undefined;
let servers: BalancedServers | undefined;
conformanceSuite('a mount in front of three servers', {
  missing: isAsked ? (missingForMounts() ?? missingPostgres()) : 'npm run soak -- serve',
  can: isRoot ? ['process', 'users'] : ['process'],
  differs: DOCUMENTED_DIFFERENCES,
  async open() {
    servers = await BalancedServers.start();
    const server = servers as unknown as ReferenceServer;
    // Pushed at once: otherwise most of what a case makes is gone again before the service learns of it.
    const flags = ['--settle', '20ms', ...(isRoot ? ['--allow-other'] : [])];
    mount = await MountFixture.start({ server, flags });
    return SyscallProcess.start(mount.directory);
  },
  close: async () => {
    await mount?.sync();
    await mount?.dispose();
  },
  onFailure: () => mount?.printLogs(),
});

afterAll(async () => {
  if (servers === undefined) return;
  const [counts, faults] = [servers.requestCounts, await servers.miscounts()];
  await servers.dispose();
  expect(Math.min(...counts), String(counts)).toBeGreaterThan(20);
  expect(faults).toEqual([]);
}, 60_000);
