import { afterEach, beforeEach, expect, test } from 'vitest';
import { SyncedSide } from '../harness/synced-side.ts';
import { MODEL_ROOT } from '../sync/model-service.ts';

/** Somebody deletes a file elsewhere that is open here. What close(2) accepts is never nowhere. */

let synced: SyncedSide;
beforeEach(async () => {
  synced = await SyncedSide.build();
});
afterEach(() => synced.close());

const never = new AbortController().signal;

/** Open here; deleted elsewhere since, with its folder or alone, and that was listed. */
async function openAndDeleted(how: 'r' | 'r+', what: 'file' | 'folder'): Promise<number> {
  const { service, mount, side } = synced;
  const folder = service.add('folder', MODEL_ROOT, 'folder');
  const file = service.add('file', folder, 'file', Buffer.from('theirs'));
  const fd = await mount.open('folder/file', how);
  await mount.read(fd, 0, 10);
  await service.moveToTrash(what === 'file' ? file : folder, what, what, never);
  await side.freshness.refresh();
  return fd;
}

test.each(['file', 'folder'] as const)(
  'a write to an open file that was deleted elsewhere recreates the file (its %s deleted)',
  async (what) => {
    const { mount, service } = synced;
    const fd = await openAndDeleted('r+', what);

    await mount.write(fd, 0, Buffer.from('ours'));
    expect((await mount.fstat(fd)).sizeBytes).toBe(6);
    await mount.close(fd);
    await synced.converge();

    expect((await mount.readFile('folder/file')).toString()).toBe('oursrs');
    expect([...service.tree()].map(([path]) => path)).toEqual(['/folder', '/folder/file']);
  },
);

test.each(['file', 'folder'] as const)(
  'a file that was deleted elsewhere stays readable until it is closed (its %s deleted)',
  async (what) => {
    const { mount, side, service } = synced;
    const fd = await openAndDeleted('r', what);

    expect((await mount.read(fd, 0, 10)).toString()).toBe('theirs');
    expect((await mount.fstat(fd)).sizeBytes).toBe(6);
    await mount.close(fd);
    await side.freshness.refresh();

    await expect(mount.stat('folder/file')).rejects.toMatchObject({ errno: 'ENOENT' });
    await synced.converge();
    expect([...service.tree()].map(([path]) => path)).toEqual(what === 'file' ? ['/folder'] : []);
  },
);

test('renamed here and deleted elsewhere while it is open: what is written into it is made anew', async () => {
  const { mount, service } = synced;
  const file = service.add('file', MODEL_ROOT, 'file', Buffer.from('theirs'));
  const fd = await mount.open('file', 'r+');
  await mount.read(fd, 0, 10);
  await mount.rename('file', 'renamed');
  await service.deleteForever(file, 'file', never);
  await synced.pass(10_000); // its new name is told, and answered with 404

  await mount.write(fd, 0, Buffer.from('ours'));
  await mount.close(fd);
  await synced.converge();

  expect((await mount.readFile('renamed')).toString()).toBe('oursrs');
  expect([...service.tree()].map(([path]) => path)).toEqual(['/renamed']);
});
