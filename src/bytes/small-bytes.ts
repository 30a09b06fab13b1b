import { StorageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { ContentId } from '../base/vocabulary.ts';
import type { StoreReader } from '../store/tables.ts';

/** A pushed file is one too, until the service names its version. */
export const DAMAGED_DRAFT = 'bytes that were written here are damaged';

/** The bytes of small contents, stored in LMDB. Damage is logged once per content. */
export class SmallBytes {
  readonly #store: StoreReader;
  readonly #log: Logger;
  readonly #onDamagedDraft: (content: ContentId) => void;
  readonly #logged = new Set<ContentId>();

  constructor(deps: { store: StoreReader; log: Logger; onDamagedDraft: (content: ContentId) => void }) {
    this.#onDamagedDraft = deps.onDamagedDraft;
    this.#store = deps.store;
    this.#log = deps.log;
  }

  /** @throws StorageError if they do not exist */
  of(id: ContentId): Uint8Array | 'damaged' {
    const bytes = this.#store.get('inline', id);
    if (bytes === undefined) throw new StorageError(`the bytes of content ${id} are not there`);
    if (bytes === 'damaged' && !this.#logged.has(id)) {
      this.#logged.add(id);
      if (this.#store.get('content', id)?.kind === 'draft') {
        this.#log.error({ content: id }, DAMAGED_DRAFT);
        this.#onDamagedDraft(id);
      } else this.#log.warn({ content: id }, 'cached bytes are damaged: they will be fetched again');
    }
    return bytes;
  }
}
