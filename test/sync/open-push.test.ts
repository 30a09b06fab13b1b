import { constants } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import { ROOT_INODE } from '../../src/base/vocabulary.ts';
import type { OpenFile } from '../../src/content/open-file.ts';
import type { OpenFiles } from '../../src/fs/open-files.ts';
import { OpenPush } from '../../src/fs/open-push.ts';
import { openFlags } from '../../src/kernel/open-flags.ts';
import { SyncedSide } from '../harness/synced-side.ts';
import { MemoryStore } from '../tree/memory-store.ts';
import { makeTree } from '../tree/tree-fixture.ts';
import { MODEL_ROOT } from './model-service.ts';

const { O_APPEND, O_CREAT, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY } = constants;
const MINUTE_MS = 60_000;

let world: SyncedSide;
beforeEach(async () => {
  world = await SyncedSide.build();
});
afterEach(() => world.close());

const versionsOf = (name: string): string[] => {
  const found = world.service.childrenOf(MODEL_ROOT).find((child) => child.name === name);
  return (found?.versions ?? []).map(({ bytes }) => bytes.toString());
};

test('a logger that never closes its file is on the service within six minutes, in at most three versions', async () => {
  const fd = await world.mount.open('log', O_WRONLY | O_CREAT | O_APPEND);
  let written = '';
  for (let second = 0; second < 6 * 60; second += 2) {
    const line = Buffer.from(`second ${second}\n`);
    await world.mount.write(fd, written.length, line);
    written += line.toString();
    await world.pass(2_000);
  }

  const [newest, ...older] = versionsOf('log');
  expect(newest?.length).toBeGreaterThan(written.length / 2);
  expect(written.startsWith(newest ?? 'nothing')).toBe(true);
  expect(older.length).toBeLessThanOrEqual(2);
  expect((await world.mount.readFile('log')).toString()).toBe(written);

  await world.mount.close(fd);
  await world.converge();
  expect(versionsOf('log')[0]).toBe(written);
});

test('a stalled copy is not pushed half-written', async () => {
  const fd = await world.mount.open('copy', O_WRONLY | O_CREAT);
  await world.mount.write(fd, 0, Buffer.from('the first half, '));
  for (let at = 0; at < 4 * MINUTE_MS; at += 10_000) await world.pass(10_000);
  expect(versionsOf('copy')).toEqual([]);

  await world.mount.write(fd, 16, Buffer.from('the second half'));
  await world.mount.close(fd);
  await world.converge();

  expect(versionsOf('copy')).toEqual(['the first half, the second half']);
});

test('a stalled copy over an older version is not pushed half-written', async () => {
  await world.mount.writeFile('copy', Buffer.from('the older version'));
  await world.converge();
  const fd = await world.mount.open('copy', O_WRONLY | O_TRUNC);
  await world.mount.write(fd, 0, Buffer.from('the first half, '));
  for (let at = 0; at < 4 * MINUTE_MS; at += 10_000) await world.pass(10_000);
  expect(versionsOf('copy')).toEqual(['the older version']);

  await world.mount.write(fd, 16, Buffer.from('the second half'));
  await world.mount.close(fd);
  await world.converge();

  expect(versionsOf('copy')).toEqual(['the first half, the second half', 'the older version']);
});

/** [S-version-5] */
test.each([
  ['pushed while it was open', (fd: number) => world.mount.write(fd, 0, Buffer.from('THE'))],
  ['synced', (fd: number) => world.mount.write(fd, 0, Buffer.from('THE')).then(() => world.mount.fsync(fd))],
])('a stalled rewrite is not pushed half-written although the file was %s before', async (_, change) => {
  await world.mount.writeFile('copy', Buffer.from('the older version'));
  await world.converge();
  const held = await world.mount.open('copy', O_RDWR);
  await change(held);
  for (let at = 0; at < 6 * MINUTE_MS; at += 10_000) await world.pass(10_000);
  expect(versionsOf('copy')).toEqual(['THE older version', 'the older version']);

  const fd = await world.mount.open('copy', O_WRONLY | O_TRUNC);
  await world.mount.write(fd, 0, Buffer.from('the first half, '));
  for (let at = 0; at < 4 * MINUTE_MS; at += 10_000) await world.pass(10_000);
  expect(versionsOf('copy')).toEqual(['THE older version', 'the older version']);

  await world.mount.write(fd, 16, Buffer.from('the second half'));
  await world.mount.close(fd);
  await world.mount.close(held);
  await world.converge();
  expect(versionsOf('copy')[0]).toBe('the first half, the second half');
});

/** [S-stop-2, S-version-5] */
test('a rewrite is not complete because another program closes the file', async () => {
  await world.mount.writeFile('copy', Buffer.from('the older version'));
  await world.converge();
  const other = await world.mount.open('copy', O_RDWR);
  const fd = await world.mount.open('copy', O_WRONLY | O_TRUNC);
  await world.mount.write(fd, 0, Buffer.from('the first half, '));
  await world.mount.close(other);
  for (let at = 0; at < 4 * MINUTE_MS; at += 10_000) await world.pass(10_000);
  expect(versionsOf('copy')).toEqual(['the older version']);

  // Killed and started again.
  const left = world;
  const directory = left.side.snapshot();
  await left.close();
  world = await SyncedSide.build({ left, directory });
  await world.converge();
  expect((await world.mount.readFile('copy')).toString()).toBe('the older version');
  expect(versionsOf('copy')).toEqual(['the older version']);
});

test('a file that a program rewrites by `> file` is pushed neither half-written nor empty', async () => {
  const ctx = { uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal };
  await world.mount.writeFile('copy', Buffer.from('the older version'));
  await world.converge();
  const { ino } = await world.mount.stat('copy');
  const { fileSystem } = world.side;
  const { handle } = await fileSystem.open(ino, openFlags(O_WRONLY | O_TRUNC), ctx);
  await fileSystem.flush(ino, handle); // the shell: dup2(2), close(2)
  for (let at = 0; at < 6 * MINUTE_MS; at += 10_000) await world.pass(10_000);
  expect(versionsOf('copy')).toEqual(['the older version']);

  await fileSystem.write(ino, handle, 0, Buffer.from('the first half, '), ctx, 'offset');
  for (let at = 0; at < 4 * MINUTE_MS; at += 10_000) await world.pass(10_000);
  await fileSystem.write(ino, handle, 16, Buffer.from('the second half'), ctx, 'offset');
  await fileSystem.flush(ino, handle);
  await fileSystem.release(ino, handle);
  await world.converge();

  expect(versionsOf('copy')).toEqual(['the first half, the second half', 'the older version']);
});

test('a file that is truncated by its path is pushed although a descriptor stays open without a write', async () => {
  await world.mount.writeFile('log', Buffer.from('old lines'));
  await world.converge();
  const fd = await world.mount.open('log', O_WRONLY | O_APPEND);
  await world.mount.truncate('log', 0);
  for (let at = 0; at < MINUTE_MS; at += 5_000) await world.pass(5_000);

  expect(versionsOf('log')).toEqual(['', 'old lines']);
  await world.mount.close(fd);
});

test('a file that stays open is pushed once it is idle, and again not before five minutes later', async () => {
  await world.mount.writeFile('base', Buffer.from('one'));
  await world.converge();
  const fd = await world.mount.open('base', O_WRONLY);
  await world.mount.write(fd, 0, Buffer.from('two'));
  for (let at = 0; at < 20_000; at += 5_000) await world.pass(5_000);
  expect(versionsOf('base')).toEqual(['one']);
  for (let at = 0; at < 30_000; at += 5_000) await world.pass(5_000);
  expect(versionsOf('base')).toEqual(['two', 'one']);

  await world.mount.write(fd, 0, Buffer.from('three'));
  for (let at = 0; at < 3 * MINUTE_MS; at += 10_000) await world.pass(10_000);
  expect(versionsOf('base')).toEqual(['two', 'one']);
  for (let at = 0; at < 3 * MINUTE_MS; at += 10_000) await world.pass(10_000);
  expect(versionsOf('base')).toEqual(['three', 'two', 'one']);

  await world.mount.close(fd);
  await world.converge();
  expect(versionsOf('base')).toEqual(['three', 'two', 'one']);
  expect((await world.mount.readFile('base')).toString()).toBe('three');
});

/** [S-sync-1] [S-version-1] An office program, a database: they open, and write perhaps when somebody saves. */
test.each([
  ['a new file', []],
  ['the next version', ['one']],
])(
  'a closed save is pushed although another descriptor stays open for writing without a write: %s',
  async (_, older) => {
    for (const version of older) {
      await world.mount.writeFile('report', Buffer.from(version));
      await world.converge();
    }
    await world.mount.writeFile('report', Buffer.from('saved'));
    const idle = await world.mount.open('report', O_RDWR);
    const appending = await world.mount.open('report', O_WRONLY | O_APPEND);
    await world.converge();
    expect(versionsOf('report')).toEqual(['saved', ...older]);

    // Not pushed by halves from the first byte on that it does write, and not held back by who goes on doing nothing.
    await world.mount.write(appending, 5, Buffer.from(', and mo'));
    for (let at = 0; at < 20_000; at += 5_000) await world.pass(5_000);
    expect(versionsOf('report')).toEqual(['saved', ...older]);
    await world.mount.write(appending, 13, Buffer.from('re'));
    await world.mount.close(appending);
    await world.converge();
    expect(versionsOf('report')).toEqual(['saved, and more', 'saved', ...older]);
    await world.mount.close(idle);
  },
);

test('a file that truncate(2) shortened is pushed although a descriptor stays open for writing', async () => {
  await world.mount.writeFile('report', Buffer.from('too long'));
  await world.converge();
  const idle = await world.mount.open('report', O_RDWR);
  await world.mount.truncate('report', 3);
  for (let at = 0; at < 20_000; at += 5_000) await world.pass(5_000);

  expect(versionsOf('report')).toEqual(['too', 'too long']);
  await world.mount.close(idle);
});

test('a file that was just created or truncated is not pushed before it is closed', async () => {
  const made = await world.mount.open('made', O_WRONLY | O_CREAT);
  await world.mount.writeFile('emptied', Buffer.from('saved'));
  const emptied = await world.mount.open('emptied', O_WRONLY | O_TRUNC);
  for (let at = 0; at < MINUTE_MS; at += 5_000) await world.pass(5_000);

  expect([...versionsOf('made'), ...versionsOf('emptied')]).toEqual([]);
  for (const fd of [made, emptied]) await world.mount.close(fd);
});

test('a file that was synced by fsync(2) is pushed although it is never closed', async () => {
  const fd = await world.mount.open('database', O_WRONLY | O_CREAT);
  await world.mount.write(fd, 0, Buffer.from('a page'));
  await world.mount.fsync(fd);
  for (let at = 0; at < 10_000; at += 2_000) await world.pass(2_000);

  expect(versionsOf('database')).toEqual(['a page']);
  expect(world.sync.status().pending).toBe(0);
  await world.mount.close(fd);
});

test('a file that is open for writing cannot be discarded, even if it may be pushed: later writes stay', async () => {
  await world.mount.writeFile('f', Buffer.from('one'));
  await world.converge();
  const fd = await world.mount.open('f', O_WRONLY);
  await world.mount.write(fd, 0, Buffer.from('two'));
  await world.mount.fsync(fd);
  world.service.auto = null; // nothing is frozen before it is given up
  await world.pass(5_000);

  await expect(world.sync.discard(ROOT_INODE, 'discard')).rejects.toThrow(/open for writing/);
  world.service.auto = () => ({ type: 'answer' });
  await world.mount.write(fd, 3, Buffer.from(' and three'));
  await world.mount.close(fd);
  await world.converge();

  expect(versionsOf('f')[0]).toBe('two and three');
  expect((await world.mount.readFile('f')).toString()).toBe('two and three');
});

test('a save that changed no byte makes no version while the file is open for reading or writing', async () => {
  await world.mount.writeFile('f', Buffer.from('one'));
  await world.converge();
  const reader = await world.mount.open('f', O_RDONLY);
  const writer = await world.mount.open('f', O_WRONLY);
  await world.mount.write(writer, 0, Buffer.from('one'));
  await world.mount.fsync(writer);
  for (let at = 0; at < MINUTE_MS; at += 5_000) await world.pass(5_000);
  await world.converge();

  expect(versionsOf('f')).toEqual(['one']);
  expect(world.sync.status().pending).toBe(0);

  await world.mount.write(writer, 0, Buffer.from('two'));
  expect((await world.mount.read(reader, 0, 10)).toString()).toBe('two');
  await world.mount.close(writer);
  await world.converge();

  expect(versionsOf('f')).toEqual(['two', 'one']);
  expect((await world.mount.read(reader, 0, 10)).toString()).toBe('two');
  await world.mount.close(reader);
  expect((await world.mount.readFile('f')).toString()).toBe('two');
});

test.each(['before it is looked at', 'when it was written down'])(
  'an open file whose record is damaged %s blocks no push of another file',
  (when) => {
    const store = new MemoryStore();
    const { tree, clock } = makeTree({ store });
    const writing = { sinceMs: 0, lastMs: 0, syncedMs: 0, wasEmptied: false };
    const pushed: string[] = [];
    const flushed: string[] = [];
    const files = ['first', 'afflicted', 'last'].map((name) => {
      const { ino } = tree.create(ROOT_INODE, name, { kind: 'file', mode: 0o644, uid: 0, gid: 0 });
      const flush = (): boolean => {
        flushed.push(name);
        if (name === 'afflicted') store.damage('node', ino);
        return true;
      };
      return { name, file: { ino, writing, flush } as unknown as OpenFile };
    });
    const afflicted = files[1]?.file.ino ?? ROOT_INODE;
    if (when === 'before it is looked at') store.damage('node', afflicted);
    const push = new OpenPush({
      ...{ store, clock, log: silentLogger, openPushMs: 5 * MINUTE_MS },
      files: {
        files: files.map(({ file }) => file),
        isBeingWritten: () => true,
        isOpen: () => true,
      } as unknown as OpenFiles,
      push: (ino) => void pushed.push(files.find(({ file }) => file.ino === ino)?.name ?? ''),
    });
    push.start(new AbortController().signal);

    clock.advance(5_000);
    expect(pushed).toEqual(['first', 'last']);
    expect(flushed.includes('afflicted')).toBe(when === 'when it was written down');

    Object.assign(writing, { lastMs: clock.elapsedMs() + 1, syncedMs: clock.elapsedMs() + 1 });
    clock.advance(5 * MINUTE_MS);
    expect(pushed).toEqual(['first', 'last', 'first', 'last']);
  },
);

test('a remote save is kept as a copy although the local write before it changed no byte and the file is written again', async () => {
  const { mount, service } = world;
  for (const text of ['an older version', 'what it holds']) {
    await mount.writeFile('f', Buffer.from(text));
    await world.converge();
  }
  const fd = await mount.open('f', O_RDWR);
  await mount.write(fd, 0, Buffer.from('what'));
  for (let at = 0; at < 6 * MINUTE_MS; at += 10_000) await world.pass(10_000);
  expect(versionsOf('f')).toEqual(['what it holds', 'an older version']);

  const [file] = service.childrenOf(MODEL_ROOT);
  if (file !== undefined) service.addVersion(file.url, Buffer.from('what another one saved'));
  await world.side.freshness.refresh();
  await mount.write(fd, 0, Buffer.from('THAT'));
  await mount.close(fd);
  await world.converge();

  expect([...service.tree().values()].sort()).toEqual(['THAT it holds', 'what another one saved']);
});

test.each(['what another saved', 'their bytes'])(
  'a remote save of an open file that was made here is kept as a copy when the file is written again: %s',
  async (theirs) => {
    const { mount, service } = world;
    await mount.writeFile('f', Buffer.from('which bytes'));
    await world.converge();
    const fd = await mount.open('f', O_RDWR);
    await mount.read(fd, 0, 5);

    const [file] = service.childrenOf(MODEL_ROOT);
    service.nowMs += MINUTE_MS;
    if (file !== undefined) service.addVersion(file.url, Buffer.from(theirs));
    await world.side.freshness.refresh();
    await mount.write(fd, 0, Buffer.from('THESE'));
    await mount.close(fd);
    await world.converge();

    expect([...service.tree().values()].sort()).toEqual(['THESE bytes', theirs]);
  },
);

test.each(['all of it anew by who has it open', 'anew', 'by a file that is renamed over it'])(
  'a remote save of an open file is kept as a copy if the file is written here, and is then saved %s',
  async (how) => {
    const { mount, service } = world;
    for (const text of ['an older version', 'what it holds']) {
      await mount.writeFile('f', Buffer.from(text));
      await world.converge();
    }
    const fd = await mount.open('f', O_RDWR);
    await mount.read(fd, 0, 5);

    const [file] = service.childrenOf(MODEL_ROOT);
    if (file !== undefined) service.addVersion(file.url, Buffer.from('what another one saved'));
    await world.side.freshness.refresh();
    if (how.startsWith('all')) await mount.ftruncate(fd, 0);
    await mount.write(fd, 0, Buffer.from('a save of ours'));
    await mount.close(fd);
    if (how === 'anew') await mount.writeFile('f', Buffer.from('a save of ours'));
    if (how.startsWith('by')) {
      await mount.writeFile('another', Buffer.from('a save of ours'));
      await mount.rename('another', 'f');
    }
    await world.converge();

    expect([...service.tree().values()].sort()).toEqual(['a save of ours', 'what another one saved']);
  },
);
