import { expect } from 'vitest';
import { O_CREAT, O_RDWR } from './file-api.ts';
import type { Difference } from './suite.ts';
import { fails } from './workplace.ts';

/** Where our mount differs from ext4 on purpose. Each line stands in `docs/semantics.md` too, with its reason. */
export const DOCUMENTED_DIFFERENCES: Readonly<Record<string, Difference>> = {
  'a hard link is a second name of the same file': {
    reason: 'the service has one name per file: link(2) is EPERM, as on FAT',
    async instead(fs) {
      await fs.put('one', 'bytes');
      await fails('EPERM', fs.link('one', 'two'));
      expect(await fs.names()).toEqual(['one']);
    },
  },
  'mknod of a device makes a device': {
    reason: 'the mount is nodev, and the service has files, folders and links only: EPERM',
    async instead(fs) {
      await fails('EPERM', fs.process.mknod('character', 0o020600));
      await fails('EPERM', fs.process.mknod('block', 0o060600));
      expect(await fs.names()).toEqual([]);
    },
  },
  'the link count of a folder counts its subfolders': {
    reason: 'a folder has one link, as on btrfs: find(1) takes that to mean that the count says nothing',
    async instead(fs) {
      await fs.mkdir('folder');
      await fs.mkdir('folder/one');
      expect((await fs.stat('folder')).nlink).toBe(1);
      expect((await fs.stat('')).nlink).toBe(1);
    },
  },
  'a sparse file takes little room': {
    reason:
      'st_blocks follows from the size: the service keeps no holes, and the local disk space is a matter of the cache',
    async instead(fs) {
      const fd = await fs.open('file', O_RDWR | O_CREAT);
      await fs.write(fd, 64 * 1024 * 1024, 'x');
      const { sizeBytes, blocks512 } = await fs.fstat(fd);
      expect(blocks512).toBe(Math.ceil(sizeBytes / 512));
      await fs.close(fd);
      await fs.unlink('file');
    },
  },
  'a name that is not UTF-8 is kept as it is': {
    reason: 'names travel as text: EILSEQ when one is made, and none is found',
    async instead(fs) {
      const name = Buffer.from([0x66, 0xff, 0xfe, 0x67]);
      await fails('EILSEQ', fs.put(name, 'x'));
      await fails(['EILSEQ', 'ENOENT'], fs.lstat(name));
    },
  },
};
