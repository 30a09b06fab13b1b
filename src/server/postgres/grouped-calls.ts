import { setImmediate as nextTurn } from 'node:timers/promises';
import { type JoinedGroup, JoinedGroups } from './joined-groups.ts';

/**
 * Calls of one key run in sequence, in groups: calls that arrive while a group of their key runs form the next group. Under
 * load, calls that wait for the same lock and the same commit share both (docs/adr/0043).
 *
 * Other servers have groups of the same key. While they make ours wait, a group is held back until the callers of the last one have
 * called again, for some milliseconds: the lock is taken meanwhile, and a group that is sent early holds few calls.
 *
 * While no other server makes a key wait, its groups share statements with those of other keys, if these can be joined.
 */
export class GroupedCalls<Call, Answer> {
  readonly #run: RunGroup<Call, Answer>;
  readonly #heldBackMs: number;
  readonly #joined: JoinedGroups<Call, GroupOutcome<Answer>> | null;
  /** The calls that wait for the running group of their key. */
  readonly #queues = new Map<string, Queue<Call, Answer>>();

  /**
   * @param run returns one answer per call, in their order. If it rejects, every call of the group rejects with that error. With
   *   `gathers`, it may run none and return no answer: after it has waited for the lock, it runs with the calls that arrived meanwhile.
   * @param options.heldBackMs how long callers of the last group are waited for
   * @param options.runJoined runs groups of several keys without waiting for a lock. Null for a group whose lock is taken, or that
   *   must run alone for another reason: it had no effect.
   */
  constructor(
    run: RunGroup<Call, Answer>,
    options: { readonly heldBackMs?: number; readonly runJoined?: RunJoined<Call, Answer> | null } = {},
  ) {
    this.#run = run;
    this.#heldBackMs = options.heldBackMs ?? HELD_BACK_MS;
    const { runJoined = null } = options;
    this.#joined = runJoined === null ? null : new JoinedGroups(runJoined, { callsMax: GROUP_MAX });
  }

  call(key: string, call: Call): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const one = { call, resolve, reject };
      const queue = this.#queues.get(key);
      if (queue !== undefined) queue.add(one);
      else void this.#runAll(key, new Queue(one));
    });
  }

  async #runAll(key: string, queue: Queue<Call, Answer>): Promise<void> {
    this.#queues.set(key, queue);
    // The calls of this turn of the event loop form the first group.
    if (this.#joined === null) await nextTurn();
    let settle = (): void => {};
    /** Since the last group that had to wait. */
    let freeGroups = FREE_GROUPS_MAX;
    /** The calls that the next group is held back for; 0 if no other server makes it wait. */
    let expected = 0;
    for (;;) {
      if (queue.length < Math.max(1, expected)) {
        settle();
        settle = () => {};
        // Callers that a group answered call again in the same turn, if they need nothing else before.
        if (expected === 0) await nextTurn();
        else await queue.has(expected, this.#heldBackMs);
        if (queue.length === 0) break;
      }
      const running = this.#runOne(queue, key, expected);
      // The database works on the next group while the callers of this one go on.
      await nextTurn();
      settle();
      const ended = await running;
      settle = ended.settle;
      freeGroups = ended.hasWaited ? 0 : freeGroups + 1;
      expected = freeGroups < FREE_GROUPS_MAX ? Math.min(GROUP_MAX, ended.size + queue.length) : 0;
    }
    this.#queues.delete(key);
  }

  /** @param expected as above @returns `settle` settles the calls */
  async #runOne(queue: Queue<Call, Answer>, key: string, expected: number): Promise<Ended> {
    const group: Waiting<Call, Answer>[] = [];
    const take = (max: number): readonly Call[] => {
      group.push(...queue.take(max - group.length));
      return group.map(({ call }) => call);
    };
    const run = (gathers: boolean): Promise<GroupOutcome<Answer>> => this.#run(take(GROUP_MAX), key, gathers);
    try {
      const early =
        this.#joined !== null && expected === 0
          ? await this.#joined.outcome({ key, take, alone: () => run(true) })
          : await run(expected === 0 || queue.length < expected);
      const { answers } = early.answers.length > 0 ? early : await run(false);
      const settle = (): void => {
        for (const [at, { resolve, reject }] of group.entries()) {
          const answer = answers[at];
          if (answer?.status === 'fulfilled') resolve(answer.value);
          else reject(answer?.reason ?? new Error('no answer to a call of a group'));
        }
      };
      return { settle, size: group.length, hasWaited: early.hasWaited };
    } catch (error) {
      const settle = (): void => {
        for (const { reject } of group) reject(error);
      };
      return { settle, size: group.length, hasWaited: false };
    }
  }
}

/** `hasWaited`: whether a group of another server had the lock. */
export interface GroupOutcome<Answer> {
  readonly answers: readonly PromiseSettledResult<Answer>[];
  readonly hasWaited: boolean;
}

type RunJoined<Call, Answer> = (
  groups: readonly JoinedGroup<Call>[],
) => Promise<readonly (GroupOutcome<Answer> | null)[]>;

type RunGroup<Call, Answer> = (calls: readonly Call[], key: string, gathers: boolean) => Promise<GroupOutcome<Answer>>;

interface Ended {
  readonly settle: () => void;
  readonly size: number;
  readonly hasWaited: boolean;
}

interface Waiting<Call, Answer> {
  readonly call: Call;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (reason: unknown) => void;
}

class Queue<Call, Answer> {
  readonly #calls: Waiting<Call, Answer>[];
  #expected = 0;
  #onExpected = (): void => {};

  constructor(first: Waiting<Call, Answer>) {
    this.#calls = [first];
  }

  get length(): number {
    return this.#calls.length;
  }

  add(call: Waiting<Call, Answer>): void {
    this.#calls.push(call);
    if (this.#calls.length === this.#expected) this.#onExpected();
  }

  take(max: number): Waiting<Call, Answer>[] {
    return this.#calls.splice(0, max);
  }

  /** Resolves when it has that many calls, or after `msMax`. */
  has(count: number, msMax: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, msMax);
      this.#expected = count;
      this.#onExpected = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

/**
 * Some times the work of a small group. Callers that are farther away are not worth waiting for: a call that comes meanwhile waits as
 * long as they do.
 */
const HELD_BACK_MS = 5;
/** After so many groups that did not wait, the key is this server's own again. */
const FREE_GROUPS_MAX = 8;
/** PostgreSQL keeps 64 subtransactions of a transaction in memory that others read fast (PGPROC_MAX_CACHED_SUBXIDS). */
const GROUP_MAX = 64;
