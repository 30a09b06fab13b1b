import type { Inode } from '../base/vocabulary.ts';

/** The wait chains: which node waits for the push of which other node. Each node waits for at most one other. */
export class Waits {
  readonly #blockers = new Map<Inode, Inode>();
  readonly #waiters = new Map<Inode, Set<Inode>>();
  /** Nodes whose wait chain is known to end. Without this memo, each node of a long chain would walk to its end. */
  readonly #ending = new Set<Inode>();

  add(ino: Inode, blocker: Inode): void {
    this.end(ino);
    this.#blockers.set(ino, blocker);
    const waiters = this.#waiters.get(blocker) ?? new Set<Inode>();
    this.#waiters.set(blocker, waiters);
    waiters.add(ino);
  }

  /** The nodes of the cycle that `ino` is part of; empty if its chain ends, or leads into a cycle of other nodes. */
  ringOf(ino: Inode): readonly Inode[] {
    if (this.#ending.has(ino) || this.#ending.size > ENDING_MAX) this.#ending.clear();
    const ring = new Set<Inode>();
    let at: Inode | undefined = ino;
    for (; at !== undefined && !ring.has(at) && !this.#ending.has(at); at = this.#blockers.get(at)) ring.add(at);
    if (at === ino) return [...ring];
    for (const one of ring) this.#ending.add(one);
    return [];
  }

  /** @returns the node that `ino` waited for */
  end(ino: Inode): Inode | undefined {
    const blocker = this.#blockers.get(ino);
    if (blocker === undefined) return undefined;
    this.#blockers.delete(ino);
    const waiters = this.#waiters.get(blocker);
    waiters?.delete(ino);
    if (waiters?.size === 0) this.#waiters.delete(blocker);
    return blocker;
  }

  *waitersOf(blocker: Inode): Iterable<Inode> {
    yield* this.#waiters.get(blocker) ?? [];
  }
}

const ENDING_MAX = 100_000;
