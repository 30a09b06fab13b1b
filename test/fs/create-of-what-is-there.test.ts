import { constants } from 'node:fs';
import { expect, test } from 'vitest';
import { ROOT_INODE } from '../../src/base/vocabulary.ts';
import { VersionService } from '../content/version-service.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';
import { ManualClock } from '../kernel/manual-clock.ts';

test('what O_CREAT finds is told as it is when it is opened, not as it was when it was looked for', async () => {
  const clock = new ManualClock();
  const service = new VersionService();
  const side = await FileSystemSide.build({ listing: service, source: service, clock });
  try {
    service.put('file', Buffer.from('theirs'), 1_000_000);
    await new InProcessMount(side.fileSystem).stat('file');
    service.put('file', Buffer.from('theirs, and longer'), 2_000_000);
    clock.jump(60_000); // the listing is old: the open waits for another

    const entry = await side.fileSystem.create(
      ROOT_INODE,
      'file',
      0o644,
      { access: 'read', append: false, truncate: false, raw: constants.O_CREAT },
      { uid: 0, gid: 0, pid: 1, umask: 0, signal: new AbortController().signal },
    );

    expect(entry.attributes.sizeBytes).toBe('theirs, and longer'.length);
    await side.fileSystem.release(entry.attributes.ino, entry.open.handle);
  } finally {
    await side.close();
  }
});
