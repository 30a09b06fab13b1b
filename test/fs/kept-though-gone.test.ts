import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type ResourceUrl, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { localFolders } from '../../src/tree/local-folders.ts';
import { SyncedSide } from '../harness/synced-side.ts';
import { MODEL_ROOT } from '../sync/model-service.ts';
import { checkStore } from '../tree/tree-fixture.ts';

/**
 * A folder that is known to be in the trash, and is kept here: somebody reads in it, or so much would go that a person is to say so. What is
 * saved in it would be taken by the service, and would then go with the rest.
 */

let synced: SyncedSide;
beforeEach(async () => {
  synced = await SyncedSide.build();
});
afterEach(() => synced.close());

const never = new AbortController().signal;

async function heard(): Promise<void> {
  await synced.pass(60_000);
  await synced.side.freshness.refresh();
  await synced.converge();
  await synced.side.freshness.refresh();
}

async function bothHave(path: string, text: string): Promise<void> {
  expect.soft(synced.service.violations).toEqual([]);
  expect.soft(synced.service.tree().get(`/${path}`)).toBe(text);
  expect((await synced.mount.readFile(path)).toString()).toBe(text);
}

describe('where something in it is open for reading', () => {
  let folder: ResourceUrl;
  let reader: number;
  beforeEach(async () => {
    const { service, side, mount } = synced;
    folder = service.add('folder', MODEL_ROOT, 'folder');
    const deep = service.add('folder', folder, 'deep');
    service.add('file', folder, 'read', Buffer.from('read'));
    service.add('file', folder, 'edited', Buffer.from('theirs'));
    service.add('file', deep, 'below', Buffer.from('theirs'));
    await side.freshness.refresh();
    for (const path of ['folder/read', 'folder/edited', 'folder/deep/below']) await mount.readFile(path);
    reader = await mount.open('folder/read', 'r');
    await mount.read(reader, 0, 1);
    await service.moveToTrash(folder, 'folder', 'folder', never);
    await side.freshness.refresh(); // heard of it, long before the save
  });

  test.each(['folder/edited', 'folder/new', 'folder/deep/below'])(
    'a save in a trashed folder that has an open file recreates the saved file (%s)',
    async (path) => {
      const { mount, service, side } = synced;
      await mount.writeFile(path, Buffer.from('ours'));
      await synced.converge();
      await mount.close(reader);
      await heard();

      await bothHave(path, 'ours');
      expect([...service.tree().values()].filter((text) => text !== null)).toEqual(['ours']);
      checkStore(side.store, 'by others too');
    },
  );

  test('a later save in a trashed folder that has an open file recreates that file too', async () => {
    const { mount } = synced;
    await mount.writeFile('folder/new', Buffer.from('new'));
    await synced.converge();
    await mount.writeFile('folder/edited', Buffer.from('ours'));
    await mount.writeFile('folder/deep/below', Buffer.from('ours, too'));
    await synced.converge();
    await mount.close(reader);
    await heard();

    await bothHave('folder/edited', 'ours');
    await bothHave('folder/deep/below', 'ours, too');
  });

  test('nothing is made anew for one who only reads, and all of it goes when nobody does', async () => {
    const { mount, service, side } = synced;
    await heard();
    expect((await mount.readdir('folder')).map(({ name }) => name).toSorted()).toEqual(['deep', 'edited', 'read']);
    await mount.close(reader);
    await heard();

    expect(await mount.readdir('')).toEqual([]);
    expect([...service.tree().keys()]).toEqual([]);
    expect([...side.store.all('dirty')]).toEqual([]);
  });

  test('what is moved into it, and what lies in that, stays the file that it was', async () => {
    const { mount, service, side } = synced;
    const moved = service.add('folder', MODEL_ROOT, 'moved');
    const inside = service.add('file', moved, 'inside', Buffer.from('old'));
    await side.freshness.refresh();
    await mount.readFile('moved/inside');
    await mount.rename('moved', 'folder/moved');
    await mount.writeFile('folder/moved/inside', Buffer.from('ours'));
    await synced.converge();

    await bothHave('folder/moved/inside', 'ours');
    expect(service.history(inside).map(({ sizeBytes }) => sizeBytes)).toEqual([4, 3]);
    await mount.close(reader);
  });

  test('a folder that comes out of the trash again is pushed into as before', async () => {
    const { mount, service, side } = synced;
    await service.relocate(folder, 'folder', MODEL_ROOT, 'folder', never);
    await mount.writeFile('folder/edited', Buffer.from('ours'));
    await synced.converge();

    expect(service.childrenOf(MODEL_ROOT).map(({ url }) => url)).toEqual([folder]);
    await bothHave('folder/edited', 'ours');
    expect(side.tree.gone.has(side.tree.child(ROOT_INODE, 'folder')?.ino ?? ROOT_INODE)).toBe(false);
    await mount.close(reader);
  });
});

describe.each(['a folder of 150 files', '150 folders'])('where the removal of %s waits for a person', (what) => {
  beforeEach(async () => {
    const { mount, service, side } = synced;
    const count = what === '150 folders' ? 150 : 1;
    const folders = Array.from({ length: count }, (_, n) => service.add('folder', MODEL_ROOT, `d${n}`));
    const [first = MODEL_ROOT] = folders;
    for (let n = 0; n < 150; n++) service.add('file', first, `f${n}`, Buffer.from('x'));
    await side.freshness.refresh();
    await mount.readdir('d0');
    // A single folder in the trash is believed, however much lies in it; one that is nowhere is not.
    for (const each of folders) {
      if (count > 1) await service.moveToTrash(each, 'folder', 'd', never);
      else for (const { url } of [...service.childrenOf(each), { url: each }]) service.resources.delete(url);
    }
    await side.freshness.refresh();
    expect(side.freshness.heldRemovals).toHaveLength(1);
  });

  test('a save in a folder whose removal waits for a person is never pushed into the trash', async () => {
    const { mount, service, side } = synced;
    await mount.writeFile('d0/f7', Buffer.from('ours'));
    await mount.writeFile('d0/new', Buffer.from('ours, too'));
    await synced.converge();
    await mount.writeFile('d0/f8', Buffer.from('later'));
    await synced.converge();
    await side.freshness.refresh(undefined, { accept: true });
    await synced.converge();
    await side.freshness.refresh(undefined, { accept: true });

    await bothHave('d0/f7', 'ours');
    await bothHave('d0/new', 'ours, too');
    await bothHave('d0/f8', 'later');
    expect([...service.tree().keys()].toSorted()).toEqual(['/d0', '/d0/f7', '/d0/f8', '/d0/new']);
    expect((await mount.readdir('')).map(({ name }) => name)).toEqual(['d0']);
    expect((await mount.readdir('d0')).map(({ name }) => name).toSorted()).toEqual(['f7', 'f8', 'new']);
  });
});

test('a file that is kept although its folder was trashed elsewhere keeps its swap file', async () => {
  const { mount, service, side } = synced;
  const folder = service.add('folder', MODEL_ROOT, 'folder');
  service.add('file', folder, 'doc', Buffer.from('theirs'));
  await side.freshness.refresh();
  await mount.readFile('folder/doc');
  await mount.writeFile('folder/.doc.swp', Buffer.from('what vim would recover'));
  await mount.writeFile('folder/doc', Buffer.from('ours'));
  await service.moveToTrash(folder, 'folder', 'folder', never);
  await side.freshness.refresh();
  await synced.converge();

  await bothHave('folder/doc', 'ours');
  expect((await mount.readdir('folder')).map(({ name }) => name).toSorted()).toEqual(['.doc.swp', 'doc']);
  expect((await mount.readFile('folder/.doc.swp')).toString()).toBe('what vim would recover');
});

describe('files that stay local, in a folder that was trashed elsewhere', () => {
  beforeEach(async () => {
    const { service, side, mount } = synced;
    const folder = service.add('folder', MODEL_ROOT, 'folder');
    service.add('file', service.add('folder', folder, 'deep'), 'doc', Buffer.from('theirs'));
    await side.freshness.refresh();
    await mount.readFile('folder/deep/doc');
    await mount.writeFile('folder/.DS_Store', Buffer.from('litter'));
  });
  const trash = async () => {
    const [{ url } = { url: MODEL_ROOT }] = synced.service.childrenOf(MODEL_ROOT);
    await synced.service.moveToTrash(url, 'folder', 'folder', never);
    await synced.side.freshness.refresh();
    await synced.converge();
  };

  test('short local-only files of a built-in pattern are removed with their trashed folder', async () => {
    await trash();
    expect(await synced.mount.readdir('')).toEqual([]);
  });

  test('long local-only files keep their trashed folder as a local-only folder', async () => {
    const { mount, side, service } = synced;
    const long = Buffer.alloc(65 * 1024, 'text that vim would recover');
    await mount.writeFile('folder/deep/.doc.swp', long);
    await trash();

    expect((await mount.readdir('folder/deep')).map(({ name }) => name)).toEqual(['.doc.swp']);
    expect(await mount.readFile('folder/deep/.doc.swp')).toEqual(long);
    expect((await mount.readdir('folder')).map(({ name }) => name)).toEqual(['deep']);
    expect([...service.tree().keys()]).toEqual([]);
    expect(
      localFolders(side.store)
        .map((ino) => side.tree.node(ino)?.local?.name)
        .toSorted(),
    ).toEqual(['deep', 'folder']);
    checkStore(side.store, 'by others too');

    await mount.unlink('folder/deep/.doc.swp');
    await mount.rmdir('folder/deep');
    await mount.rmdir('folder');
    expect(localFolders(side.store)).toEqual([]);
  });
});
