import { Refusal } from './refusal.ts';

/** A party that waits for its turn. */
export interface Waiter {
  /** Parties take turns: one with many requests does not delay another. */
  readonly party: string;
  /** Whether the requester has left. */
  readonly isGone: () => boolean;
}

/** Limits the concurrency of expensive work: the parties in turn, the requests of a party in their order. */
export class Turns {
  readonly #waitingMax: number;
  readonly #perPartyMax: number;
  /** The next party first. */
  readonly #queues = new Map<string, Entry[]>();
  #waiting = 0;
  #free: number;

  constructor(limits: { readonly atOnceMax: number; readonly waitingMax: number; readonly perPartyMax?: number }) {
    this.#free = limits.atOnceMax;
    this.#waitingMax = limits.waitingMax;
    this.#perPartyMax = limits.perPartyMax ?? limits.waitingMax;
  }

  /**
   * @throws Refusal 503 if too many wait. If the queue is full, the party with the most waiting requests loses its
   * last one.
   */
  async inTurn<T>(work: () => Promise<T>, waiter: Waiter = ANYBODY): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await this.#turn(waiter);
    try {
      return await work();
    } finally {
      this.#next();
    }
  }

  #turn(waiter: Waiter): Promise<void> {
    return new Promise((resolve, reject) => {
      const queue = this.#queues.get(waiter.party) ?? [];
      if (queue.length >= this.#perPartyMax) return reject(busy());
      this.#queues.set(waiter.party, queue);
      queue.push({ resolve, reject, isGone: waiter.isGone });
      this.#waiting += 1;
      if (this.#waiting > this.#waitingMax) this.#longest().pop()?.reject(busy());
    });
  }

  /** @returns its queue, with the last one counted as gone */
  #longest(): Entry[] {
    let longest: Entry[] = [];
    for (const queue of this.#queues.values()) if (queue.length >= longest.length) longest = queue;
    this.#waiting -= 1;
    return longest;
  }

  #next(): void {
    for (const [party, queue] of this.#queues) {
      this.#queues.delete(party);
      const entry = queue.shift();
      if (queue.length > 0) this.#queues.set(party, queue);
      if (entry === undefined) continue;
      this.#waiting -= 1;
      if (!entry.isGone()) {
        entry.resolve();
        return;
      }
      entry.reject(busy());
    }
    this.#free++;
  }
}

interface Entry {
  readonly resolve: () => void;
  readonly reject: (refusal: Refusal) => void;
  readonly isGone: () => boolean;
}

const ANYBODY: Waiter = { party: '', isGone: () => false };

function busy(): Refusal {
  return new Refusal(503, 'Busy', { 'Retry-After': '1' });
}
