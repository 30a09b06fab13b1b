import { expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { ListingPage } from '../../src/base/resources.ts';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { NfsServer } from '../../src/nfs/nfs-server.ts';
import { BACKGROUND_LISTINGS_MAX, BACKGROUND_WAITING_MAX } from '../../src/tree/background-listings.ts';
import { AssembledMount } from '../harness/assembled-mount.ts';
import { MemoryService } from '../remote/memory-service.ts';
import { NfsClient } from './nfs-client.ts';

const PARENTS = 15;
/** CFS_NFS_FOLDERS=10000 for a long run. Together more than may wait for a listing. */
const CHILDREN = Math.ceil(Number(process.env.CFS_NFS_FOLDERS ?? 1_500) / PARENTS);
const FOLDERS = PARENTS * CHILDREN;
/** Folders that are visited at the same time. */
const AT_ONCE = 16;
const PROBES = ['.metadata_never_index', '.DS_Store', '._.', '.localized', 'Contents'];

/** Counts listings. While `gate` is set, they wait for it. */
class CountingService extends MemoryService {
  readonly counts = new Map<ResourceUrl, number>();
  gate: Promise<void> | null = null;
  running = 0;
  runningMax = 0;

  override async listPage(folder: ResourceUrl, start: number): Promise<ListingPage> {
    this.counts.set(folder, (this.counts.get(folder) ?? 0) + 1);
    this.runningMax = Math.max(this.runningMax, ++this.running);
    try {
      await this.gate;
      return await super.listPage(folder, start);
    } finally {
      this.running--;
    }
  }

  get total(): number {
    let total = 0;
    for (const count of this.counts.values()) total += count;
    return total;
  }
}

test('a walk by Spotlight lists each unknown folder once, and causes no storm of listings in known ones', {
  timeout: 120_000 + 60 * FOLDERS,
}, async () => {
  const service = new CountingService();
  const { home } = await service.user();
  for (let parent = 0; parent < PARENTS; parent++) {
    const folder = await service.createFolder(home, `parent ${parent}`);
    for (let child = 0; child < CHILDREN; child++) await service.createFolder(folder, `folder ${child}`);
  }
  const assembled = await AssembledMount.build(service, { dirTtlMs: '1h' });
  const deps = { log: silentLogger, clock: systemClock, platform: 'darwin' as const };
  const server = await NfsServer.start(assembled.parts.mounted, { readOnly: false, allowOther: false }, deps);
  const client = await NfsClient.connect(server.exported.port);
  const root = await client.mnt(server.exported.path);
  server.admit();
  const visit = async (folder: Buffer): Promise<string[]> => {
    await Promise.all(PROBES.map((probe) => client.lookup(folder, probe).catch(() => null)));
    return [...(await client.entries(folder)).keys()].filter((name) => !name.startsWith('.'));
  };
  const walk = async (): Promise<number> => {
    let visited = 0;
    for (const parent of await visit(root)) {
      const folder = await client.lookup(root, parent);
      const names = await visit(folder);
      for (let at = 0; at < names.length; at += AT_ONCE) {
        const some = names.slice(at, at + AT_ONCE);
        await Promise.all(some.map(async (name) => visit(await client.lookup(folder, name))));
        visited += some.length;
      }
    }
    return visited;
  };

  expect(await walk()).toBe(FOLDERS);
  expect(Math.max(...service.counts.values())).toBe(1);

  await expect.poll(() => service.running).toBe(0);
  service.counts.clear();
  expect(await walk()).toBe(FOLDERS);
  expect(service.total).toBe(0);

  // Everything is stale, and the service takes longer than the walk.
  await assembled.parts.freshness.refresh();
  service.counts.clear();
  service.runningMax = 0;
  let open = (): void => {};
  service.gate = new Promise((resolve) => {
    open = resolve;
  });
  expect(await walk()).toBe(FOLDERS);
  expect(service.total).toBe(BACKGROUND_LISTINGS_MAX);
  open();
  await expect.poll(() => service.running).toBe(0);
  expect(service.runningMax).toBe(BACKGROUND_LISTINGS_MAX);
  expect(service.total).toBeLessThanOrEqual(BACKGROUND_LISTINGS_MAX + BACKGROUND_WAITING_MAX);

  client.close();
  await server.close();
  await assembled.close();
});
