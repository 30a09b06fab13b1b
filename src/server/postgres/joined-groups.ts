import { setImmediate as nextTurn } from 'node:timers/promises';

/**
 * Groups of different keys that are ready at the same time share one statement and its commit (docs/adr/0059). A group that is ready
 * while a statement runs waits for its end, at most some milliseconds: so a statement that hangs holds up only its own groups.
 */
export class JoinedGroups<Call, Outcome> {
  readonly #run: (groups: readonly JoinedGroup<Call>[]) => Promise<readonly (Outcome | null)[]>;
  readonly #callsMax: number;
  readonly #waitMsMax: number;
  #ready: Ready<Call, Outcome>[] = [];
  /** The last statement; never rejects. */
  #last: Promise<void> | null = null;

  /**
   * @param run returns one outcome per group, in their order, or null for a group that must run alone. If it rejects, every group
   *   rejects with that error.
   */
  constructor(
    run: (groups: readonly JoinedGroup<Call>[]) => Promise<readonly (Outcome | null)[]>,
    { callsMax, waitMsMax = WAIT_MS_MAX }: { callsMax: number; waitMsMax?: number },
  ) {
    this.#run = run;
    this.#callsMax = callsMax;
    this.#waitMsMax = waitMsMax;
  }

  /** Runs a group, alone if no other one is ready. */
  outcome(group: ReadyGroup<Call, Outcome>): Promise<Outcome> {
    return new Promise((resolve, reject) => {
      this.#ready.push({ group, resolve, reject });
      if (this.#ready.length === 1) void this.#sendNext();
    });
  }

  async #sendNext(): Promise<void> {
    if (this.#last !== null) await endOf(this.#last, this.#waitMsMax);
    await nextTurn();
    // Every server takes locks in this order.
    const ready = this.#ready.sort((a, b) => (a.group.key < b.group.key ? -1 : 1));
    this.#ready = [];
    const sent = ready.length > 1 ? this.#sendTogether(ready) : sendAlone(ready[0]);
    this.#last = sent;
    await sent;
    if (this.#last === sent) this.#last = null;
  }

  async #sendTogether(ready: readonly Ready<Call, Outcome>[]): Promise<void> {
    const joined: Ready<Call, Outcome>[] = [];
    const groups: JoinedGroup<Call>[] = [];
    let room = this.#callsMax;
    for (const each of ready) {
      if (room === 0) {
        void sendAlone(each);
        continue;
      }
      const calls = each.group.take(room);
      room -= calls.length;
      joined.push(each);
      groups.push({ key: each.group.key, calls });
    }
    try {
      const outcomes = await this.#run(groups);
      for (const [at, each] of joined.entries()) {
        const outcome = outcomes[at] ?? null;
        if (outcome === null) void sendAlone(each);
        else each.resolve(outcome);
      }
    } catch (error) {
      for (const { reject } of joined) reject(error);
    }
  }
}

/** A group whose calls are known. */
export interface JoinedGroup<Call> {
  readonly key: string;
  readonly calls: readonly Call[];
}

export interface ReadyGroup<Call, Outcome> {
  readonly key: string;
  /** Its calls, with those that arrived since it was ready. */
  take(max: number): readonly Call[];
  alone(): Promise<Outcome>;
}

interface Ready<Call, Outcome> {
  readonly group: ReadyGroup<Call, Outcome>;
  readonly resolve: (outcome: Outcome) => void;
  readonly reject: (reason: unknown) => void;
}

async function sendAlone<Call, Outcome>(ready: Ready<Call, Outcome> | undefined): Promise<void> {
  await ready?.group.alone().then(ready.resolve, ready.reject);
}

/** Resolves when `running` has ended, or after `msMax`. */
function endOf(running: Promise<void>, msMax: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, msMax);
    void running.then(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** A small statement and its commit. A slower disk takes commits of several statements at the same time. */
const WAIT_MS_MAX = 1;
