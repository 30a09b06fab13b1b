import type { Inode } from '../base/vocabulary.ts';
import { soundNode, staysHere } from '../store/node-table.ts';
import { type DirtyState, FolderStates, isWorse, stateOfDirty } from './folder-states.ts';
import type { PushScheduler } from './push-scheduler.ts';
import type { SyncDeps } from './sync-deps.ts';
import {
  changeKindOf,
  type ParkedChange,
  type PendingChange,
  parkedChange,
  type SyncStatus,
  type WaitingChange,
} from './sync-event.ts';

/** `local`: its name keeps it on this machine. */
export type NodeState = 'clean' | 'local' | DirtyState;

/** Reports the pushes to users and to `cfs status`. Changes nothing. */
export class SyncReporter {
  readonly #deps: SyncReporterDeps;
  readonly #folders: FolderStates;

  constructor(deps: SyncReporterDeps) {
    this.#deps = deps;
    const { store, clock, scheduler, pushing } = deps;
    this.#folders = new FolderStates({
      ...{ store, clock, dirty: () => scheduler.dirty() },
      isPushing: (ino) => pushing.has(ino),
    });
  }

  get status(): SyncStatus {
    const { store, scheduler, pushing } = this.#deps;
    const parked: ParkedChange[] = [];
    let pending = 0;
    for (const [ino, dirty] of scheduler.dirty()) {
      pending++;
      if (dirty.parked !== null) parked.push(parkedChange(store, ino, dirty.parked));
    }
    return { pending, pushing: pushing.size, postponed: scheduler.postponed, parked };
  }

  /** All pending and parked changes, in no order. There may be very many: the caller yields to other work in between. */
  *changes(): Iterable<WaitingChange> {
    const { store, clock, scheduler, pushing } = this.#deps;
    for (const [ino, dirty] of scheduler.dirty()) {
      if (dirty.parked !== null) {
        yield { parked: parkedChange(store, ino, dirty.parked) };
        continue;
      }
      const node = soundNode(store, ino);
      if (node === undefined) continue;
      const kind = changeKindOf(node);
      const dueMs = scheduler.dueMs(ino);
      const isDue = dueMs <= clock.elapsedMs() || pushing.has(ino);
      const pending: PendingChange = {
        ino,
        kind,
        sizeBytes: kind === 'upload' ? (node.local?.sizeBytes ?? null) : null,
        dueMs: isDue ? null : Math.round(clock.nowMs() + dueMs - clock.elapsedMs()),
        attempts: scheduler.failuresOf(ino),
      };
      yield { pending };
    }
  }

  /** Failed pushes that were postponed, since the start. */
  get postponed(): number {
    return this.#deps.scheduler.postponed;
  }

  /** A node was changed, or its push began or ended. */
  changed(): void {
    this.#folders.changed();
  }

  /** The state of one node for users (`user.cfs.state`): of a folder, the worst state of itself and of everything below it. */
  stateOf(ino: Inode): NodeState | Promise<NodeState> {
    const { store, pushing } = this.#deps;
    const node = soundNode(store, ino);
    const dirty = store.get('dirty', ino);
    const own = pushing.has(ino) ? 'pushing' : dirty === undefined ? null : stateOfDirty(dirty, false);
    if (node?.kind !== 'folder') return own ?? (node !== undefined && staysHere(node) ? 'local' : 'clean');
    const worst = (below: DirtyState | null): NodeState =>
      own !== null && (below === null || !isWorse(below, own)) ? own : (below ?? (staysHere(node) ? 'local' : 'clean'));
    const below = this.#folders.worstBelow(ino);
    return below instanceof Promise ? below.then(worst) : worst(below);
  }
}

export interface SyncReporterDeps extends Pick<SyncDeps, 'store' | 'clock'> {
  readonly scheduler: Pick<PushScheduler, 'dirty' | 'dueMs' | 'failuresOf' | 'postponed'>;
  /** Nodes that are being pushed. */
  readonly pushing: { readonly size: number; has(ino: Inode): boolean };
}
