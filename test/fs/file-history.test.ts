import fc from 'fast-check';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import type { RemoteVersion } from '../../src/base/resources.ts';
import { ServiceHealth } from '../../src/base/service-health.ts';
import type { Inode, VersionUrl } from '../../src/base/vocabulary.ts';
import { RequestRetry } from '../../src/content/request-retry.ts';
import { CloudAttributes } from '../../src/fs/cloud-attributes.ts';
import { ComposedFileSystem } from '../../src/fs/composed-file-system.ts';
import { FileHistory, named } from '../../src/fs/file-history.ts';
import { VersionsDirectory } from '../../src/fs/versions-directory.ts';
import { VersionService } from '../content/version-service.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';
import { sampleRemote } from '../store/sample-records.ts';
import { ManualClock } from '../tree/tree-fixture.ts';

let clock: ManualClock;
let service: VersionService;
let side: FileSystemSide;
let mount: InProcessMount;

beforeEach(async () => {
  clock = new ManualClock();
  service = new VersionService();
  side = await FileSystemSide.build({ clock, listing: service, source: service });
  const { tree, freshness, store, contents, reader, fileSystem: files } = side;
  const shutdown = new AbortController().signal;
  const retry = new RequestRetry({ health: side.health, clock, log: silentLogger, shutdown, readTimeoutMs: 2_000 });
  const history = new FileHistory({ source: service, retry, clock });
  const versions = new VersionsDirectory({ tree, freshness, history, store, contents, reader });
  const links = { publicLink: async () => null, setPublicLink: async () => null };
  const attributes = new CloudAttributes({
    ...{ tree, contents, source: service, links, retry },
    thumbnails: { thumbnail: async () => null },
    desktop: null,
    stateOf: () => 'clean',
    pins: { kindOf: () => 'none' },
  });
  mount = new InProcessMount(
    new ComposedFileSystem({
      files,
      versions,
      attributes,
      tree,
      places: null,
      showVersions: true,
      refused: null,
      trash: null,
    }),
  );
});

afterEach(() => side.close());

test('versions of one second have names of their own, and a new one renames none', () => {
  const second = fc.integer({ min: 0, max: 4 });
  fc.assert(
    fc.property(fc.array(fc.option(second), { maxLength: 12 }), (seconds) => {
      const oldestFirst = seconds.map((at, nth): RemoteVersion => {
        const lastModifiedMs = at === null ? null : 1_795_000_000_000 + at * 1_000 + nth;
        return { url: `v${nth}` as VersionUrl, sizeBytes: 1, complete: true, lastModifiedMs, mediaType: null };
      });
      const names = named([...oldestFirst].reverse()).map(({ name }) => name);

      expect(new Set(names).size).toBe(names.length);
      expect(names.slice(1)).toEqual(named(oldestFirst.slice(0, -1).reverse()).map(({ name }) => name));
    }),
  );
});

test('a history is asked for once for a listing and the lookups after it, and again when it has aged', async () => {
  service.put('file', Buffer.from('old'), 1_795_000_000_000);
  service.put('file', Buffer.from('newer'), 1_795_000_001_000);

  const names = (await mount.readdir('.versions/file')).map(({ name }) => name);

  expect(names).toEqual(['2026-11-18T11.06.41Z', '2026-11-18T11.06.40Z']);
  for (const name of names) await mount.stat(`.versions/file/${name}`);
  expect(service.histories).toBe(1);
  clock.advance(6_000);
  await mount.readdir('.versions/file');
  expect(service.histories).toBe(2);
});

test('histories that have aged are dropped at the next request', async () => {
  const shutdown = new AbortController().signal;
  const retry = new RequestRetry({
    health: new ServiceHealth({ clock }),
    clock,
    log: silentLogger,
    shutdown,
    readTimeoutMs: 2_000,
  });
  const history = new FileHistory({ source: { versions: async () => [] }, retry, clock });
  for (let ino = 2; ino < 22; ino++) await history.versions(ino as Inode, sampleRemote(1, `${ino}`));
  expect(history.remembered).toBe(20);
  clock.advance(6_000);
  await history.versions(22 as Inode, sampleRemote(1, '22'));

  expect(history.remembered).toBe(1);
});

test('a version is read through the block cache, and leaves nothing in the store when it is closed', async () => {
  const bytes = Buffer.alloc(300_000, 'an old version ');
  service.put('file', bytes, 1_795_000_000_000);
  service.put('file', Buffer.from('new'), 1_795_000_001_000);
  await mount.stat('file');
  const nodes = [...side.store.all('node')].length;

  const old = '.versions/file/2026-11-18T11.06.40Z';
  expect(Buffer.compare(await mount.readFile(old), bytes)).toBe(0);

  expect([...side.store.all('node')].length).toBe(nodes);
  side.contents.collect();
  expect([...side.store.all('content')]).toEqual([]);
  expect(mount.lookups).toBe(0);
  expect(mount.openHandles).toBe(0);
});

test('the version that a file has is not fetched twice', async () => {
  service.put('file', Buffer.alloc(300_000, 'once '), 1_795_000_000_000);
  await mount.readFile('file');
  const fetched = service.fetches.length;

  await mount.readFile('.versions/file/2026-11-18T11.06.40Z');

  expect(service.fetches.length).toBe(fetched);
});

test('a version that the service has dropped meanwhile is ESTALE', async () => {
  const { version } = service.put('file', Buffer.alloc(300_000), 1_795_000_000_000);
  service.put('file', Buffer.from('new'), 1_795_000_001_000);
  await mount.readdir('.versions/file');
  service.dropVersion(version);

  await expect(mount.readFile('.versions/file/2026-11-18T11.06.40Z')).rejects.toMatchObject({ errno: 'ESTALE' });
});

test('what lives here alone, and what is no file, has no place in .versions', async () => {
  service.put('file', Buffer.from('one'));
  await mount.writeFile('new.txt', Buffer.from('not there yet'));
  await mount.symlink('file', 'link');
  await mount.mkdir('folder');

  expect((await mount.readdir('.versions')).map(({ name }) => name)).toEqual(['file', 'folder']);
  await expect(mount.stat('.versions/new.txt')).rejects.toMatchObject({ errno: 'ENOENT' });
  expect((await mount.readdir('')).map(({ name }) => name)).toContain('.versions');
});
