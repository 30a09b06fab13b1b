import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import { type ResourceUrl, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { RequestRetry } from '../../src/content/request-retry.ts';
import { CloudAttributes } from '../../src/fs/cloud-attributes.ts';
import { ComposedFileSystem } from '../../src/fs/composed-file-system.ts';
import { FileHistory } from '../../src/fs/file-history.ts';
import { TrashBridge } from '../../src/fs/trash-bridge.ts';
import { VersionsDirectory } from '../../src/fs/versions-directory.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';
import { SyncedSide, sourceOf } from '../harness/synced-side.ts';
import { MODEL_ROOT, MODEL_TRASH } from '../sync/model-service.ts';

/** The calls of gvfs and GIO on the trash of a mount, beside the model of the service. */

const UID = 1000;
const TRASH = `.Trash-${UID}`;
const FILES = `${TRASH}/files`;

let synced: SyncedSide;
let mount: InProcessMount;

function mountedBy(uid: number): InProcessMount {
  const { side, service, sync, clock } = synced;
  const { tree, freshness, store, contents, reader, fileSystem: files } = side;
  const shutdown = new AbortController().signal;
  const retry = new RequestRetry({ health: side.health, clock, log: silentLogger, shutdown, readTimeoutMs: 2_000 });
  const source = { ...sourceOf(service), versions: async () => [] };
  const composed = new ComposedFileSystem({
    ...{ files, tree, places: null, showVersions: false, refused: null },
    versions: new VersionsDirectory({
      ...{ tree, freshness, store, contents, reader },
      history: new FileHistory({ source, retry, clock }),
    }),
    attributes: new CloudAttributes({
      ...{ tree, contents, source, retry, desktop: null },
      links: { publicLink: async () => null, setPublicLink: async () => null },
      thumbnails: { thumbnail: async () => null },
      stateOf: (ino) => sync.stateOf(ino),
      pins: { kindOf: () => 'none' },
    }),
    trash: new TrashBridge({ store, tree, files, owner: { uid: UID, gid: UID } }),
  });
  return new InProcessMount(composed, { uid, gid: uid });
}

/** What GIO does before the rename. */
async function prepare(): Promise<void> {
  await mount.mkdir(TRASH, 0o700);
  await mount.mkdir(FILES, 0o700);
  await mount.mkdir(`${TRASH}/info`, 0o700);
}

async function trash(path: string, name = path.split('/').at(-1) as string): Promise<void> {
  const info = `${TRASH}/info/${name}.trashinfo`;
  await mount.writeFile(info, Buffer.alloc(0));
  await mount.writeFile(`${info}.D6W7Y3`, Buffer.from(`[Trash Info]\nPath=${path}\n`));
  await mount.rename(`${info}.D6W7Y3`, info);
  await mount.rename(path, `${FILES}/${name}`);
}

function names(folder: string): Promise<string[]> {
  return mount.readdir(folder).then((entries) => entries.map(({ name }) => name));
}

/** Requests that change the service. */
function changes(): readonly string[] {
  return synced.service.requests.filter((name) => !/^(list|resource|versions|newest|read) /.test(name));
}

beforeEach(async () => {
  synced = await SyncedSide.build();
  mount = mountedBy(UID);
});
afterEach(async () => {
  expect(synced.service.violations).toEqual([]);
  await synced.close();
});

describe('of the service', () => {
  let file: ResourceUrl;
  beforeEach(async () => {
    const folder = synced.service.add('folder', MODEL_ROOT, 'folder');
    file = synced.service.add('file', folder, 'file', Buffer.from('theirs'));
    await mount.readFile('folder/file');
    await prepare();
  });

  /** [S-trash-2] */
  test('a file moves to the trash of the service, and a restore brings the same resource back to its place', async () => {
    await trash('folder/file');
    expect(await names('folder')).toEqual([]);
    expect(await names(FILES)).toEqual(['file']);
    await synced.converge();
    expect(synced.service.look(file)?.parent).toBe(MODEL_TRASH);
    expect(await names(FILES)).toEqual(['file']);
    expect((await mount.readFile(`${FILES}/file`)).toString()).toBe('theirs');

    await mount.rename(`${FILES}/file`, 'folder/file');
    expect((await mount.readFile('folder/file')).toString()).toBe('theirs');
    await synced.converge();

    expect(await names(FILES)).toEqual([]);
    expect(synced.service.tree()).toEqual(
      new Map([
        ['/folder', null],
        ['/folder/file', 'theirs'],
      ]),
    );
    expect(synced.service.tree().size).toBe(2);
    expect(synced.side.tree.nodeOf(file)?.local?.name).toBe('file');
    await synced.side.freshness.refresh();
    expect(await names('folder')).toEqual(['file']);
  });

  test('a file that is restored before its move is pushed causes no request', async () => {
    const before = changes().length;
    await trash('folder/file');
    await mount.rename(`${FILES}/file`, 'folder/file');
    await synced.converge();

    expect(changes().slice(before)).toEqual([]);
    expect(synced.side.tree.nodeOf(file)?.local?.name).toBe('file');
  });

  test('a file that is restored while its move is in flight keeps its resource', async () => {
    await trash('folder/file');
    const { service } = synced;
    service.auto = null;
    await synced.pass(10_000);
    while (!service.pending.some(({ name }) => name.startsWith('trash '))) {
      service.settleAll({ type: 'answer' });
      await synced.pass(0);
    }
    await mount.rename(`${FILES}/file`, 'folder/again');
    service.auto = () => ({ type: 'answer' });
    service.settleAll({ type: 'answer' });
    await synced.converge();

    expect(synced.service.tree()).toEqual(
      new Map([
        ['/folder', null],
        ['/folder/again', 'theirs'],
      ]),
    );
    expect(synced.side.tree.nodeOf(file)?.local?.name).toBe('again');
  });

  /** [S-trash-4] */
  test('a file stays in the trash of the service when the local trash is emptied', async () => {
    await trash('folder/file');
    await synced.converge();
    const before = synced.service.requests.length;
    await mount.mkdir(`${TRASH}/expunged`, 0o700);
    await mount.rename(`${FILES}/file`, `${TRASH}/expunged/1234`);
    await mount.unlink(`${TRASH}/info/file.trashinfo`);
    await mount.unlink(`${TRASH}/expunged/1234`);
    await synced.converge();

    expect(synced.service.look(file)?.parent).toBe(MODEL_TRASH);
    expect(synced.service.requests.slice(before)).toEqual([]);
    expect(synced.side.tree.nodeOf(file)).toBeUndefined();
  });

  test('a file goes to the trash of the service if the local trash is emptied before the push', async () => {
    await trash('folder/file');
    await mount.unlink(`${FILES}/file`);
    await synced.converge();

    expect(synced.service.look(file)?.parent).toBe(MODEL_TRASH);
    expect(synced.service.tree()).toEqual(new Map([['/folder', null]]));
  });

  /** [S-trash-5] */
  test('a trashed file that was saved elsewhere since the last listing comes back', async () => {
    await trash('folder/file');
    synced.service.addVersion(file, Buffer.from('saved since'));
    await synced.converge();
    await synced.side.freshness.refresh();

    expect(await names(FILES)).toEqual([]);
    expect((await mount.readFile('folder/file')).toString()).toBe('saved since');
    expect(synced.service.look(file)?.parent).not.toBe(MODEL_TRASH);
  });

  /** [S-trash-4] */
  test('a file that is gone from the trash of the service is restored as a new file', async () => {
    await trash('folder/file');
    await synced.converge();
    await synced.service.deleteForever(file, 'file', new AbortController().signal);
    await mount.rename(`${FILES}/file`, 'folder/file');
    await synced.converge();

    expect(synced.service.tree()).toEqual(
      new Map([
        ['/folder', null],
        ['/folder/file', 'theirs'],
      ]),
    );
  });

  test('a new file of the same name takes nothing over from the deleted one', async () => {
    await trash('folder/file');
    await mount.writeFile('folder/file', Buffer.from('new'));
    await synced.converge();

    expect(synced.service.look(file)?.parent).toBe(MODEL_TRASH);
    expect(synced.service.tree()).toEqual(
      new Map([
        ['/folder', null],
        ['/folder/file', 'new'],
      ]),
    );
    expect((await mount.readFile(`${FILES}/file`)).toString()).toBe('theirs');
  });

  test('the trash never replaces an entry', async () => {
    await trash('folder/file');
    await mount.writeFile('folder/file', Buffer.from('new'));
    await expect(mount.rename('folder/file', `${FILES}/file`)).rejects.toMatchObject({ errno: 'EEXIST' });
  });
});

describe('with entries', () => {
  /** [S-trash-2] */
  test('a folder moves to the trash of the service as one resource, and comes back with everything in it', async () => {
    const folder = synced.service.add('folder', MODEL_ROOT, 'folder');
    const inner = synced.service.add('folder', folder, 'inner');
    synced.service.add('file', inner, 'file', Buffer.from('theirs'));
    await mount.readFile('folder/inner/file');
    await prepare();
    const before = changes().length;
    await trash('folder');
    await synced.converge();
    expect(changes().slice(before)).toEqual(['trash folder']);
    expect(synced.service.tree()).toEqual(new Map());

    const listed = synced.service.requests.length;
    synced.clock.advance(10 * 60_000);
    expect(await names(`${FILES}/folder/inner`)).toEqual(['file']);
    await synced.pass(60_000);
    await synced.side.freshness.refresh();
    expect(synced.service.requests.slice(listed).filter((name) => name !== `list ${MODEL_ROOT}`)).toEqual([]);

    await mount.rename(`${FILES}/folder`, 'folder');
    await synced.converge();
    expect([...synced.service.tree().keys()]).toEqual(['/folder', '/folder/inner', '/folder/inner/file']);
    expect(synced.side.tree.nodeOf(inner)?.local?.name).toBe('inner');
  });

  /** [S-trash-3] */
  test('a folder that was never listed is deleted and emptied without a listing', async () => {
    const folder = synced.service.add('folder', MODEL_ROOT, 'folder');
    synced.service.add('file', folder, 'file', Buffer.from('theirs'));
    await mount.readdir('');
    await prepare();
    await trash('folder');
    await synced.converge();
    expect(synced.service.requests).not.toContain(`list ${folder}`);
    expect(await names(`${FILES}/folder`)).toEqual([]);
    await mount.rmdir(`${FILES}/folder`);
    await synced.converge();

    expect(synced.service.look(folder)?.parent).toBe(MODEL_TRASH);
    expect(synced.service.requests).not.toContain(`list ${folder}`);
  });

  /** [S-trash-2] */
  test('a folder with files that were never pushed is not uploaded from the trash, and is pushed after a restore', async () => {
    await prepare();
    await mount.mkdir('new');
    await mount.writeFile('new/file', Buffer.from('ours'));
    await mount.writeFile('new/.~lock.file#', Buffer.from('lock'));
    const before = changes().length;
    await trash('new');
    await synced.converge();
    expect(changes().slice(before)).toEqual([]);
    expect(synced.sync.status().pending).toBe(0);
    expect((await mount.readFile(`${FILES}/new/file`)).toString()).toBe('ours');

    await mount.rename(`${FILES}/new`, 'new');
    await synced.converge();
    expect(synced.service.tree()).toEqual(
      new Map([
        ['/new', null],
        ['/new/file', 'ours'],
      ]),
    );
    expect(await names('new')).toEqual(['.~lock.file#', 'file']);
  });
});

/** [S-trash-2] */
test('nothing in the trash is ever uploaded', async () => {
  await prepare();
  await mount.writeFile('file', Buffer.from('ours'));
  await trash('file');
  await mount.writeFile(`${FILES}/stray`, Buffer.from('stray'));
  await mount.mkdir(`${FILES}/folder`);
  await synced.converge();

  expect(synced.service.tree()).toEqual(new Map());
  expect(changes()).toEqual([]);
  expect(await names(FILES)).toEqual(['file', 'folder', 'stray']);
});

/** [S-trash-2] */
test('the trash exists for the user who mounted alone, and is in no listing', async () => {
  const other = mountedBy(UID + 1);
  await expect(other.mkdir(TRASH)).rejects.toMatchObject({ errno: 'EPERM' });
  await expect(other.mkdir(`.Trash-${UID + 1}`)).rejects.toMatchObject({ errno: 'EPERM' });
  await expect(mount.mkdir('.Trash-1')).rejects.toMatchObject({ errno: 'EPERM' });
  await expect(mount.stat(TRASH)).rejects.toMatchObject({ errno: 'ENOENT' });
  await prepare();
  await expect(mount.mkdir(TRASH)).rejects.toMatchObject({ errno: 'EEXIST' });

  expect(await mount.stat(TRASH)).toMatchObject({ kind: 'folder', mode: 0o700, uid: UID, gid: UID });
  expect(await names('')).toEqual([]);
  expect(synced.side.store.get('name', [ROOT_INODE, TRASH])).toBeUndefined();
});

/** [S-trash-3] */
test('a folder of that name on the service is shown in its place', async () => {
  const theirs = synced.service.add('folder', MODEL_ROOT, TRASH);
  synced.service.add('file', theirs, 'file', Buffer.from('theirs'));
  await mount.readdir('');

  expect(await names('')).toEqual([TRASH]);
  expect((await mount.readFile(`${TRASH}/file`)).toString()).toBe('theirs');
});

test('the trash is the same after a restart', async () => {
  synced.service.add('file', MODEL_ROOT, 'file', Buffer.from('theirs'));
  await mount.readFile('file');
  await prepare();
  await trash('file');
  await synced.converge();
  await synced.close('keep');
  synced = await SyncedSide.build({ left: synced });
  mount = mountedBy(UID);

  expect(await names(FILES)).toEqual(['file']);
  await mount.rename(`${FILES}/file`, 'file');
  await synced.converge();
  expect(synced.service.tree()).toEqual(new Map([['/file', 'theirs']]));
});

describe('with --empty-trash service', () => {
  let file: ResourceUrl;
  let folder: ResourceUrl;
  let other: ResourceUrl;

  beforeEach(async () => {
    await synced.close();
    synced = await SyncedSide.build({ emptyTrash: 'service' });
    mount = mountedBy(UID);
    other = synced.service.add('folder', MODEL_ROOT, 'other');
    folder = synced.service.add('folder', MODEL_ROOT, 'folder');
    file = synced.service.add('file', folder, 'file', Buffer.from('theirs'));
    synced.service.add('file', synced.service.add('folder', folder, 'unlisted'), 'unseen', Buffer.from('unseen'));
    await mount.readFile('folder/file');
    await mount.readdir('other');
    await prepare();
    await mount.mkdir(`${TRASH}/expunged`, 0o700);
  });

  /** As gvfs: the entry goes to `expunged`, and is deleted there with everything in it. */
  async function empty(name: string, entries: readonly string[] = []): Promise<void> {
    await mount.rename(`${FILES}/${name}`, `${TRASH}/expunged/1234`);
    await mount.unlink(`${TRASH}/info/${name}.trashinfo`);
    for (const entry of entries) {
      if ((await mount.stat(`${TRASH}/expunged/1234/${entry}`)).kind === 'folder')
        await mount.rmdir(`${TRASH}/expunged/1234/${entry}`);
      else await mount.unlink(`${TRASH}/expunged/1234/${entry}`);
    }
    if (entries.length > 0) await mount.rmdir(`${TRASH}/expunged/1234`);
    else await mount.unlink(`${TRASH}/expunged/1234`);
  }

  /** [S-trash-6] */
  test('emptying the local trash deletes a file permanently, also after a restart without the service', async () => {
    await trash('folder/file');
    await synced.converge();
    expect(synced.service.look(file)?.parent).toBe(MODEL_TRASH);
    await empty('file');
    await mount.rmdir(`${TRASH}/expunged`);
    await synced.close('keep');
    synced = await SyncedSide.build({ left: synced, emptyTrash: 'service' });
    mount = mountedBy(UID);
    expect(synced.sync.status().pending).toBe(1);
    await synced.converge();

    expect(synced.service.look(file)).toBeNull();
    expect(synced.sync.status().pending).toBe(0);
    expect([...synced.service.tree().keys()].sort()).toEqual([
      '/folder',
      '/folder/unlisted',
      '/folder/unlisted/unseen',
      '/other',
    ]);
  });

  /** [S-trash-6] */
  test('a folder is deleted permanently with everything in it, and nothing is orphaned', async () => {
    await trash('folder');
    await synced.converge();
    await empty('folder', ['file', 'unlisted']);
    await synced.converge();

    expect([...synced.service.resources.keys()].sort()).toEqual([MODEL_ROOT, MODEL_TRASH, other].sort());
  });

  /** [S-trash-6] */
  test.each(['before the deletion', 'during the deletion'])(
    'a folder that was restored elsewhere %s stays, and is shown again',
    async (when) => {
      const { service } = synced;
      await trash('folder');
      await synced.converge();
      await empty('folder', ['file', 'unlisted']);
      const restore = (): void => {
        (service.resources.get(folder) as { parent: ResourceUrl }).parent = other;
      };
      if (when === 'before the deletion') restore();
      else {
        const { deleteForever } = service;
        let deleted = 0;
        service.deleteForever = async (...call) => {
          await deleteForever.call(service, ...call);
          if (deleted++ === 0) restore();
        };
      }
      await synced.converge();
      await synced.side.freshness.refresh();
      synced.clock.advance(10 * 60_000);

      expect(service.look(folder)?.parent).toBe(other);
      expect(service.childrenOf(folder)).not.toEqual([]);
      expect(await names('other')).toEqual(['folder']);
      expect(synced.sync.status().pending).toBe(0);
    },
  );

  /** [S-trash-6] */
  test('a file that was restored elsewhere before the deletion stays, and is shown again', async () => {
    await trash('folder/file');
    await synced.converge();
    await empty('file');
    (synced.service.resources.get(file) as { parent: ResourceUrl }).parent = other;
    await synced.converge();
    synced.clock.advance(40_000);

    expect(await names('other')).toEqual(['file']);
    expect((await mount.readFile('other/file')).toString()).toBe('theirs');
  });

  test('a conflicted copy gets its bytes before the file whose version they are is deleted permanently', async () => {
    const { service } = synced;
    service.addVersion(file, Buffer.from('of others'));
    await mount.writeFile('folder/file', Buffer.from('ours'));
    // The copy is not sent for some time.
    service.auto = (name) => ({
      type: /^(create|copy)/.test(name) && !name.includes(file) ? 'lose-request' : 'answer',
    });
    for (let round = 0; round < 3; round++) await synced.pass(3_000);
    expect((await names('folder')).length).toBe(3);
    await trash('folder/file');
    for (let round = 0; round < 3; round++) await synced.pass(3_000);
    expect(service.look(file)?.parent).toBe(MODEL_TRASH);
    await empty('file');
    for (let round = 0; round < 3; round++) await synced.pass(3_000);
    expect(service.look(file)).not.toBeNull();
    service.auto = () => ({ type: 'answer' });
    await synced.converge();

    expect(service.look(file)).toBeNull();
    expect([...service.tree().values()]).toContain('of others');
  });

  /** [S-trash-6] */
  test('a listing that shows a restored file before its permanent deletion shows it here again', async () => {
    await trash('folder/file');
    await synced.converge();
    await empty('file');
    (synced.service.resources.get(file) as { parent: ResourceUrl }).parent = other;
    await synced.side.freshness.refresh();
    synced.clock.advance(40_000);
    expect(await names('other')).toEqual(['file']);
    await synced.converge();

    expect(synced.service.look(file)?.parent).toBe(other);
    expect(await names('other')).toEqual(['file']);
    expect((await mount.readFile('other/file')).toString()).toBe('theirs');
  });

  /** [S-trash-6] */
  test('an entry whose move to the trash was not pushed stays in the trash of the service', async () => {
    await trash('folder/file');
    await mount.unlink(`${FILES}/file`);
    await synced.converge();
    expect(synced.service.look(file)?.parent).toBe(MODEL_TRASH);
  });

  test('a permanent deletion whose response is lost is repeated until the resource is gone', async () => {
    const { service } = synced;
    await trash('folder/file');
    await synced.converge();
    await empty('file');
    let lost = 0;
    service.auto = (name) => {
      if (!name.startsWith('delete ') || lost >= 3) return { type: 'answer' };
      return { type: ++lost < 3 ? 'lose-request' : 'lose-reply' };
    };
    await synced.converge();
    expect(lost).toBe(3);
    expect(service.look(file)).toBeNull();
    expect(synced.sync.status().pending).toBe(0);
  });

  test('a new file of the emptied name takes nothing over, and is not the save of a deleted one', async () => {
    await trash('folder/file');
    await synced.converge();
    await empty('file');
    await mount.writeFile('folder/file', Buffer.from('new'));
    await trash('folder/file');
    await synced.converge();
    await mount.rename(`${FILES}/file`, 'folder/file');
    await synced.converge();

    expect(synced.service.look(file)).toBeNull();
    expect(synced.service.tree().get('/folder/file')).toBe('new');
  });
});
