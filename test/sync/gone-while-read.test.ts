import { constants } from 'node:fs';
import { expect, test } from 'vitest';
import type { SyncReport } from '../../src/sync/sync-request.ts';
import { SyncedSide } from '../harness/synced-side.ts';
import { MODEL_ROOT, MODEL_TRASH } from './model-service.ts';

test('a file that was renamed here and deleted remotely delays no sync request while it is read', async () => {
  const world = await SyncedSide.build();
  try {
    const { service, mount, sync, side } = world;
    const file = service.add('file', MODEL_ROOT, 'film', Buffer.from('film'));
    await side.freshness.refresh();
    const fd = await mount.open('film', constants.O_RDONLY);
    await mount.read(fd, 0, 4);
    await mount.rename('film', 'renamed');
    service.resources.delete(file);
    let report: SyncReport | null = null;
    void sync.syncNow().then((found) => {
      report = found;
    });
    await world.pass(1);

    expect(report).toEqual({ pushed: 0, parked: [], open: 1 });
    expect(await mount.readdir('')).toHaveLength(1);
    await mount.close(fd);
    for (let round = 0; round < 5; round++) await world.pass(60_000);
    expect(await mount.readdir('')).toEqual([]);
    expect(sync.status().pending).toBe(0);
  } finally {
    await world.close();
  }
});

test('remotely deleted files that are being read are not searched for changes, whatever their number', async () => {
  const world = await SyncedSide.build();
  try {
    const { service, mount, side } = world;
    const names = Array.from({ length: 20 }, (_, index) => `file ${index}`);
    for (const name of [...names, ...names.map((each) => `kept ${each}`)])
      service.add('file', MODEL_ROOT, name, Buffer.from('bytes'));
    await side.freshness.refresh();
    const open: number[] = [];
    for (const name of names) {
      const fd = await mount.open(name, constants.O_RDONLY);
      await mount.read(fd, 0, 5);
      open.push(fd);
    }
    for (const resource of service.resources.values()) if (names.includes(resource.name)) resource.parent = MODEL_TRASH;
    let looks = 0;
    const all = side.store.all.bind(side.store);
    side.store.all = ((table: 'dirty') => {
      if (table === 'dirty') looks += 1;
      return all(table);
    }) as typeof side.store.all;
    await side.freshness.refresh();

    expect(looks).toBe(0);
    expect(await mount.readdir('')).toHaveLength(40);
    for (const fd of open) await mount.close(fd);
    await side.freshness.refresh();
    expect(await mount.readdir('')).toHaveLength(20);
  } finally {
    await world.close();
  }
});
