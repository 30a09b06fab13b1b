import type { Logger } from '../base/log.ts';
import type { Inode } from '../base/vocabulary.ts';

/**
 * Reads one node for a timer or a push. No caller could handle the error of a damaged record, and it would end the
 * mount.
 */
export function ifReadable<T>(log: Logger, ino: Inode, read: () => T): T | undefined {
  try {
    return read();
  } catch (err) {
    log.debug({ err, ino }, 'node skipped: its record cannot be read');
    return undefined;
  }
}
