import type { Inode } from '../base/vocabulary.ts';

/** The wait graph: which node waits for the push of which other node. Each node waits for at most one other. */
export class Waits {
  readonly #blockers = new Map<Inode, Inode>();
  readonly #waiters = new Map<Inode, Set<Inode>>();

  add(ino: Inode, blocker: Inode): void {
    this.end(ino);
    this.#blockers.set(ino, blocker);
    const waiters = this.#waiters.get(blocker) ?? new Set<Inode>();
    this.#waiters.set(blocker, waiters);
    waiters.add(ino);
  }

  /**
   * The nodes of the cycle that `ino` is part of, in the order of the waits; empty if its chain ends, or leads into a cycle of other nodes.
   *
   * @param acyclic nodes that earlier calls of the same turn found on no cycle. Without them, each node of a long chain would walk to its end
   */
  ringOf(ino: Inode, acyclic: Set<Inode>): readonly Inode[] {
    // Its wait may be new.
    if (acyclic.has(ino)) acyclic.clear();
    const ring = new Set<Inode>();
    let at: Inode | undefined = ino;
    for (; at !== undefined && !ring.has(at) && !acyclic.has(at); at = this.#blockers.get(at)) ring.add(at);
    if (at === ino) return [...ring];
    for (const one of ring) acyclic.add(one);
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
