import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Clock } from '../base/clock.ts';
import { type Inode, ROOT_INODE } from '../base/vocabulary.ts';
import { soundNode } from '../store/node-table.ts';
import type { DirtyRecord, StoreReader } from '../store/tables.ts';

/** The states of dirty nodes, from the mildest to the worst. */
export type DirtyState = 'pending' | 'pushing' | `parked:${string}`;

/** Dirty nodes visited in one turn of the event loop. */
const NODES_PER_TURN = 250;
/** A computed result is used for this many times its cost, so that many dirty nodes do not burden each reader. */
const AGE_PER_COST = 20;

/**
 * The worst state below each folder. Computed from the dirty nodes on request: pushes write nothing for it, and without dirty nodes there is
 * no work. With very many dirty nodes the result may be some seconds old.
 */
export class FolderStates {
  readonly #deps: FolderStatesDeps;
  #worst: ReadonlyMap<Inode, DirtyState> = new Map();
  /** By `elapsedMs`; null: not computed yet. */
  #computedMs: number | null = null;
  #tookMs = 0;
  #isStale = true;
  #computing: Promise<void> | null = null;

  constructor(deps: FolderStatesDeps) {
    this.#deps = deps;
  }

  /** A node became dirty or clean, or its push began or ended. Cheap. */
  changed(): void {
    this.#isStale = true;
  }

  /** null: no node below the folder is dirty. */
  worstBelow(folder: Inode): DirtyState | null | Promise<DirtyState | null> {
    if (this.#deps.dirty()[Symbol.iterator]().next().done === true) return null;
    const { clock } = this.#deps;
    const ageMs = this.#computedMs === null ? Number.POSITIVE_INFINITY : clock.elapsedMs() - this.#computedMs;
    if (!this.#isStale || ageMs < this.#tookMs * AGE_PER_COST) return this.#worst.get(folder) ?? null;
    this.#computing ??= this.#compute().finally(() => {
      this.#computing = null;
    });
    return this.#computing.then(() => this.#worst.get(folder) ?? null);
  }

  async #compute(): Promise<void> {
    const { store, clock, dirty, isPushing } = this.#deps;
    const startedMs = clock.elapsedMs();
    this.#isStale = false;
    const worst = new Map<Inode, DirtyState>();
    let seen = 0;
    for (const [ino, record] of dirty()) {
      if (++seen % NODES_PER_TURN === 0) await nextTurn();
      const state = stateOfDirty(record, isPushing(ino));
      const node = soundNode(store, ino);
      let at = node?.local?.parent ?? node?.remote?.parent;
      // If a folder already has a state that is as bad, so have all folders above it.
      for (let deep = 0; at !== undefined && deep < DEEP_MAX && isWorse(state, worst.get(at)); deep++) {
        worst.set(at, state);
        if (at === ROOT_INODE) break;
        const above = soundNode(store, at);
        at = above?.local?.parent ?? above?.remote?.parent;
      }
    }
    this.#worst = worst;
    this.#computedMs = clock.elapsedMs();
    this.#tookMs = this.#computedMs - startedMs;
  }
}

export interface FolderStatesDeps {
  readonly store: StoreReader;
  readonly clock: Pick<Clock, 'elapsedMs'>;
  readonly dirty: () => Iterable<readonly [Inode, DirtyRecord]>;
  readonly isPushing: (ino: Inode) => boolean;
}

export function stateOfDirty({ parked }: DirtyRecord, isPushing: boolean): DirtyState {
  if (isPushing) return 'pushing';
  return parked === null ? 'pending' : `parked:${parked.reason}`;
}

/** Whether `state` is worse. Of two equal states, the first one stays. */
export function isWorse(state: DirtyState, than: DirtyState | undefined | null): boolean {
  return rankOf(state) > (than == null ? 0 : rankOf(than));
}

function rankOf(state: DirtyState): number {
  if (state === 'pending') return 1;
  return state === 'pushing' ? 2 : 3;
}

/** Bounds the way up: damaged records may form a loop. */
const DEEP_MAX = 4096;
