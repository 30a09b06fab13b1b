import type { Inode } from '../base/vocabulary.ts';

/** Who waits for whose push. Each node waits for at most one other. */
export class Waits {
  readonly #blockers = new Map<Inode, Inode>();
  readonly #waiters = new Map<Inode, Set<Inode>>();
  /** Who waits for nobody in the end, as was found since one of them began to wait: of a long row each would go to its end. */
  readonly #ending = new Set<Inode>();

  add(ino: Inode, blocker: Inode): void {
    this.end(ino);
    this.#blockers.set(ino, blocker);
    const waiters = this.#waiters.get(blocker) ?? new Set<Inode>();
    this.#waiters.set(blocker, waiters);
    waiters.add(ino);
  }

  /** Those who wait for each other, `ino` among them; none where it waits for nobody in the end, or for others that do. */
  ringOf(ino: Inode): readonly Inode[] {
    if (this.#ending.has(ino) || this.#ending.size > ENDING_MAX) this.#ending.clear();
    const ring = new Set<Inode>();
    let at: Inode | undefined = ino;
    for (; at !== undefined && !ring.has(at) && !this.#ending.has(at); at = this.#blockers.get(at)) ring.add(at);
    if (at === ino) return [...ring];
    for (const one of ring) this.#ending.add(one);
    return [];
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

const ENDING_MAX = 100_000;
