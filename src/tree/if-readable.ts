import type { Logger } from '../base/log.ts';
import type { Inode } from '../base/vocabulary.ts';

/** Reads what a timer or a push wants to know of one node: nobody hears what a damaged record throws there, it would end the mount. */
export function ifReadable<T>(log: Logger, ino: Inode, read: () => T): T | undefined {
  try {
    return read();
  } catch (err) {
    log.debug({ err, ino }, 'not looked at: its record cannot be read');
    return undefined;
  }
}
