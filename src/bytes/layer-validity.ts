import type { Logger } from '../base/log.ts';
import type { ContentId } from '../base/vocabulary.ts';
import { currentBootId } from '../store/boot-id.ts';
import type { StoreWriter } from '../store/tables.ts';

/**
 * After a power cut the own ranges of a version may name bytes that did not reach the disk, and unlike blocks they have no checksums.
 * Own ranges from before a reboot are invalid, and their bytes are fetched again.
 */
export class LayerValidity {
  readonly #store: StoreWriter;
  readonly #log: Logger;
  /** Boot id to be stored after the stock-taking; null once it is stored. */
  #newBootId: string | null;
  /** The machine was rebooted, and no stock was taken since. */
  #isSuspect: boolean;
  readonly #adoptedHere = new Set<ContentId>();

  /** @param deps.bootId the boot id; null if the system has none */
  constructor(deps: { store: StoreWriter; log: Logger; bootId?: string | null | undefined }) {
    this.#store = deps.store;
    this.#log = deps.log;
    const bootId = deps.bootId === undefined ? currentBootId() : deps.bootId;
    const lastBootId = deps.store.get('meta', 'boot');
    this.#newBootId = bootId === lastBootId ? null : bootId;
    this.#isSuspect = this.#newBootId !== null && lastBootId !== undefined;
  }

  /** Whether the own ranges in a version's file are valid. */
  isGiven(id: ContentId): boolean {
    return !this.#isSuspect || this.#adoptedHere.has(id);
  }

  /** A draft became a version in this run. */
  adopted(id: ContentId): void {
    if (this.#isSuspect) this.#adoptedHere.add(id);
  }

  /** The stock-taking has removed all invalid layers. */
  lookedThrough(): void {
    this.#isSuspect = false;
    this.#adoptedHere.clear();
    const boot = this.#newBootId;
    if (boot === null) return;
    try {
      this.#store.transact((tx) => tx.put('meta', 'boot', boot));
      this.#newBootId = null;
    } catch (err) {
      this.#log.warn({ err }, 'boot id not stored: the next start checks the cache again');
    }
  }
}
