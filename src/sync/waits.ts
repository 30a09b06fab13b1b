import type { Inode } from '../base/vocabulary.ts';

/** Who waits for whose push. Each node waits for at most one other. */
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

  /** @returns for whom it waited */
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
