import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { TransportError } from '../../src/base/errors.ts';
import type { Inode } from '../../src/base/vocabulary.ts';
import { isSuspect, writeNode } from '../../src/store/node-table.ts';
import { VersionService } from '../content/version-service.ts';
import { FileSystemSide, type SideOptions } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';
import { ManualClock } from '../kernel/manual-clock.ts';

/**
 * Bytes that were fetched within two seconds of their change: somebody may have saved again since, with the same length and the
 * same time (src/store/service-time.ts). Whoever opens the file asks; where nobody answers, what is here is shown.
 */

const SAVED_MS = 1_000_000;

let service: VersionService;
let side: FileSystemSide;
let mount: InProcessMount;

async function build(options: SideOptions = {}): Promise<void> {
  service = new VersionService();
  side = await FileSystemSide.build({ listing: service, source: service, ...options });
  mount = new InProcessMount(side.fileSystem);
}

beforeEach(() => build());
afterEach(() => side.close());

/** A file that is here and in doubt. */
async function doubted(): Promise<Inode> {
  service.put('file', Buffer.from('one'), SAVED_MS);
  expect((await mount.readFile('file')).toString()).toBe('one');
  const { ino } = await mount.stat('file');
  side.store.transact((tx) => {
    const node = tx.get('node', ino);
    if (node?.remote == null) throw new Error('the service has the file');
    writeNode(tx, node, { ...node, remote: { ...node.remote, modified: { ms: SAVED_MS, certainty: 'suspect' } } }, 0);
  });
  expect(isDoubted(ino)).toBe(true);
  return ino;
}

function isDoubted(ino: Inode): boolean {
  const node = side.store.get('node', ino);
  return node !== undefined && isSuspect(node);
}

test('open(2) of a racily clean file reads a new version of the same length and time', async () => {
  const ino = await doubted();
  service.put('file', Buffer.from('two'), SAVED_MS);

  expect((await mount.readFile('file')).toString()).toBe('two');
  expect(isDoubted(ino)).toBe(false);
});

test('the same version is asked for once, and not fetched again', async () => {
  const ino = await doubted();
  const { pins } = service;
  const fetched = service.fetches.length;

  for (let times = 0; times < 3; times++) expect((await mount.readFile('file')).toString()).toBe('one');

  expect(service.pins).toBe(pins + 1);
  expect(service.fetches.length).toBe(fetched);
  expect(isDoubted(ino)).toBe(false);
});

test('without an answer the cached version of a racily clean file is read, and the next open asks again', async () => {
  const ino = await doubted();
  service.failuresLeft = 1;

  expect((await mount.readFile('file')).toString()).toBe('one');
  expect(isDoubted(ino)).toBe(true);
  service.put('file', Buffer.from('two'), SAVED_MS);
  expect((await mount.readFile('file')).toString()).toBe('two');
});

test('the revalidation of a racily clean file waits for at most --open-wait', async () => {
  await side.close();
  const clock = new ManualClock();
  await build({ clock, openWaitMs: 3_000 });
  const ino = await doubted();
  service.newestVersion = () => new Promise(() => {});
  const fd = await mount.open('file', 'r');
  const timers = clock.timers;
  let read: string | null = null;
  const reading = mount.read(fd, 0, 3).then((bytes) => {
    read = bytes.toString();
  });
  await expect.poll(() => clock.timers).toBe(timers + 1);

  clock.advance(2_999);
  await new Promise((resolve) => setImmediate(resolve));
  expect(read).toBe(null);
  clock.advance(1);
  await reading;

  expect(read).toBe('one');
  expect(isDoubted(ino)).toBe(true);
  await mount.close(fd);
});

test('with --open-wait 0 the cached version is read without a request', async () => {
  await side.close();
  await build({ openWaitMs: 0 });
  await doubted();
  const { pins } = service;
  service.put('file', Buffer.from('two'), SAVED_MS);

  expect((await mount.readFile('file')).toString()).toBe('one');
  expect(service.pins).toBe(pins);
});

test('a write to a racily clean file is based on the newest version', async () => {
  await doubted();
  service.put('file', Buffer.from('two'), SAVED_MS);

  const fd = await mount.open('file', 'r+');
  await mount.write(fd, 0, Buffer.from('T'));
  await mount.close(fd);

  expect((await mount.readFile('file')).toString()).toBe('Two');
});

test('the kernel drops its pages of a racily clean file', async () => {
  const ino = await doubted();
  const ctx = { uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal };
  const flags = { access: 'read', append: false, truncate: false, raw: 0 } as const;
  const open = async (): Promise<boolean> => {
    const { handle, keepCache } = await side.fileSystem.open(ino, flags, ctx);
    await side.fileSystem.release(ino, handle);
    return keepCache;
  };

  expect(await open()).toBe(false);
  expect(await open()).toBe(false);
  await mount.readFile('file');
  expect(await open()).toBe(true);
});

test('an answer that a listing overtook is not taken for what that one told of', async () => {
  service.put('file', Buffer.from('one'), SAVED_MS);
  await mount.stat('file');
  const ask = service.newestVersion.bind(service);
  service.newestVersion = async (file, signal) => {
    service.newestVersion = ask;
    const found = await ask(file, signal);
    service.put('file', Buffer.from('two'), SAVED_MS + 60_000);
    await side.freshness.refresh();
    return found;
  };

  expect((await mount.readFile('file')).toString()).toBe('one');
  expect((await mount.readFile('file')).toString()).toBe('two');
});

describe('a refresh that was asked for', () => {
  /** A file whose bytes are here, learnt within the second of their change. */
  async function early(): Promise<Inode> {
    service.serverTimeMs = SAVED_MS + 500;
    service.put('file', Buffer.from('one'), SAVED_MS);
    expect((await mount.readFile('file')).toString()).toBe('one');
    return (await mount.stat('file')).ino;
  }

  test.each(['within that second', 'later'])(
    'a refresh finds a save in the same second with the same length (requested %s)',
    async (when) => {
      await early();
      service.put('file', Buffer.from('two'), SAVED_MS);
      if (when === 'later') service.serverTimeMs = SAVED_MS + 60_000;
      await side.freshness.refresh();
      // Nobody has to be asked any more.
      service.newestVersion = () => Promise.reject(new Error('asked again'));

      expect((await mount.readFile('file')).toString()).toBe('two');
    },
  );

  test('asks again where more may have come in that second', async () => {
    await early();
    await side.freshness.refresh();
    service.put('file', Buffer.from('two'), SAVED_MS);
    await side.freshness.refresh();
    expect((await mount.readFile('file')).toString()).toBe('two');

    service.serverTimeMs = SAVED_MS + 60_000;
    service.put('file', Buffer.from('six'), SAVED_MS);
    await side.freshness.refresh();
    expect((await mount.readFile('file')).toString()).toBe('six');
    const { pins } = service;
    await side.freshness.refresh();
    expect(service.pins).toBe(pins);
  });

  test('leaves what was changed here meanwhile, and what a program has open', async () => {
    await early();
    const fd = await mount.open('file', 'r');
    expect((await mount.read(fd, 0, 3)).toString()).toBe('one');
    service.put('file', Buffer.from('two'), SAVED_MS);
    await side.freshness.refresh();
    expect((await mount.read(fd, 0, 3)).toString()).toBe('one');
    await mount.close(fd);
    expect((await mount.readFile('file')).toString()).toBe('two');

    await mount.writeFile('file', Buffer.from('our'));
    service.put('file', Buffer.from('six'), SAVED_MS);
    await side.freshness.refresh();
    expect((await mount.readFile('file')).toString()).toBe('our');
  });

  test('fails where the service does not say', async () => {
    await early();
    service.newestVersion = () => Promise.reject(new TransportError('no answer'));
    await expect(side.freshness.refresh()).rejects.toThrow('no answer');
  });
});
