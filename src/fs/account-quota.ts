import type { FileSystemStats } from '../kernel/binding.ts';
import type { StoreWriter } from '../store/tables.ts';

/** Bytes. */
export interface Quota {
  readonly limitBytes: number;
  readonly usedBytes: number;
}

/** In table `meta`, as JSON. */
const KEY = 'quota';

/** The last known quota of the account, kept over restarts: statfs(2) answers from it without a request. */
export class AccountQuota {
  readonly #store: StoreWriter;
  #known: Quota | null;

  constructor(store: StoreWriter) {
    this.#store = store;
    this.#known = JSON.parse(String(store.get('meta', KEY) ?? 'null')) as Quota | null;
  }

  /** Null before the first report. */
  get known(): Quota | null {
    return this.#known;
  }

  learn({ limitBytes, usedBytes }: Quota): void {
    if (this.#known?.limitBytes === limitBytes && this.#known.usedBytes === usedBytes) return;
    this.#known = { limitBytes, usedBytes };
    this.#store.transact((tx) => tx.put('meta', KEY, JSON.stringify(this.#known)));
  }
}

/** The account as df(1) shows it. `quota`: null before the first report. */
export function statsOf(quota: Quota | null): FileSystemStats {
  const limitBytes = quota?.limitBytes ?? UNKNOWN_QUOTA_BYTES;
  const freeBytes = Math.max(0, limitBytes - (quota?.usedBytes ?? 0));
  const blocksFree = Math.floor(freeBytes / STATFS_BLOCK_BYTES);
  return {
    blockBytes: STATFS_BLOCK_BYTES,
    blocks: Math.ceil(limitBytes / STATFS_BLOCK_BYTES),
    blocksFree,
    blocksAvailable: blocksFree,
    // The number of files has no known limit.
    files: 2 ** 32,
    filesFree: 2 ** 32 - 1,
    nameBytesMax: 255,
  };
}

const STATFS_BLOCK_BYTES = 4096;
/** Shown by df(1) until the account's quota is known. */
const UNKNOWN_QUOTA_BYTES = 2 ** 40;
