import { setImmediate as nextTurn } from 'node:timers/promises';

/**
 * Calls of one key run in sequence, in groups: calls that arrive while a group of their key runs form the next group. Under
 * load, calls that wait for the same lock and the same commit share both (docs/adr/0043).
 */
export class GroupedCalls<Call, Answer> {
  readonly #run: RunGroup<Call, Answer>;
  /** The calls that wait for the running group of their key. */
  readonly #waiting = new Map<string, Waiting<Call, Answer>[]>();

  /**
   * @param run returns one answer per call, in their order. If it rejects, every call of the group rejects with that error. With
   *   `gathers`, it may run none and return no answer: after it has waited for the lock, it runs with the calls that arrived meanwhile.
   */
  constructor(run: RunGroup<Call, Answer>) {
    this.#run = run;
  }

  call(key: string, call: Call): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const one = { call, resolve, reject };
      const waiting = this.#waiting.get(key);
      if (waiting !== undefined) waiting.push(one);
      else void this.#runAll(key, [one]);
    });
  }

  async #runAll(key: string, waiting: Waiting<Call, Answer>[]): Promise<void> {
    this.#waiting.set(key, waiting);
    // The calls of this turn of the event loop form the first group.
    await nextTurn();
    let settle = (): void => {};
    for (;;) {
      if (waiting.length === 0) {
        settle();
        settle = () => {};
        // Callers that a group answered call again in the same turn.
        await nextTurn();
        if (waiting.length === 0) break;
      }
      const running = this.#runOne(waiting, key);
      // The database works on the next group while the callers of this one go on.
      await nextTurn();
      settle();
      settle = await running;
    }
    this.#waiting.delete(key);
  }

  /** @returns settles the calls */
  async #runOne(waiting: Waiting<Call, Answer>[], key: string): Promise<() => void> {
    const group: Waiting<Call, Answer>[] = [];
    const run = (gathers: boolean): ReturnType<RunGroup<Call, Answer>> => {
      group.push(...waiting.splice(0, GROUP_MAX - group.length));
      return this.#run(
        group.map(({ call }) => call),
        key,
        gathers,
      );
    };
    try {
      const early = await run(true);
      const answers = early.length > 0 ? early : await run(false);
      return () => {
        for (const [at, { resolve, reject }] of group.entries()) {
          const answer = answers[at];
          if (answer?.status === 'fulfilled') resolve(answer.value);
          else reject(answer?.reason ?? new Error('no answer to a call of a group'));
        }
      };
    } catch (error) {
      return () => {
        for (const { reject } of group) reject(error);
      };
    }
  }
}

type RunGroup<Call, Answer> = (
  calls: readonly Call[],
  key: string,
  gathers: boolean,
) => Promise<readonly PromiseSettledResult<Answer>[]>;

interface Waiting<Call, Answer> {
  readonly call: Call;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (reason: unknown) => void;
}

/** PostgreSQL keeps 64 subtransactions of a transaction in memory that others read fast (PGPROC_MAX_CACHED_SUBXIDS). */
const GROUP_MAX = 64;
