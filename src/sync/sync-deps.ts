import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { ServiceHealth } from '../base/service-health.ts';
import type { ContentId, Extent, Inode } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import type { Intents } from '../store/intents.ts';
import type { StoreWriter } from '../store/tables.ts';
import type { VacatedNames } from '../tree/vacated-names.ts';
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
  /** Names that a save may take over. */
  readonly vacated: VacatedNames;
  readonly changes: RemoteChanges;
  readonly uploads: UploadService;
  /** Fetches the missing bytes of a version, so that a draft over it can be sent. */
  readonly complete: (content: ContentId, extent: Extent, signal: AbortSignal) => Promise<void>;
  readonly isOpen: (ino: Inode) => boolean;
  /** Whether a program is writing to the file, so that it must not be pushed now. */
  readonly isBeingWritten: (ino: Inode) => boolean;
  /** Whether a program has the file open for writing, even if it may be pushed meanwhile. */
  readonly isOpenForWriting: (ino: Inode) => boolean;
  /** The push preflight: checks that the target folder still exists, unless that was seen recently. Absent: no check. Never rejects. */
  readonly beforePush?: (ino: Inode) => void | Promise<void>;
  readonly health: ServiceHealth;
  readonly clock: Clock;
  readonly log: Logger;
  /** Reports an event for a person to read. */
  readonly onEvent: (event: SyncEvent) => void;
  /**
   * Reports changes of the visible tree that a push caused (a conflicted copy; another client's version adopted). The kernel has to forget
   * these entries.
   */
  readonly onTreeChange: OnTreeChange;
  /** Absent: no file is open. */
  readonly onSameBytes?: OnSameBytes;
  readonly options: SyncOptions;
}
