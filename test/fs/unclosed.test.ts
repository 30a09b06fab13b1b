import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { StorageError } from '../../src/base/errors.ts';
import type { Inode } from '../../src/base/vocabulary.ts';
import { openFlags, rawFlags } from '../../src/kernel/open-flags.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import { removeNode, writeNode } from '../../src/store/node-table.ts';
import { VersionService } from '../content/version-service.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';

/** A disk that takes no more bytes while it is full. */
class FillableDisk {
  isFull = false;
  readonly disk: Disk = {
    ...systemDisk,
    write: (fd, bytes, position) => {
      if (this.isFull) throw new StorageError('no space', { full: true });
      systemDisk.write(fd, bytes, position);
    },
    writeLater: async (fd, bytes, position) => this.disk.write(fd, bytes, position),
  };
}

const ctx = { uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal };

let service: VersionService;
let fillable: FillableDisk;
let side: FileSystemSide;
let mount: InProcessMount;

beforeEach(async () => {
  service = new VersionService();
  fillable = new FillableDisk();
  side = await FileSystemSide.build({ listing: service, source: service, disk: fillable.disk });
  mount = new InProcessMount(side.fileSystem);
});
afterEach(() => side.close());

/** What SIGKILL does: nothing is closed, and nothing is said. */
async function restart(): Promise<void> {
  const { directory } = side;
  await side.close('keep');
  side = await FileSystemSide.build({ directory, listing: service, source: service });
  mount = new InProcessMount(side.fileSystem);
}

/** How many contents there are once what nobody needs is collected (a file that is being synced is still needed). */
function contentsLeft(): number {
  side.contents.collect();
  return [...side.store.all('content')].length;
}

describe.each([100, 300_000])('a file of %i bytes', (length) => {
  const kept = Buffer.alloc(length, 'closed ');

  test('a file that is truncated and not closed has the bytes of its last close after a restart', async () => {
    await mount.writeFile('file', kept);
    const fd = await mount.open('file', 'w');
    await mount.write(fd, 0, Buffer.alloc(length / 2, 'half '));

    await restart();

    expect(Buffer.compare(await mount.readFile('file'), kept)).toBe(0);
    expect((await mount.stat('file')).sizeBytes).toBe(length);
  });

  test('a cached file from elsewhere that is truncated and not closed is unchanged after a restart', async () => {
    service.put('file', kept);
    await mount.readFile('file');
    const fd = await mount.open('file', 'w');
    await mount.write(fd, 0, Buffer.alloc(length / 2, 'half '));

    await restart();

    expect(Buffer.compare(await mount.readFile('file'), kept)).toBe(0);
  });

  test('a racily clean file that is truncated and not closed is unchanged after a restart', async () => {
    service.put('file', kept, 1_000_000);
    await mount.readFile('file');
    const { ino } = await mount.stat('file');
    doubt(ino);
    const { pins } = service;
    const fd = await mount.open('file', 'w');
    await mount.write(fd, 0, Buffer.alloc(length / 2, 'half '));
    expect(service.pins).toBe(pins); // of what is emptied nobody has to know which version it is

    await restart();

    expect(Buffer.compare(await mount.readFile('file'), kept)).toBe(0);
    expect((await mount.stat('file')).sizeBytes).toBe(length);
  });

  test('a racily clean file that is rewritten and closed has the new bytes after a restart', async () => {
    service.put('file', kept, 1_000_000);
    await mount.readFile('file');
    doubt((await mount.stat('file')).ino);
    await mount.writeFile('file', Buffer.from('anew'));

    await restart();

    expect((await mount.readFile('file')).toString()).toBe('anew');
  });

  /** The shell opens it, moves the descriptor to 1 (dup2(2)), and closes the one it had, before the program has written a byte. */
  async function redirected(): Promise<{ write(text: string): Promise<void>; flush(): void; close(): Promise<void> }> {
    const { ino } = await mount.stat('file');
    const { fileSystem } = side;
    const { handle } = await fileSystem.open(ino, openFlags(rawFlags('w')), ctx);
    await fileSystem.flush(ino, handle);
    return {
      write: async (text) => void (await fileSystem.write(ino, handle, 0, Buffer.from(text), ctx, 'offset')),
      flush: () => void fileSystem.flush(ino, handle),
      close: async () => fileSystem.release(ino, handle),
    };
  }

  test.each([
    { what: 'not begun', begin: async () => {} },
    { what: 'in the middle', begin: (out: { write(text: string): Promise<void> }) => out.write('half') },
  ])(
    'a file that a shell truncated for a program ($what) has the bytes of its last close after a restart',
    async ({ begin }) => {
      await mount.writeFile('file', kept);
      await begin(await redirected());

      await restart();

      expect((await mount.readFile('file')).equals(kept)).toBe(true);
    },
  );

  test('a file that is truncated and closed without a write is empty after a restart', async () => {
    await mount.writeFile('file', kept);
    await (await redirected()).close();

    await restart();

    expect((await mount.stat('file')).sizeBytes).toBe(0);
  });

  test('a file that is truncated and closed is empty even if the unmount comes before the kernel reports the last close', async () => {
    await mount.writeFile('file', kept);
    await redirected();
    side.fileSystem.unmounted();
    expect(side.fileSystem.files.isOpen((await mount.stat('file')).ino)).toBe(false);

    await restart();

    expect((await mount.stat('file')).sizeBytes).toBe(0);
  });

  test('a file that is still open at the unmount (in another mount namespace) has the bytes of its last close', async () => {
    await mount.writeFile('file', kept);
    const fd = await mount.open('file', 'w');
    side.fileSystem.unmounted();
    await mount.write(fd, 0, Buffer.from('half'));
    side.fileSystem.unmounted();

    await restart();

    expect((await mount.readFile('file')).equals(kept)).toBe(true);
  });

  test('a file that is truncated and closed is empty although another descriptor is still open', async () => {
    await mount.writeFile('file', kept);
    const beside = await mount.open('file', 'a');
    await (await redirected()).close();

    await restart();

    expect((await mount.stat('file')).sizeBytes).toBe(0);
    expect(beside).toBeGreaterThanOrEqual(0);
  });

  test('a file that is truncated and synced is empty after a restart', async () => {
    await mount.writeFile('file', kept);
    const fd = await mount.open('file', 'w');
    await mount.fsync(fd);
    await mount.write(fd, 0, Buffer.from('half'));

    await restart();

    expect((await mount.stat('file')).sizeBytes).toBe(0);
  });

  test('a file whose new bytes do not fit on the disk has the bytes of its last close, and can be written again', async () => {
    await mount.writeFile('file', kept);
    const fd = await mount.open('file', 'w');
    await mount.write(fd, 0, Buffer.from('short'));
    fillable.isFull = true;

    await expect(mount.close(fd)).rejects.toMatchObject({ errno: 'ENOSPC' });

    expect((await mount.stat('file')).sizeBytes).toBe(length);
    expect(Buffer.compare(await mount.readFile('file'), kept)).toBe(0);
    fillable.isFull = false;
    await mount.writeFile('file', Buffer.from('short'));
    expect((await mount.readFile('file')).toString()).toBe('short');
  });
});

/** As fetched within two seconds of its last change (store/service-time). */
function doubt(ino: Inode): void {
  side.store.transact((tx) => {
    const node = tx.get('node', ino);
    if (node?.remote == null) throw new Error('the service has the file');
    writeNode(tx, node, { ...node, remote: { ...node.remote, modified: { ms: 1_000_000, certainty: 'suspect' } } }, 0);
  });
}

/** What `cfs discard` makes of a file (sync/discarding): it holds again what the service has. */
function givenUp(ino: Inode): void {
  side.store.transact((tx) => {
    const node = tx.get('node', ino);
    if (node?.local == null || node.remote === null) throw new Error('there is nothing to give up');
    const { content, sizeBytes } = node.remote;
    writeNode(tx, node, { ...node, local: { ...node.local, content, sizeBytes: sizeBytes ?? 0 } }, 0);
  });
}

describe.each([100, 300_000])('what was given up of a file of %i bytes while a program had it open', (length) => {
  const theirs = Buffer.alloc(length, 'theirs ');

  test.each([
    { how: 'write(2)', act: (fd: number) => mount.write(fd, 10, Buffer.from('behind')) },
    { how: 'ftruncate(2)', act: (fd: number) => mount.ftruncate(fd, 50) },
    { how: 'ftruncate(2) to nothing', act: (fd: number) => mount.ftruncate(fd, 0) },
    { how: 'fallocate(2)', act: (fd: number) => mount.fallocate(fd, 'punch-hole', 20, 10) },
  ])('is not written on: what comes by $how after it reaches the file, over what the service has', async ({ act }) => {
    service.put('file', theirs);
    service.put('twin', theirs);
    const twin = await mount.open('twin', 'r+');
    await act(twin);
    await mount.close(twin);
    const fd = await mount.open('file', 'r+');
    await mount.write(fd, 0, Buffer.from('given up'));
    await mount.fsync(fd);

    givenUp((await mount.fstat(fd)).ino);
    await act(fd);
    await mount.close(fd);

    await restart();
    expect((await mount.readFile('file')).equals(await mount.readFile('twin'))).toBe(true);
  });
});

test('saving again and again leaves nothing behind', async () => {
  for (let round = 0; round < 5; round++) await mount.writeFile('file', Buffer.alloc(40_000, `${round}`));
  await expect.poll(contentsLeft).toBe(1);
});

test('a nameless file leaves nothing behind, also one whose bytes were being pushed', async () => {
  await mount.writeFile('file', Buffer.alloc(40_000, 'x'));
  const { ino } = await mount.stat('file');
  const fd = await mount.open('file', 'r+');
  const { content } = side.store.get('node', ino)?.local ?? {};
  if (content == null) throw new Error('no content');
  side.store.transact((tx) => side.contents.seal(tx, content));
  await mount.unlink('file');
  await mount.write(fd, 0, Buffer.from('over it'));
  await mount.close(fd);

  await expect.poll(contentsLeft).toBe(0);
});

test('a version that was asked for when nobody waits any more is held by nobody', async () => {
  service.put('file', Buffer.alloc(40_000, 'x'));
  let answer = (): void => {};
  service.gate = new Promise((resolve) => {
    answer = resolve;
  });
  const { ino } = await mount.stat('file');
  const controller = new AbortController();
  const ctx = { uid: 0, gid: 0, pid: 1, umask: 0, signal: controller.signal };
  const flags = { access: 'read', append: false, truncate: false, raw: 0 } as const;
  const { handle } = await side.fileSystem.open(ino, flags, ctx);
  const read = side.fileSystem.read(ino, handle, 0, 10, ctx);
  controller.abort(new Error('interrupted'));
  await expect(read).rejects.toThrow('interrupted');
  await side.fileSystem.release(ino, handle);
  answer();
  await expect.poll(() => side.store.get('node', ino)?.local?.content).not.toBeNull();

  await mount.unlink('file');
  side.store.transact((tx) => {
    const tombstone = tx.get('node', ino);
    if (tombstone !== undefined) removeNode(tx, tombstone, 0);
  });
  await expect.poll(contentsLeft).toBe(0);
});
