import { expect, test } from 'vitest';
import { ROOT_INODE } from '../../src/base/vocabulary.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';

/** A signal costs more than most answers: whoever finds everything here must not ask for one. */
test('opening, reading, writing and truncating what is here asks for no signal', async () => {
  const tower = await FileSystemSide.build();
  try {
    const mount = new InProcessMount(tower.fileSystem);
    await mount.writeFile('file', Buffer.from('what is here'));
    const { ino } = await mount.stat('file');
    let asked = 0;
    const ctx = {
      ...{ uid: 0, gid: 0, pid: 1, umask: 0 },
      get signal(): AbortSignal {
        asked++;
        return new AbortController().signal;
      },
    };
    const flags = { access: 'read-write', append: false, truncate: false, raw: 2 } as const;
    const { handle } = await tower.fileSystem.open(ino, flags, ctx);

    const answers = [
      tower.fileSystem.lookup(ROOT_INODE, 'file', ctx),
      tower.fileSystem.read(ino, handle, 0, 4, ctx),
      tower.fileSystem.write(ino, handle, 5, Buffer.from('was'), ctx),
      tower.fileSystem.setattr(ino, { sizeBytes: 8 }, handle, ctx),
      tower.fileSystem.unlink(ROOT_INODE, 'file', ctx),
    ];

    expect(answers.filter((answer) => answer instanceof Promise)).toEqual([]);
    expect(asked).toBe(0);
    await tower.fileSystem.release(ino, handle);
  } finally {
    await tower.close();
  }
});
