import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Inode, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { SyncedSide } from '../harness/synced-side.ts';
import { MODEL_ROOT } from '../sync/model-service.ts';

/** A file that was deleted here while somebody has it open, and is there again: two files, one without a name. */

let synced: SyncedSide;
beforeEach(async () => {
  synced = await SyncedSide.build();
});
afterEach(() => synced.close());

describe.each(['saved elsewhere', 'discarded'] as const)('a deletion that was %s', (how) => {
  async function isBack(): Promise<{ fd: number; before: Inode; bytes: string }> {
    const { service, mount, side, sync } = synced;
    const file = service.add('file', MODEL_ROOT, 'f', Buffer.from('old'));
    await side.freshness.refresh();
    const fd = await mount.open('f', 'r');
    await mount.read(fd, 0, 10);
    const { ino } = await mount.stat('f');
    await mount.unlink('f');
    if (how === 'discarded') await sync.discard(ROOT_INODE, 'discard');
    else service.addVersion(file, Buffer.from('theirs'));
    await side.freshness.refresh();
    return { fd, before: ino, bytes: how === 'discarded' ? 'old' : 'theirs' };
  }

  test('a file that is back after its deletion is another file for new opens, and open descriptors keep the old one', async () => {
    const { fd, before, bytes } = await isBack();
    const { mount } = synced;

    expect((await mount.read(fd, 0, 10)).toString()).toBe('old');
    expect((await mount.fstat(fd)).nlink).toBe(0);
    expect((await mount.readFile('f')).toString()).toBe(bytes);
    const { ino, nlink } = await mount.stat('f');
    expect(ino).not.toBe(before);
    expect(nlink).toBe(1);
    await mount.close(fd);
    expect((await mount.readFile('f')).toString()).toBe(bytes);
  });

  test('a write to a file that is back after its deletion is pushed', async () => {
    const { fd } = await isBack();
    const { mount, service, side } = synced;

    const writer = await mount.open('f', 'r+');
    await mount.write(writer, 0, Buffer.from('ours'));
    await mount.close(writer);

    const { ino } = await mount.stat('f');
    expect(side.store.get('node', ino)?.local?.content).not.toBeNull();
    expect((await mount.read(fd, 0, 10)).toString()).toBe('old');
    await mount.close(fd);
    await synced.converge();
    expect([...service.tree()]).toEqual([['/f', how === 'discarded' ? 'ours' : 'oursrs']]);
  });
});
