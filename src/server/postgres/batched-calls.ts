/**
 * Calls of one turn of the event loop run together. Batches do not wait for each other, so a statement that hangs holds up only
 * the calls of its turn.
 */
export class BatchedCalls<Call, Answer> {
  readonly #run: (calls: readonly Call[]) => Promise<readonly Answer[]>;
  #next: Waiting<Call, Answer>[] = [];

  /** @param run returns one answer per call, in their order. If it rejects, every call of the batch rejects with that error. */
  constructor(run: (calls: readonly Call[]) => Promise<readonly Answer[]>) {
    this.#run = run;
  }

  call(call: Call): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#next.push({ call, resolve, reject });
      if (this.#next.length === 1) setImmediate(() => void this.#runNext());
    });
  }

  async #runNext(): Promise<void> {
    const batch = this.#next;
    this.#next = [];
    try {
      const answers = await this.#run(batch.map(({ call }) => call));
      for (const [at, { resolve }] of batch.entries()) resolve(answers[at] as Answer);
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
  }
}

interface Waiting<Call, Answer> {
  readonly call: Call;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (reason: unknown) => void;
}
