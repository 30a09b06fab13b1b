/** The changes of one file, one after another, where the pool takes its time for one (ADR 18). */
export class OrderedChanges {
  #underWay: Promise<void> | null = null;

  /** Settles, and never fails, when what the pool has at hand is over and what came behind it until now; null while there is nothing. */
  get underWay(): Promise<void> | null {
    return this.#underWay;
  }

  /** Acts after what is under way; at once, and without a promise, where nothing is. */
  run(act: () => void | Promise<void>): void | Promise<void> {
    const done = this.#underWay === null ? act() : this.#underWay.then(act);
    if (done === undefined) return;
    const over = done
      .catch(() => {})
      .then(() => {
        if (this.#underWay === over) this.#underWay = null;
      });
    this.#underWay = over;
    return done;
  }
}
