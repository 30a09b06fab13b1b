import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { ContentId, Inode } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import type { FileBytes, StoreWriter } from '../store/tables.ts';
import type { BlockReader } from './block-reader.ts';
import type { RequestRetry } from './request-retry.ts';
import type { VersionSource } from './version-source.ts';

/** What an open file depends on. `File`: the open file itself. */
export interface OpenFileDepsOf<File> {
  readonly store: StoreWriter;
  readonly contents: Contents;
  readonly reader: BlockReader;
  readonly source: VersionSource;
  readonly retry: RequestRetry;
  readonly clock: Clock;
  readonly log: Logger;
  readonly shutdown: AbortSignal;
  /** Limit of the revalidation when a racily clean file is opened (`--open-wait`); 0: none. */
  readonly openWaitMs: number;
  /** The newest version is not the listed one, `was`: size and time of the node changed, and the kernel must be notified. */
  readonly onRepinned: (ino: Inode, was: FileBytes) => void;
  /** The bytes differ from those read or written before, also for open handles: the kernel must be notified. */
  readonly onOtherBytes: (ino: Inode) => void;
  readonly onHeld?: (file: File, content: ContentId | 'older') => void;
  /** A successor of this process would not find the latest change. */
  readonly onUnkept?: (file: File) => void;
  /** A flush stored bytes: the file is to be pushed. */
  readonly onWritten: (ino: Inode) => void;
}
