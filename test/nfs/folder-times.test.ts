import { afterEach, describe, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { ListingPage } from '../../src/base/resources.ts';
import { type Inode, type ResourceUrl, type Timespec, timespecOfMs } from '../../src/base/vocabulary.ts';
import type { Attributes } from '../../src/kernel/binding.ts';
import { FolderTimes } from '../../src/nfs/folder-times.ts';
import { NfsServer } from '../../src/nfs/nfs-server.ts';
import { WATCHED_MAX } from '../../src/tree/watched-folders.ts';
import { AssembledMount } from '../harness/assembled-mount.ts';
import { MemoryService } from '../remote/memory-service.ts';
import { NfsClient } from './nfs-client.ts';

// A client reads a folder again only if the folder's times have changed: ctime for Linux, mtime for macOS.

class ListedService extends MemoryService {
  readonly listed = new Set<ResourceUrl>();

  override listPage(folder: ResourceUrl, start: number): Promise<ListingPage> {
    this.listed.add(folder);
    return super.listPage(folder, start);
  }
}

let service: ListedService;
let assembled: AssembledMount;
let server: NfsServer;
let client: NfsClient;
let root: Buffer;

async function serve(platform: NodeJS.Platform): Promise<void> {
  service = new ListedService();
  assembled = await AssembledMount.build(service, { dirTtlMs: '1h', settleMs: '1h' });
  const options = { log: silentLogger, clock: systemClock, platform };
  server = await NfsServer.start(assembled.parts.mounted, { readOnly: false, allowOther: false }, options);
  client = await NfsClient.connect(server.exported.port);
  root = await client.mnt(server.exported.path);
  server.admit();
  assembled.parts.mounted.init?.(server.invalidator);
}

afterEach(async () => {
  client?.close();
  await server?.close();
  await assembled?.close();
});

describe.each([
  ['linux', 'ctime'],
  ['darwin', 'mtime'],
] as const)('on %s', (platform, time) => {
  test(`the ${time} of a folder changes when another machine adds, removes or merges entries`, async () => {
    await serve(platform);
    const folder = await client.mkdir(root, 'folder');
    const inner = await client.mkdir(folder, 'inner');
    await expect(client.names(inner)).resolves.toEqual(['.', '..']);
    const timeOf = async (which: Buffer): Promise<string> => {
      const { sec, nsec } = (await client.getattr(which))[time];
      return `${sec} ${nsec}`;
    };
    const ofInner = [await timeOf(inner)];
    // Another machine has made folders of the same names meanwhile.
    const elsewhere = await service.createFolder((await service.user()).home, 'folder');
    await service.createFile(await service.createFolder(elsewhere, 'inner'), 'in both', 'text/plain');
    await assembled.parts.freshness.refresh();
    await client.names(folder);
    await expect.poll(() => client.names(inner)).toContain('in both');
    ofInner.push(await timeOf(inner));
    const ofFolder = [await timeOf(folder)];

    const added = await service.createFile(elsewhere, 'added', 'text/plain');
    await assembled.parts.freshness.refresh();
    await expect.poll(() => client.names(folder)).toContain('added');
    ofFolder.push(await timeOf(folder));

    await service.deleteForever(added);
    await assembled.parts.freshness.refresh();
    await expect.poll(() => client.names(folder)).not.toContain('added');
    ofFolder.push(await timeOf(folder));

    expect({ inner: new Set(ofInner).size, folder: new Set(ofFolder).size }).toEqual({ inner: 2, folder: 3 });
  });
});

test('GETATTR of a listed folder, or of a file in it, refreshes a stale listing', async () => {
  await serve('linux');
  const elsewhere = await service.createFolder((await service.user()).home, 'folder');
  await service.createFile(elsewhere, 'file', 'text/plain');
  const inner = await service.createFolder(elsewhere, 'inner');
  await assembled.parts.freshness.refresh();
  const folder = await client.lookup(root, 'folder');
  await client.names(folder);
  const others = [];
  for (let number = 0; number < WATCHED_MAX; number++) others.push(await client.mkdir(root, `other ${number}`));
  for (const handle of [await client.lookup(folder, 'file'), folder]) {
    // Only the folders that were used last are refreshed without a request.
    for (const other of others) await client.names(other);
    service.listed.clear();
    await assembled.parts.freshness.refresh();
    expect(service.listed).not.toContain(elsewhere);
    await client.getattr(handle);

    await expect.poll(() => service.listed).toContain(elsewhere);
  }
  await client.getattr(await client.lookup(folder, 'inner'));
  expect(service.listed, 'no client has its entries').not.toContain(inner);
});

test('all procedures show the same times of a folder', async () => {
  await serve('linux');
  const folder = await client.mkdir(root, 'folder');
  const { fileId } = await client.getattr(folder);
  const own = (await client.getattr(folder)).ctime;
  server.invalidator.entry(fileId as Inode, 'new');
  const { ctime } = await client.getattr(folder);

  expect(ctime).not.toEqual(own);
  expect((await client.entries(root)).get('folder')?.ctime).toEqual(ctime);
  expect((await client.setattr(folder, { mode: 0o700 })).before?.ctime).toEqual(ctime);
});

describe('FolderTimes', () => {
  const NOW_MS = 1_700_000_000_000;
  const folder = (ino: number, ctimeMs: number): Attributes => {
    const [ctime, none] = [timespecOfMs(ctimeMs), timespecOfMs(0)];
    const ids = { ino: ino as Inode, mode: 0o755, nlink: 1, uid: 0, gid: 0, sizeBytes: 0, blocks512: 0 };
    return { ...ids, kind: 'folder', atime: none, mtime: none, ctime };
  };
  const times = (isContinued = false, clock = { nowMs: () => NOW_MS }): FolderTimes =>
    new FolderTimes({ clock, changesMtime: false, isContinued });
  const nsOf = ({ sec, nsec }: Timespec): number => (sec - NOW_MS / 1000) * 1e9 + nsec;

  test('two changes within a millisecond are two times', () => {
    const shown = times();
    const seen = [1, 2, 3].map(() => {
      shown.entriesChanged(7 as Inode);
      return nsOf(shown.asShown(folder(7, NOW_MS)).ctime);
    });

    expect(new Set(seen).size).toBe(3);
  });

  test("a change within the millisecond of the folder's own one is another time", () => {
    const shown = times();
    const own = shown.asShown(folder(7, NOW_MS)).ctime;
    shown.entriesChanged(7 as Inode);

    expect(nsOf(shown.asShown(folder(7, NOW_MS)).ctime)).toBeGreaterThan(nsOf(own));
  });

  test("the folder's own ctime is shown again when it is later", () => {
    const shown = times();
    shown.entriesChanged(7 as Inode);

    expect(nsOf(shown.asShown(folder(7, NOW_MS + 1)).ctime)).toBe(1e6);
  });

  test("a change of the folder's own ctime changes the time, also while the clock is behind", () => {
    const shown = times();
    shown.entriesChanged(7 as Inode);
    const first = nsOf(shown.asShown(folder(7, NOW_MS - 5)).ctime);

    expect(nsOf(shown.asShown(folder(7, NOW_MS - 5)).ctime)).toBe(first);
    expect(nsOf(shown.asShown(folder(7, NOW_MS - 4)).ctime)).toBeGreaterThan(first);
  });

  test('after the death of a process, each folder shows another time', () => {
    const shown = times(true);

    expect(nsOf(shown.asShown(folder(7, NOW_MS - 5)).ctime)).toBe(1);
  });

  test('forgetting a change changes the time as well', () => {
    const shown = times();
    shown.entriesChanged(7 as Inode);
    const first = nsOf(shown.asShown(folder(7, NOW_MS - 5)).ctime);
    for (let ino = 100; ino < 100_100; ino++) shown.entriesChanged(ino as Inode);

    expect(nsOf(shown.asShown(folder(7, NOW_MS - 5)).ctime)).toBeGreaterThan(first);
  });
});
