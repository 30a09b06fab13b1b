import type { Inode } from '../base/vocabulary.ts';
import { isContentDirty } from '../store/node-table.ts';
import type { DirtyIndex } from './dirty-index.ts';
import type { DueTimes } from './due-times.ts';
import type { Intents } from './intents.ts';
import type { PlanView } from './plan.ts';
import type { SyncDeps } from './sync-loop.ts';
import type { VersionPace } from './version-pace.ts';

/** What the loop knows beyond the store. */
export interface LoopState {
  readonly index: DirtyIndex;
  readonly intents: Intents;
  readonly due: DueTimes;
  readonly pace: VersionPace;
  isPushing(ino: Inode): boolean;
  /** Somebody waits for it (`cfs sync --wait`): it does not settle. */
  isUrgent(ino: Inode): boolean;
  isSplit(folder: Inode): boolean;
}

/** The plan's eyes on the store and on the loop that asks it. */
export function planViewOf(deps: SyncDeps, state: LoopState): PlanView {
  const { store, clock, options, names, isOpen, isBeingWritten } = deps;
  const { index, intents, due, pace, isPushing, isUrgent, isSplit } = state;
  return {
    get nowMs() {
      return clock.nowMs();
    },
    get elapsedMs() {
      return clock.elapsedMs();
    },
    saveWindowMs: options.saveWindowMs,
    deletion: options.deletion,
    node: (ino) => store.get('node', ino),
    child: (parent, name) => {
      const ino = store.get('name', [parent, name]);
      return ino === undefined ? undefined : store.get('node', ino);
    },
    dirty: (ino) => store.get('dirty', ino),
    settledMs: (ino) => {
      const triedMs = due.triedMs(ino);
      if (isUrgent(ino)) return triedMs;
      const node = store.get('node', ino);
      const pacedMs = node !== undefined && isContentDirty(node) ? pace.notBeforeMs(ino) : 0;
      return Math.max(due.settledMs(ino), triedMs, pacedMs);
    },
    isPushing,
    isUnsure: (ino) => store.get('upload', ino) !== undefined,
    predecessor: (ino) => intents.predecessor(ino),
    occupants: (parent, remoteName) => index.occupants(parent, remoteName),
    remoteChildren: (folder) => index.remoteChildren(folder),
    needsContent: (content) => index.needsContent(content),
    isOpen,
    isBeingWritten,
    isSplit,
    remoteName: (fileName) => names.toRemoteName(fileName),
  };
}
