import type { ServiceHealth } from '../base/service-health.ts';
import type { Inode } from '../base/vocabulary.ts';
import type { Intents } from '../store/intents.ts';
import type { DirtyIndex } from './dirty-index.ts';
import type { SyncDeps } from './sync-deps.ts';
import type { SyncRequest } from './sync-request.ts';

export interface PushSchedulerDeps
  extends Pick<SyncDeps, 'store' | 'names' | 'vacated' | 'isOpen' | 'isBeingWritten' | 'clock' | 'log' | 'options'> {
  readonly index: DirtyIndex;
  readonly intents: Intents;
  /** Nothing is ready before `retryAtMs`. */
  readonly health: Pick<ServiceHealth, 'retryAtMs' | 'isProbing'>;
  /** Whether a person paused pushing: nothing is ready then. */
  readonly isPaused: () => boolean;
  /** The node whose push works for this one, or the node itself where no push of it may start; null for none. */
  readonly pusherOf: (ino: Inode) => Inode | null;
  /** Nodes that `cfs sync --wait` names skip the settle delay. */
  readonly requests: Iterable<Pick<SyncRequest, 'has' | 'waitsFor'>>;
  /** There are nodes to decide about: the loop has to run a turn. */
  readonly onWork: () => void;
  /** The running push of the node is void and has to be aborted. May be called again until it has ended. */
  readonly onVoid: (ino: Inode) => void;
  /** The decision about a node failed. The callee parks the node, or puts it off by `failed`. */
  readonly onUndecided: (ino: Inode, error: unknown) => void;
}
