import { afterEach, beforeEach, expect, test } from 'vitest';
import { ApiError } from '../../src/base/errors.ts';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { SETTLE_MS, SyncedSide } from '../harness/synced-side.ts';
import { MODEL_ROOT } from '../sync/model-service.ts';

/**
 * What was changed here is pushed while nobody has heard yet that it, or a folder that it lies in, was thrown away elsewhere. The service
 * takes it: what lies in the trash is as good as any other. It must not stay there.
 */

let synced: SyncedSide;
let folder: ResourceUrl;
let file: ResourceUrl;

beforeEach(async () => {
  synced = await SyncedSide.build();
  const { service, side, mount } = synced;
  folder = service.add('folder', MODEL_ROOT, 'folder');
  file = service.add('file', folder, 'file', Buffer.from('theirs'));
  await side.freshness.refresh();
  await mount.readFile('folder/file');
});
afterEach(() => synced.close());

const never = new AbortController().signal;

async function trash(what: 'file' | 'folder'): Promise<void> {
  await synced.service.moveToTrash(what === 'file' ? file : folder, what, what, never);
}

/** Nobody here has listed anything since. */
function pass(): void {
  synced.side.freshness.stop(); // by itself it would
  synced.clock.advance(10 * 60_000);
}

async function isThere(path: string, text: string): Promise<void> {
  const { service, mount, side } = synced;
  await synced.converge();
  expect(service.tree().get(`/${path}`)).toBe(text);
  await side.freshness.refresh();
  expect((await mount.readFile(path)).toString()).toBe(text);
}

test.each(['file', 'folder'] as const)(
  'an edit of a file that was trashed elsewhere recreates it (its %s trashed)',
  async (what) => {
    const { mount } = synced;
    await trash(what);
    const fd = await mount.open('folder/file', 'r+');
    pass();
    await mount.write(fd, 0, Buffer.from('ours'));
    await mount.close(fd);

    await isThere('folder/file', 'oursrs');
  },
);

test('a new file in a folder that was trashed elsewhere recreates the folder', async () => {
  const { mount, service } = synced;
  await trash('folder');
  pass();
  await mount.writeFile('folder/new', Buffer.from('new'));

  await isThere('folder/new', 'new');
  expect([...service.tree().keys()].sort()).toEqual(['/folder', '/folder/new']);
});

test('a file that was renamed here and then trashed elsewhere stays in the trash', async () => {
  const { mount, service } = synced;
  await trash('file');
  await mount.rename('folder/file', 'folder/other');
  pass();

  await synced.converge();
  expect([...service.tree().keys()]).toEqual(['/folder']);
});

test('what is asked before a push is asked once for many, and not while it is known', async () => {
  const { mount, service } = synced;
  const listings: string[] = [];
  const listing = service.listing.bind(service);
  service.listing = (url) => {
    listings.push(url);
    return listing(url);
  };
  for (let n = 0; n < 20; n++) await mount.writeFile(`folder/f${n}`, Buffer.from('x'));
  await synced.converge();
  expect(listings).toEqual([]);

  pass();
  for (let n = 0; n < 20; n++) await mount.writeFile(`folder/f${n}`, Buffer.from('y'));
  await synced.converge();
  expect(listings.length).toBeLessThanOrEqual(2);
});

test('an edit below a removal that waits for a person is not pushed into the trash', async () => {
  const { mount, service, side } = synced;
  const many = Array.from({ length: 150 }, (_, n) => service.add('file', folder, `f${n}`, Buffer.from('x')));
  await side.freshness.refresh();
  await mount.readdir('folder');
  for (const each of many) await service.moveToTrash(each, 'file', 'f', never);
  await side.freshness.refresh();
  expect(side.freshness.heldRemovals).toHaveLength(1);

  await mount.writeFile('folder/f7', Buffer.from('ours'));
  await synced.converge();

  expect(service.tree().get('/folder/f7')).toBe('ours');
  await side.freshness.refresh(undefined, { accept: true });
  expect((await mount.readFile('folder/f7')).toString()).toBe('ours');
});

test('an edit of a trashed file recreates it even while another program reads it', async () => {
  const { mount } = synced;
  const reader = await mount.open('folder/file', 'r');
  await mount.read(reader, 0, 1);
  await trash('file');
  const fd = await mount.open('folder/file', 'r+');
  pass();
  await mount.write(fd, 0, Buffer.from('ours'));
  await mount.close(fd);

  await isThere('folder/file', 'oursrs');
  await mount.close(reader);
});

test('a file that is opened again while its folders are looked at is not pushed half written', async () => {
  const { mount, service, side } = synced;
  let seen = (): void => {};
  const look = new Promise<void>((resolve) => {
    seen = resolve;
  });
  await mount.writeFile('folder/file', Buffer.from('first, whole'));
  side.freshness.beforePush = () => look;
  await synced.pass(SETTLE_MS + 1);
  expect(synced.sync.status().pushing).toBe(1);

  const fd = await mount.open('folder/file', 'r+');
  await mount.write(fd, 0, Buffer.from('SECOND'));
  seen();
  await synced.pass(SETTLE_MS + 1);
  expect(service.bytesOf(file)?.toString()).toBe('theirs');

  await mount.write(fd, 6, Buffer.from(' WHOLE'));
  await mount.close(fd);
  await synced.converge();
  expect(service.bytesOf(file)?.toString()).toBe('SECOND WHOLE');
});

test('a folder that cannot be listed is asked for now and then, not before each push into it', async () => {
  const { mount, service } = synced;
  pass();
  const { listing } = service;
  let asked = 0;
  service.listing = (url) => {
    if (url !== folder) return listing.call(service, url);
    asked += 1;
    throw new ApiError(500, 'listing', 'it does not list this one');
  };
  for (let n = 0; n < 10; n++) {
    await mount.writeFile(`folder/f${n}`, Buffer.from('x'));
    await synced.converge();
  }

  expect(asked).toBeLessThanOrEqual(3);
  expect(service.tree().size).toBe(12);
});
