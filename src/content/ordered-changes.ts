/** Runs `change`, and `failed` if it fails. */
export function noteFailure(change: () => void | Promise<void>, failed: () => void): void | Promise<void> {
  const rethrow = (error: unknown): never => {
    failed();
    throw error;
  };
  try {
    return change()?.catch(rethrow);
  } catch (error) {
    rethrow(error);
  }
}

/** Serializes the changes of one file while the thread pool executes one of them (ADR 18). */
export class OrderedChanges {
  #underWay: Promise<void> | null = null;

  /** Resolves, and never rejects, when the running change and those queued behind it are over; null if there is none. */
  get underWay(): Promise<void> | null {
    return this.#underWay;
  }

  /** Runs `act` after the changes under way; immediately, and without a promise, if there are none. */
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
