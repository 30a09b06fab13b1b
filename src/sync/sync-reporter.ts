import type { Inode } from '../base/vocabulary.ts';
import { soundNode, staysHere } from '../store/node-table.ts';
import type { Agenda } from './agenda.ts';
import type { ServiceLine } from './service-line.ts';
import type { SyncDeps } from './sync-deps.ts';
import {
  changeKindOf,
  type ParkedChange,
  type PendingChange,
  parkedChange,
  type SyncStatus,
  type WaitingChange,
} from './sync-event.ts';

/** What is told of the pushes, to a person and to `cfs status`. Changes nothing. */
export class SyncReporter {
  readonly #deps: SyncReporterDeps;

  constructor(deps: SyncReporterDeps) {
    this.#deps = deps;
  }

  get status(): SyncStatus {
    const { store, agenda, line, pushing } = this.#deps;
    const parked: ParkedChange[] = [];
    let pending = 0;
    for (const [ino, dirty] of agenda.dirty()) {
      pending++;
      if (dirty.parked !== null) parked.push(parkedChange(store, ino, dirty.parked));
    }
    const { offlineSinceMs, signInNeeded } = line;
    return { pending, pushing: pushing.size, postponed: agenda.postponed, parked, offlineSinceMs, signInNeeded };
  }

  /** All that is to be pushed, in no order. There may be very many: whoever takes them gives up the turn in between. */
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

  /** Pushes that failed and were put off, since the start. */
  get postponed(): number {
    return this.#deps.agenda.postponed;
  }

  /** What a person is told about one node (`user.cfs.state`). */
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
  readonly line: ServiceLine;
  /** Nodes that are being pushed. */
  readonly pushing: { readonly size: number; has(ino: Inode): boolean };
}
