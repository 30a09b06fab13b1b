import { afterEach, beforeEach, expect, test } from 'vitest';
import { SyncedSide } from '../harness/synced-side.ts';
import { MODEL_ROOT, MODEL_TRASH } from './model-service.ts';

/** A file that is deleted here while somebody has it open is deleted on the service when nobody has any more. */

let synced: SyncedSide;
beforeEach(async () => {
  synced = await SyncedSide.build();
  const { service, side } = synced;
  service.add('file', MODEL_ROOT, 'film', Buffer.from('film'));
  await side.freshness.refresh();
});
afterEach(() => synced.close());

const there = (): string[] => [...synced.service.tree().keys()];

test.each(['r', 'r+'] as const)(
  'a file that is deleted while it is open (%s) is deleted on the service after its last close',
  async (access) => {
    const { mount, sync } = synced;
    const fds = [await mount.open('film', access), await mount.open('film', access)] as const;
    await mount.read(fds[0], 0, 1);
    await mount.unlink('film');
    await synced.pass(60_000);
    await mount.close(fds[0]);
    await synced.pass(60_000);
    expect(there()).toEqual(['/film']);
    await mount.close(fds[1]);
    await synced.pass(60_000);

    expect(there()).toEqual([]);
    expect(sync.status().pending).toBe(0);
  },
);

test('a file that is deleted with its folder while it is open is deleted on the service after its last close', async () => {
  const { mount } = synced;
  await mount.mkdir('folder');
  await mount.rename('film', 'folder/film');
  await synced.converge();
  const fd = await mount.open('folder/film', 'r');
  await mount.read(fd, 0, 1);
  await mount.unlink('folder/film');
  await mount.rmdir('folder');
  await synced.pass(60_000);
  await mount.close(fd);
  await synced.pass(60_000);

  expect(there()).toEqual([]);
});

test('a file that is deleted while it is open goes to the trash under its name although a new file has the name', async () => {
  const { mount, service } = synced;
  service.moveToTrash = async (url, kind, name, signal) => {
    await service.relocate(url, kind, MODEL_TRASH, name, signal);
  };
  const fd = await mount.open('film', 'r');
  await mount.read(fd, 0, 1);
  await mount.unlink('film');
  await synced.pass(10_000); // no save: its name is taken again later
  await mount.writeFile('film', Buffer.from('new'));
  await synced.pass(10_000);
  await synced.pass(10_000);
  await mount.close(fd);
  await synced.converge();

  expect([...service.tree()]).toEqual([['/film', 'new']]);
  expect(service.childrenOf(MODEL_TRASH).map(({ name }) => name)).toEqual(['film']);
});
