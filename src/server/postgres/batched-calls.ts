import { setImmediate as nextTurn } from 'node:timers/promises';

/**
 * Calls that arrive at about the same time run together. A batch waits until the last one has ended and its callers have called again, at
 * most some milliseconds: so few statements do the work of many callers, and one that hangs holds up no others. The only caller
 * waits for none.
 */
export class BatchedCalls<Call, Answer> {
  readonly #run: (calls: readonly Call[]) => Promise<readonly Answer[]>;
  readonly #waitMsMax: number;
  #next: Waiting<Call, Answer>[] = [];
  #running = 0;
  /** Calls that the next batch waits for. */
  #expected = 1;
  #onGathered = (): void => {};

  /**
   * @param run returns one answer per call, in their order. If it rejects, every call of the batch rejects with that error.
   * @param waitMsMax 0: a batch waits only for the calls of its turn of the event loop
   */
  constructor(run: (calls: readonly Call[]) => Promise<readonly Answer[]>, waitMsMax = WAIT_MS_MAX) {
    this.#run = run;
    this.#waitMsMax = waitMsMax;
  }

  call(call: Call): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#next.push({ call, resolve, reject });
      if (this.#next.length === 1) void this.#runNext();
      else if (this.#isGathered) this.#onGathered();
    });
  }

  get #isGathered(): boolean {
    return this.#running === 0 && this.#next.length >= this.#expected;
  }

  async #runNext(): Promise<void> {
    if (this.#waitMsMax > 0 && !this.#isGathered) await this.#gathered();
    // The calls of this turn of the event loop belong to it.
    await nextTurn();
    const batch = this.#next;
    this.#next = [];
    this.#running += 1;
    let settle = (): void => {};
    try {
      const answers = await this.#run(batch.map(({ call }) => call));
      settle = () => {
        for (const [at, { resolve }] of batch.entries()) resolve(answers[at] as Answer);
      };
    } catch (error) {
      settle = () => {
        for (const { reject } of batch) reject(error);
      };
    }
    this.#running -= 1;
    this.#expected = batch.length + this.#next.length;
    settle();
  }

  /** Resolves when the next batch is complete, or after some milliseconds. */
  #gathered(): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, this.#waitMsMax);
      this.#onGathered = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

interface Waiting<Call, Answer> {
  readonly call: Call;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (reason: unknown) => void;
}

/** Some times the work of a small statement and its commit. A slower disk takes commits of several statements at the same time. */
const WAIT_MS_MAX = 3;
