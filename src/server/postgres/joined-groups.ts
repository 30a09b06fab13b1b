import { BatchedCalls } from './batched-calls.ts';

/** Groups of different keys that are ready at about the same time share one statement and its commit (docs/adr/0059). */
export class JoinedGroups<Call, Outcome> {
  readonly #run: (groups: readonly JoinedGroup<Call>[]) => Promise<readonly (Outcome | null)[]>;
  readonly #callsMax: number;
  /** Null for a group that must run alone. */
  readonly #batches: BatchedCalls<ReadyGroup<Call, Outcome>, Outcome | null>;

  /**
   * @param run returns one outcome per group, in their order, or null for a group that must run alone. If it rejects, every group
   *   rejects with that error.
   * @param limits.callsMax of one statement
   */
  constructor(
    run: (groups: readonly JoinedGroup<Call>[]) => Promise<readonly (Outcome | null)[]>,
    limits: { readonly callsMax: number; readonly waitMsMax?: number },
  ) {
    this.#run = run;
    this.#callsMax = limits.callsMax;
    this.#batches = new BatchedCalls((ready) => this.#runTogether(ready), limits.waitMsMax);
  }

  /** Runs a group, alone if no other one is ready. */
  async outcome(group: ReadyGroup<Call, Outcome>): Promise<Outcome> {
    return (await this.#batches.call(group)) ?? group.alone();
  }

  async #runTogether(ready: readonly ReadyGroup<Call, Outcome>[]): Promise<readonly (Outcome | null)[]> {
    const [first] = ready;
    if (ready.length === 1 && first !== undefined) return [await first.alone()];
    const groups: JoinedGroup<Call>[] = [];
    let room = this.#callsMax;
    // Every server takes locks in this order.
    for (const { key, take } of ready.toSorted((a, b) => (a.key < b.key ? -1 : 1))) {
      if (room === 0) break;
      const calls = take(room);
      room -= calls.length;
      groups.push({ key, calls });
    }
    const outcomes = await this.#run(groups);
    const byKey = new Map(groups.map(({ key }, at) => [key, outcomes[at]]));
    return ready.map(({ key }) => byKey.get(key) ?? null);
  }
}

/** A group whose calls are known. */
export interface JoinedGroup<Call> {
  readonly key: string;
  readonly calls: readonly Call[];
}

/** No other group with its key is ready. */
export interface ReadyGroup<Call, Outcome> {
  readonly key: string;
  /** Its calls, with those that arrived since it was ready. */
  readonly take: (max: number) => readonly Call[];
  readonly alone: () => Promise<Outcome>;
}
