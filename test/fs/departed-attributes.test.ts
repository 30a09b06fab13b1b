import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import { type Inode, type ResourceUrl, ROOT_INODE, timespecOfMs } from '../../src/base/vocabulary.ts';
import { PinnedSet } from '../../src/fs/pinned-set.ts';
import { Pins } from '../../src/fs/pins.ts';
import { DEPARTED_KEPT_MS, DEPARTED_WEIGHT_MAX, keepDeparted } from '../../src/store/departed-attributes.ts';
import { SyncedSide } from '../harness/synced-side.ts';
import { sampleLocal, sampleNode, sampleRemote } from '../store/sample-records.ts';
import { MODEL_ROOT } from '../sync/model-service.ts';
import { checkStore } from '../tree/tree-fixture.ts';

/** A folder that is gone on the service for a while: what was set here on it, and on what lies in it. */

let synced: SyncedSide;
let pins: Pins;
let folder: ResourceUrl;
let file: ResourceUrl;
const never = new AbortController().signal;
const TIME = { sec: 1_234_567_890, nsec: 123_456_789 };

function pinsOf({ side, clock }: SyncedSide): Pins {
  const { store, tree, freshness, reader, changes, fileSystem } = side;
  return new Pins({
    ...{ store, tree, freshness, reader, changes, clock, files: fileSystem.files, pinned: new PinnedSet(store) },
    ...{ log: silentLogger, shutdown: never, roundMs: 60_000 },
  });
}

beforeEach(async () => {
  synced = await SyncedSide.build();
  pins = pinsOf(synced);
  const { service, mount, side } = synced;
  folder = service.add('folder', MODEL_ROOT, 'folder');
  const deep = service.add('folder', folder, 'deep');
  file = service.add('file', deep, 'file', Buffer.from('bytes'));
  service.add('file', deep, 'plain', Buffer.from('plain'));
  await side.freshness.refresh();
  for (const path of ['folder/deep/file', 'folder/deep/plain']) await mount.readFile(path);
  await mount.chmod('folder', 0o700);
  await mount.chmod('folder/deep/file', 0o751);
  await mount.setxattr('folder/deep/file', 'user.tag', Buffer.from('red'));
  await mount.utimes('folder/deep/file', TIME, TIME);
  pins.pin(inoOf(file));
  await synced.converge();
});
afterEach(() => synced.close());

function inoOf(resource: ResourceUrl): Inode {
  return synced.side.store.get('resource', resource) as Inode;
}

async function goes(): Promise<void> {
  await synced.service.moveToTrash(folder, 'folder', 'folder', never);
  await synced.side.freshness.refresh();
  expect(await synced.mount.readdir('')).toEqual([]);
}

async function comesBack(): Promise<void> {
  const back = synced.service.resources.get(folder);
  if (back !== undefined) back.parent = MODEL_ROOT;
  const { side, mount } = synced;
  await side.freshness.refresh();
  await mount.readdir('folder');
  await mount.readdir('folder/deep');
}

async function restarts(): Promise<void> {
  const left = synced;
  await left.close('keep');
  synced = await SyncedSide.build({ left });
  pins = pinsOf(synced);
}

function localOf(resource: ResourceUrl) {
  return synced.side.store.get('node', inoOf(resource))?.local;
}

const kept = () => [...synced.side.store.all('departed')];

describe('attributes of a folder that was removed elsewhere', () => {
  test.each([false, true])(
    'the attributes of a removed folder come back when its address is listed again (restart in between: %s)',
    async (isRestarted) => {
      await goes();
      // Nothing is kept of a file on which nothing was set.
      expect(kept()).toHaveLength(3);
      if (isRestarted) await restarts();
      await comesBack();

      expect(localOf(folder)).toMatchObject({ mode: 0o700 });
      expect(localOf(file)).toMatchObject({ mode: 0o751, mtime: TIME, atime: TIME });
      expect(Buffer.from(await synced.mount.getxattr('folder/deep/file', 'user.tag')).toString()).toBe('red');
      expect(pins.states.map(({ ino }) => ino)).toEqual([inoOf(file)]);
      expect(pinsOf(synced).states.map(({ ino }) => ino)).toEqual([inoOf(file)]);
      expect(kept()).toEqual([]);
      checkStore(synced.side.store, 'by others too');
    },
  );

  test('the attributes of a removed file with other bytes come back without the times', async () => {
    await goes();
    synced.service.addVersion(file, Buffer.from('other bytes'));
    await comesBack();
    expect(localOf(file)).toMatchObject({ mode: 0o751 });
    expect(localOf(file)?.mtime).not.toEqual(TIME);
  });

  test('the attributes of a removed node are forgotten after 30 days', async () => {
    await goes();
    synced.clock.advance(DEPARTED_KEPT_MS);
    await comesBack();
    expect(localOf(file)).toMatchObject({ mode: 0o644, xattrs: null });
    expect(pins.states).toEqual([]);
    expect(kept()).toEqual([]);
  });

  test('leave the store with the first start after 30 days', async () => {
    await goes();
    synced.clock.advance(DEPARTED_KEPT_MS - 1);
    await restarts();
    expect(kept()).toHaveLength(3);
    synced.clock.advance(1);
    await restarts();
    expect(kept()).toEqual([]);
    checkStore(synced.side.store, 'by others too');
  });

  test('the attributes of a file are kept if its push finds that the service no longer has it', async () => {
    const { service, mount, side } = synced;
    const resource = service.resources.get(file);
    if (resource === undefined) throw new Error('the file is not there');
    await mount.rename('folder/deep/file', 'folder/deep/renamed');
    service.resources.delete(file);
    await synced.converge();
    expect(kept().map(([url]) => url)).toEqual([file]);

    service.resources.set(file, resource);
    await side.freshness.refresh(inoOf(resource.parent as ResourceUrl));
    expect(localOf(file)).toMatchObject({ name: 'file', mode: 0o751, mtime: TIME });
    checkStore(side.store, 'by others too');
  });

  test('the attributes of a node that was removed here are not kept', async () => {
    const { mount } = synced;
    for (const name of ['file', 'plain']) await mount.unlink(`folder/deep/${name}`);
    await mount.rmdir('folder/deep');
    await mount.rmdir('folder');
    await synced.converge();
    expect(kept()).toEqual([]);
    await comesBack();
    expect(localOf(folder)).toMatchObject({ mode: 0o755 });
  });

  test('the kept attributes are limited: the oldest are removed first', () => {
    const { store } = synced.side;
    const nodeOf = (ino: number, xattrs: Record<string, Uint8Array> | null = null) =>
      sampleNode(ino, {
        local: sampleLocal(ROOT_INODE, `${ino}`, { xattrs }),
        remote: sampleRemote(ROOT_INODE, `${ino}`),
      });
    const first = 1_000;
    store.transact((tx) => {
      keepDeparted(tx, [nodeOf(first)], 1);
      const others = Array.from({ length: DEPARTED_WEIGHT_MAX - 1 }, (_, at) => nodeOf(first + 1 + at));
      keepDeparted(tx, others, 2);
    });
    expect(kept()).toHaveLength(DEPARTED_WEIGHT_MAX);
    const long = nodeOf(1, { 'user.long': new Uint8Array(250 * 1024) });
    store.transact((tx) => keepDeparted(tx, [long], 3));
    expect(kept().length).toBeLessThan(DEPARTED_WEIGHT_MAX);
    expect(store.get('departed', sampleRemote(1, `${first}`).resource)).toBeUndefined();
    expect(store.get('departed', sampleRemote(1, '1').resource)?.xattrs).toEqual(long.local?.xattrs);
    checkStore(store, 'by others too');
  });

  test('a folder by another address has none of them', async () => {
    await goes();
    const other = synced.service.add('folder', MODEL_ROOT, 'folder');
    await synced.side.freshness.refresh();
    expect(localOf(other)).toMatchObject({ mode: 0o755 });
    expect(kept()).toHaveLength(3);
  });
});

test('the time of a file that nobody set is the service’s', async () => {
  await goes();
  await comesBack();
  const plain = [...synced.service.resources.values()].find(({ name }) => name === 'plain');
  const toldMs = plain?.versions[0]?.lastModifiedMs ?? 0;
  expect(localOf(plain?.url as ResourceUrl)?.mtime).toEqual(timespecOfMs(toldMs));
});
