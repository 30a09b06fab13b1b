import type { StoreWriter } from '../store/tables.ts';

/** Bytes. */
export interface Quota {
  readonly limitBytes: number;
  readonly usedBytes: number;
}

/** In table `meta`, as JSON. */
const KEY = 'quota';

/** The account's quota as it was last heard, also before the last restart: what statfs(2) tells without asking anybody. */
export class AccountQuota {
  readonly #store: StoreWriter;
  #known: Quota | null;

  constructor(store: StoreWriter) {
    this.#store = store;
    this.#known = JSON.parse(String(store.get('meta', KEY) ?? 'null')) as Quota | null;
  }

  /** Null when it was never heard. */
  get known(): Quota | null {
    return this.#known;
  }

  learn({ limitBytes, usedBytes }: Quota): void {
    if (this.#known?.limitBytes === limitBytes && this.#known.usedBytes === usedBytes) return;
    this.#known = { limitBytes, usedBytes };
    this.#store.transact((tx) => tx.put('meta', KEY, JSON.stringify(this.#known)));
  }
}
