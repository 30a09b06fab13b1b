import { expect, test } from 'vitest';
import { TransportError } from '../../src/base/errors.ts';
import type { RemoteEntry } from '../../src/base/resources.ts';
import { type ResourceUrl, ROOT_INODE } from '../../src/base/vocabulary.ts';
import { FileSystemSide, ROOT_RESOURCE } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';

test('what was made here in a folder that somebody else made as well is reached before that one can be listed', async () => {
  const theirs: RemoteEntry = { kind: 'folder', url: 'http://127.0.0.1/folder/:sc:1:9' as ResourceUrl, name: 'both' };
  let entries: readonly RemoteEntry[] = [];
  const side = await FileSystemSide.build({
    listing: {
      listPage: async (folder) => {
        if (folder !== ROOT_RESOURCE) throw new TransportError('the line is down');
        return { entries, hasMore: false, serverTimeMs: null };
      },
      resource: async () => null,
    },
  });
  const mount = new InProcessMount(side.fileSystem);
  try {
    await mount.mkdir('both');
    await mount.writeFile('both/file', Buffer.from('made here'));
    entries = [theirs];
    await side.freshness.refresh(ROOT_INODE);

    expect((await mount.readFile('both/file')).toString()).toBe('made here');
    const fd = await mount.open('both/file', 'r+');
    await mount.write(fd, 0, Buffer.from('kept'));
    await mount.close(fd);
    expect((await mount.readFile('both/file')).toString()).toBe('kept here');
    // What nobody has heard of may be there.
    await expect(mount.stat('both/other')).rejects.toMatchObject({ errno: 'ETIMEDOUT' });
  } finally {
    await side.close();
  }
});
