import type { Inode } from '../base/vocabulary.ts';
import { soundNode, staysHere } from '../store/node-table.ts';
import type { Agenda } from './agenda.ts';
import type { SyncDeps } from './sync-deps.ts';
import {
  changeKindOf,
  type ParkedChange,
  type PendingChange,
  parkedChange,
  type SyncStatus,
  type WaitingChange,
} from './sync-event.ts';

/** Reports the pushes to users and to `cfs status`. Changes nothing. */
export class SyncReporter {
  readonly #deps: SyncReporterDeps;

  constructor(deps: SyncReporterDeps) {
    this.#deps = deps;
  }

  get status(): SyncStatus {
    const { store, agenda, pushing } = this.#deps;
    const parked: ParkedChange[] = [];
    let pending = 0;
    for (const [ino, dirty] of agenda.dirty()) {
      pending++;
      if (dirty.parked !== null) parked.push(parkedChange(store, ino, dirty.parked));
    }
    return { pending, pushing: pushing.size, postponed: agenda.postponed, parked };
  }

  /** All pending and parked changes, in no order. There may be very many: the caller yields to other work in between. */
  *changes(): Iterable<WaitingChange> {
    const { store, clock, agenda, pushing } = this.#deps;
    for (const [ino, dirty] of agenda.dirty()) {
      if (dirty.parked !== null) {
        yield { parked: parkedChange(store, ino, dirty.parked) };
        continue;
      }
      const node = soundNode(store, ino);
      if (node === undefined) continue;
      const kind = changeKindOf(node);
      const dueMs = agenda.dueMs(ino);
      const isDue = dueMs <= clock.elapsedMs() || pushing.has(ino);
      const pending: PendingChange = {
        ino,
        kind,
        sizeBytes: kind === 'upload' ? (node.local?.sizeBytes ?? null) : null,
        dueMs: isDue ? null : Math.round(clock.nowMs() + dueMs - clock.elapsedMs()),
        attempts: agenda.failuresOf(ino),
      };
      yield { pending };
    }
  }

  /** Failed pushes that were postponed, since the start. */
  get postponed(): number {
    return this.#deps.agenda.postponed;
  }

  /** The state of one node for users (`user.cfs.state`). */
  stateOf(ino: Inode): 'clean' | 'local' | 'pending' | 'pushing' | `parked:${string}` {
    const { store, pushing } = this.#deps;
    if (pushing.has(ino)) return 'pushing';
    const dirty = store.get('dirty', ino);
    if (dirty === undefined) {
      const node = soundNode(store, ino);
      return node !== undefined && staysHere(node) ? 'local' : 'clean';
    }
    return dirty.parked === null ? 'pending' : `parked:${dirty.parked.reason}`;
  }
}

export interface SyncReporterDeps extends Pick<SyncDeps, 'store' | 'clock'> {
  readonly agenda: Pick<Agenda, 'dirty' | 'dueMs' | 'failuresOf' | 'postponed'>;
  /** Nodes that are being pushed. */
  readonly pushing: { readonly size: number; has(ino: Inode): boolean };
}
