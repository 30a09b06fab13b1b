import type { Logger } from '../base/log.ts';
import type { ContentId } from '../base/vocabulary.ts';
import { currentBootId } from '../store/boot-id.ts';
import type { StoreWriter } from '../store/tables.ts';

/**
 * After a power cut the own ranges of a version may name bytes that did not reach the disk, and unlike blocks they have no marks:
 * those of an earlier run of the machine are not believed, but fetched again.
 */
export class LayerValidity {
  readonly #store: StoreWriter;
  readonly #log: Logger;
  /** Name of this run of the machine, to be stored when the cache was looked through; null when it is. */
  #newBootId: string | null;
  /** The machine was started since, and the cache was not looked through yet. */
  #isSuspect: boolean;
  readonly #adoptedHere = new Set<ContentId>();

  /** @param deps.bootId names this run of the machine; null where nothing does */
  constructor(deps: { store: StoreWriter; log: Logger; bootId?: string | null | undefined }) {
    this.#store = deps.store;
    this.#log = deps.log;
    const bootId = deps.bootId === undefined ? currentBootId() : deps.bootId;
    const lastBootId = deps.store.get('meta', 'boot');
    this.#newBootId = bootId === lastBootId ? null : bootId;
    this.#isSuspect = this.#newBootId !== null && lastBootId !== undefined;
  }

  /** Whether own ranges of a version that lie in its file are believed. */
  isGiven(id: ContentId): boolean {
    return !this.#isSuspect || this.#adoptedHere.has(id);
  }

  /** A draft became a version in this run. */
  adopted(id: ContentId): void {
    if (this.#isSuspect) this.#adoptedHere.add(id);
  }

  /** Nothing is left of what is not believed. */
  lookedThrough(): void {
    this.#isSuspect = false;
    this.#adoptedHere.clear();
    const boot = this.#newBootId;
    if (boot === null) return;
    try {
      this.#store.transact((tx) => tx.put('meta', 'boot', boot));
      this.#newBootId = null;
    } catch (err) {
      this.#log.warn({ err }, 'the cache will be looked through again at the next start');
    }
  }
}
