import { afterEach, beforeEach, expect, test } from 'vitest';
import { writeNode } from '../../src/store/node-table.ts';
import { SyncedSide } from '../harness/synced-side.ts';
import { MODEL_ROOT } from '../sync/model-service.ts';

/** FIFOs and unix sockets are names on this machine: the service never hears of them. */

let synced: SyncedSide;
beforeEach(async () => {
  synced = await SyncedSide.build();
});
afterEach(() => synced.close());

const there = (): string[] => [...synced.service.tree().keys()].sort();

test('no FIFO or socket is pushed or counted, after any move or change', async () => {
  const { mount, sync } = synced;
  await mount.mkdir('folder');
  await mount.mknod('fifo', 0o600, 'fifo');
  await mount.mknod('folder/socket', 0o600, 'socket');
  await mount.chmod('fifo', 0o644);
  await mount.rename('fifo', 'folder/moved');
  await mount.rename('folder', 'renamed');
  expect(sync.status().pending, 'the folder alone').toBe(1);

  await synced.converge();

  expect(there()).toEqual(['/renamed']);
  expect(sync.status().pending).toBe(0);
  expect(await mount.stat('renamed/moved')).toMatchObject({ kind: 'fifo', mode: 0o644, sizeBytes: 0 });
});

test('a FIFO over a file deletes the file there, and a file over a FIFO travels', async () => {
  const { mount } = synced;
  await mount.writeFile('file', Buffer.from('bytes'));
  await synced.converge();
  await mount.mknod('fifo', 0o600, 'fifo');

  await mount.rename('fifo', 'file');
  await synced.converge();
  expect(there()).toEqual([]);
  await mount.writeFile('new', Buffer.from('new'));
  await mount.rename('new', 'file');
  await synced.converge();

  expect(there()).toEqual(['/file']);
  expect((await mount.readFile('file')).toString()).toBe('new');
});

test('exchanged names leave each what it is', async () => {
  const { mount } = synced;
  await mount.writeFile('file', Buffer.from('bytes'));
  await mount.mknod('fifo', 0o600, 'fifo');

  await mount.rename('fifo', 'file', 'exchange');
  await synced.converge();

  expect(there()).toEqual(['/fifo']);
  expect((await mount.stat('file')).kind).toBe('fifo');

  // The other way round: the FIFO is what is changed places with.
  await mount.rename('fifo', 'file', 'exchange');
  await synced.converge();
  expect(there()).toEqual(['/file']);
  expect((await mount.stat('fifo')).kind).toBe('fifo');
});

test('a FIFO survives a restart, and is removed with its folder that is deleted elsewhere', async () => {
  const { mount, service, side } = synced;
  const folder = service.add('folder', MODEL_ROOT, 'folder');
  await side.freshness.refresh();
  await mount.mknod('folder/fifo', 0o600, 'fifo');
  await mount.mknod('socket', 0o600, 'socket');

  await service.moveToTrash(folder, 'folder', 'folder', new AbortController().signal);
  await side.freshness.refresh();
  await expect(mount.stat('folder/fifo')).rejects.toMatchObject({ errno: 'ENOENT' });
  await synced.close('keep');
  synced = await SyncedSide.build({ left: synced });

  expect((await synced.mount.stat('socket')).kind).toBe('socket');
  expect(await synced.mount.readdir('')).toEqual([expect.objectContaining({ name: 'socket', kind: 'socket' })]);
});

test('a special file is neither opened nor cut by the file system: the kernel does that', async () => {
  const { mount } = synced;
  await mount.mknod('fifo', 0o600, 'fifo');

  await expect(mount.open('fifo', 'r+')).rejects.toMatchObject({ errno: 'ENXIO' });
  await expect(mount.truncate('fifo', 1)).rejects.toMatchObject({ errno: 'EINVAL' });
});

test('a special file is never to be pushed, also where its record does not say that it stays local', async () => {
  const { mount, side } = synced;
  await mount.mknod('fifo', 0o600, 'fifo');
  const node = side.store.get('node', (await mount.stat('fifo')).ino);
  if (node === undefined) throw new Error('no node');

  side.store.transact((tx) => writeNode(tx, node, { ...node, localOnly: false }, 0));

  expect([...side.store.all('dirty')]).toEqual([]);
  await synced.converge();
  expect(there()).toEqual([]);
});
