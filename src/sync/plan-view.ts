import type { Inode } from '../base/vocabulary.ts';
import { isTrashFolder } from '../store/local-trash.ts';
import { isContentDirty, isMoved } from '../store/node-table.ts';
import type { CollisionMemory } from './collision-memory.ts';
import type { PlanView } from './plan.ts';
import type { PushSchedulerDeps } from './push-scheduler-deps.ts';
import type { RetrySchedule } from './retry-schedule.ts';
import type { VersionThrottle } from './version-throttle.ts';

/** The plan's view of the store and of the push scheduler. */
export function planViewOf(deps: PlanViewDeps): PlanView {
  const { store, clock, options, names, vacated, isOpen, isBeingWritten } = deps;
  const { index, intents, due, pace, requests, splits, refused } = deps;
  const isUrgent = (ino: Inode): boolean => {
    for (const request of requests) if (request.has(ino)) return true;
    return false;
  };
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
      return Math.max(due.settledMs(ino, node?.local === null), triedMs, pacedMs);
    },
    triedMs: (ino) => due.triedMs(ino),
    pusherOf: deps.pusherOf,
    sendsVersion: (ino) => {
      const intent = intents.ownedBy(ino);
      return intent?.version != null && intent.resource === store.get('node', ino)?.remote?.resource;
    },
    isUnsure: (ino) => intents.ownedBy(ino) !== undefined,
    claimant: ({ local, remote }) => {
      const place = remote === null ? undefined : vacated.claimOf(remote.resource);
      if (remote === null || place === undefined) return null;
      if (remote.parent === place.parent && remote.shownAs === place.name) return null;
      if (local !== null && isMoved(local, remote)) return null;
      const holder = store.get('name', [place.parent, place.name]);
      const node = holder === undefined ? undefined : store.get('node', holder);
      if (holder === undefined || node?.remote !== null || node.localOnly) return null;
      return store.get('dirty', holder)?.parked === null ? holder : null;
    },
    occupants: (parent, remoteName) => index.occupants(parent, remoteName),
    remoteChildren: (folder) => index.remoteChildren(folder),
    whoNeeds: ({ content, resource, parent }) => {
      const needing = content === null ? null : index.whoNeeds(content);
      const isForever = options.deletion === 'forever' || isTrashFolder(store, parent);
      if (needing !== null || !isForever) return needing;
      // The deletion includes all versions, also one that no node shows yet (the bytes of a conflicted copy). The bytes that a damaged node
      // needs are unknown.
      return index.whoNeeds(resource) ?? (content === null ? null : index.unreadable);
    },
    isOpen,
    isBeingWritten,
    isSplit: (folder) => splits.has(folder),
    refusedBy: (ino) => refused.holderOf(ino),
    isTrash: (folder) => isTrashFolder(store, folder),
    remoteName: (fileName) => names.toRemoteName(fileName),
  };
}

export interface PlanViewDeps extends Omit<PushSchedulerDeps, 'line' | 'log' | 'onWork'> {
  readonly due: RetrySchedule;
  readonly pace: VersionThrottle;
  /** Folders that cannot go to the trash in one piece. */
  readonly splits: ReadonlySet<Inode>;
  readonly refused: Pick<CollisionMemory, 'holderOf'>;
}
