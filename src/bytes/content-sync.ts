import type { Logger } from '../base/log.ts';
import type { ContentId } from '../base/vocabulary.ts';
import type { ContentRecord, StoreReader } from '../store/tables.ts';
import type { ContentFiles } from './content-files.ts';
import { isLayered } from './content-layers.ts';
import type { Lease } from './contents.ts';
import type { Draft } from './draft.ts';
import { type DraftChecksums, isFrozenFile } from './draft-checksums.ts';
import type { OpenDrafts } from './open-drafts.ts';

/** Makes the bytes of contents survive a power cut: on demand (fsync, a push), and in the background once they are sealed. */
export class ContentSync {
  readonly #store: StoreReader;
  readonly #files: ContentFiles;
  readonly #drafts: Pick<OpenDrafts, 'get'>;
  readonly #checksums: DraftChecksums;
  readonly #log: Logger;
  readonly #lease: (id: ContentId) => Lease;
  /** Background syncs run one at a time: waiting callers need the thread pool as well. */
  #behind: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(deps: {
    store: StoreReader;
    files: ContentFiles;
    drafts: Pick<OpenDrafts, 'get'>;
    checksums: DraftChecksums;
    log: Logger;
    lease: (id: ContentId) => Lease;
  }) {
    this.#store = deps.store;
    this.#files = deps.files;
    this.#drafts = deps.drafts;
    this.#checksums = deps.checksums;
    this.#log = deps.log;
    this.#lease = deps.lease;
  }

  /** Resolves when local writes survive a power cut, in the content's file and in those of the layers below. */
  async sync(id: ContentId): Promise<void> {
    const lease = this.#lease(id);
    try {
      for (let at: ContentId | null = id; at !== null; ) {
        const open: Draft | undefined = this.#drafts.get(at);
        const record: ContentRecord | undefined = this.#store.get('content', at);
        const base: ContentId | null = open === undefined ? (record?.base ?? null) : open.base;
        const inFile = open === undefined ? record?.where === 'file' : open.memory === null;
        // Local writes may also be in the layers below; a version without layers can be fetched again.
        const isOurs = at === id || record?.kind === 'draft' || (record !== undefined && isLayered(record));
        if (inFile && isOurs) await this.#files.sync(at, record?.kind === 'version' ? 'cache' : 'drafts');
        at = base;
      }
    } finally {
      lease.release();
    }
  }

  /** Syncs a sealed draft in the background, then stores its checksums: a power cut must not take its bytes and leave its record. */
  soon(id: ContentId): void {
    this.#behind = this.#behind.then(async () => {
      try {
        if (this.#closed || this.#store.get('content', id)?.where !== 'file') return;
        await this.sync(id);
        const record = this.#store.get('content', id);
        if (!this.#closed && record !== undefined && isFrozenFile(record)) await this.#checksums.make(id);
      } catch (err) {
        if (!this.#closed) this.#log.warn({ err, content: id }, 'sealed content not synced');
      }
    });
  }

  /** Starts no further syncs. */
  close(): void {
    this.#closed = true;
  }
}
