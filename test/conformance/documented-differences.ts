import { expect } from 'vitest';
import { O_RDWR, O_TMPFILE } from './file-api.ts';
import type { Difference } from './suite.ts';
import { fails } from './workplace.ts';

/** Where our mount differs from ext4 on purpose. Each line stands in `docs/semantics.md` too, with its reason. */
export const DOCUMENTED_DIFFERENCES: Readonly<Record<string, Difference>> = {
  'a hard link is a second name of the same file': {
    reason: 'the service has one name per file: link(2) is EPERM, as on FAT, and programs copy instead',
    async instead(fs) {
      await fs.put('one', 'bytes');
      await fails('EPERM', fs.link('one', 'two'));
      expect(await fs.names()).toEqual(['one']);
    },
  },
  'O_TMPFILE makes a file without a name': {
    reason: 'a file without a name cannot become one later (no hard links): EOPNOTSUPP, and programs make a named one',
    async instead(fs) {
      await fails('EOPNOTSUPP', fs.open('', O_RDWR | O_TMPFILE, 0o600));
    },
  },
  'mknod of a FIFO makes a FIFO': {
    reason: 'the service has files, folders and links only: EPERM',
    async instead(fs) {
      await fails('EPERM', fs.process.mknod('fifo', 0o010644));
      await fails('EPERM', fs.process.mknod('device', 0o020644));
      expect(await fs.names()).toEqual([]);
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
