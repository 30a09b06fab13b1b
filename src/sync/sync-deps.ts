import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { ServiceHealth } from '../base/service-health.ts';
import type { ContentId, Extent, Inode } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import type { Intents } from '../store/intents.ts';
import type { StoreWriter } from '../store/tables.ts';
import type { RemoteChanges, UploadService } from './remote-changes.ts';
import type { OnTreeChange, RemoteNaming } from './remote-naming.ts';
import type { SyncEvent } from './sync-event.ts';
import type { SyncOptions } from './sync-options.ts';
import type { OnSameBytes } from './unchanged-draft.ts';

export interface SyncDeps {
  readonly store: StoreWriter;
  readonly contents: Contents;
  readonly names: RemoteNaming;
  readonly intents: Intents;
  readonly changes: RemoteChanges;
  readonly uploads: UploadService;
  /** Fetches what is missing of a version, so that a draft over it can be sent. */
  readonly complete: (content: ContentId, extent: Extent, signal: AbortSignal) => Promise<void>;
  readonly isOpen: (ino: Inode) => boolean;
  /** Whether a program is at it, and what it holds is not to be pushed now. */
  readonly isBeingWritten: (ino: Inode) => boolean;
  /** Whether a program has it open for writing, also where what it holds may be pushed meanwhile. */
  readonly isOpenForWriting: (ino: Inode) => boolean;
  /** Looks whether what a change is to be pushed into is still where it was, if that was not seen lately. Absent: it is. Never rejects. */
  readonly beforePush?: (ino: Inode) => void | Promise<void>;
  readonly health: ServiceHealth;
  readonly clock: Clock;
  readonly log: Logger;
  /** For a person to read. */
  readonly onEvent: (event: SyncEvent) => void;
  /** What the kernel has to forget: the sync changed what users see (a conflicted copy; theirs taken over). */
  readonly onTreeChange: OnTreeChange;
  /** Absent: no file is open. */
  readonly onSameBytes?: OnSameBytes;
  readonly options: SyncOptions;
}
