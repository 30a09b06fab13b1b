import { expect, test } from 'vitest';
import { ROOT_INODE } from '../../src/base/vocabulary.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';

/** A signal costs more than most answers: whoever finds everything here must not ask for one. */
test('opening, reading, writing and truncating what is here asks for no signal', async () => {
  const side = await FileSystemSide.build();
  try {
    const mount = new InProcessMount(side.fileSystem);
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
    const { handle } = await side.fileSystem.open(ino, flags, ctx);

    const answers = [
      side.fileSystem.lookup(ROOT_INODE, 'file', ctx),
      side.fileSystem.read(ino, handle, 0, 4, ctx),
      side.fileSystem.write(ino, handle, 5, Buffer.from('was'), ctx),
      side.fileSystem.setattr(ino, { sizeBytes: 8 }, handle, ctx),
      side.fileSystem.unlink(ROOT_INODE, 'file', ctx),
    ];

    expect(answers.filter((answer) => answer instanceof Promise)).toEqual([]);
    expect(asked).toBe(0);
    await side.fileSystem.release(ino, handle);
  } finally {
    await side.close();
  }
});
