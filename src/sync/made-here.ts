import { setImmediate as nextTurn } from 'node:timers/promises';
import { ApiError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { ContentId, ResourceUrl } from '../base/vocabulary.ts';
import type { Contents } from '../store/contents.ts';
import { mayBeTimeOf } from '../store/service-time.ts';
import type { StoreWriter } from '../store/tables.ts';
import type { UploadService } from './remote-changes.ts';

/**
 * Files that were made here and filled by one plain PUT, whose answer does not say which version it made. Their bytes stay
 * drafts, and a draft is never given back by the cache. Asking costs a request for each file: only once the cache is over its
 * budget the service is asked, and what it names becomes a version like any other.
 */
export class MadeHere {
  readonly #deps: MadeHereDeps;
  /** Sealed drafts that the service holds as versions without a known name, oldest first. */
  readonly #nameless = new Set<ContentId>();
  #isLoaded = false;

  constructor(deps: MadeHereDeps) {
    this.#deps = deps;
  }

  /** The service acknowledged `content` without a name. Its record says which file it belongs to. */
  add(content: ContentId): void {
    this.#nameless.add(content);
  }

  /** Whether the cache is over its budget and there is more to ask for. */
  get isNeeded(): boolean {
    return this.#nameless.size > 0 && this.#deps.contents.overBudgetBytes() > 0;
  }

  /** Asks for names while the cache is over its budget, some at a time. @returns false when there was no answer */
  async nameVersions(signal: AbortSignal): Promise<boolean> {
    const { contents } = this.#deps;
    if (contents.overBudgetBytes() === 0) return true;
    if (!this.#isLoaded) await this.#load(signal);
    const now = [...this.#nameless].slice(0, NAMED_PER_RUN);
    const ask = async (): Promise<void> => {
      for (let next = now.shift(); next !== undefined; next = now.shift()) {
        if (signal.aborted || contents.overBudgetBytes() === 0) return;
        // Whatever comes of it: asked again after the next start at the earliest.
        this.#nameless.delete(next);
        await this.#name(next, signal);
      }
    };
    const asking = await Promise.allSettled(Array.from({ length: ASKED_AT_ONCE_MAX }, ask));
    const failed = asking.find((end) => end.status === 'rejected');
    if (failed !== undefined) this.#deps.log.debug({ err: failed.reason }, 'names of versions not asked for, later');
    return failed === undefined;
  }

  async #name(content: ContentId, signal: AbortSignal): Promise<void> {
    const { store, contents, uploads } = this.#deps;
    const file = this.#fileOf(content);
    if (file === null) return;
    try {
      const complete = (await uploads.versions(file, signal)).filter((version) => version.complete);
      const [version] = complete;
      // With a second version somebody else was there: which one is ours cannot be told.
      if (version === undefined || complete.length > 1) return;
      if (version.sizeBytes !== contents.sizeOf(content) || this.#fileOf(content) !== file) return;
      // Where the service keeps no old versions the only one may be somebody else's: it has another time than was listed.
      const ino = store.get('resource', file);
      const listedMs = ino === undefined ? undefined : store.get('node', ino)?.remote?.lastModifiedMs;
      if (!mayBeTimeOf(listedMs ?? null, version.lastModifiedMs)) return;
      store.transact((tx) => contents.adopt(tx, content, version.url, file));
    } catch (error) {
      if (error instanceof ApiError) return; // gone, mostly: the listing tells
      this.#nameless.add(content);
      throw error;
    }
  }

  /** The file whose bytes these are, here and on the service; null when they are no more, or still change. */
  #fileOf(content: ContentId): ResourceUrl | null {
    const { store } = this.#deps;
    const record = store.get('content', content);
    if (record === undefined || record.kind !== 'draft' || !record.sealed || record.resource === null) return null;
    const ino = store.get('resource', record.resource);
    const node = ino === undefined ? undefined : store.get('node', ino);
    if (ino === undefined || store.get('upload', ino) !== undefined) return null;
    return node?.remote?.content === content && node.local?.content === content ? record.resource : null;
  }

  /** What earlier runs left. */
  async #load(signal: AbortSignal): Promise<void> {
    let count = 0;
    const later = [...this.#nameless];
    this.#nameless.clear();
    for (const [content, { kind, sealed, resource }] of this.#deps.store.all('content')) {
      if (kind === 'draft' && sealed && resource !== null) this.#nameless.add(content);
      if (++count % RECORDS_PER_TURN === 0) await nextTurn();
      if (signal.aborted) return;
    }
    for (const content of later) this.#nameless.add(content);
    this.#isLoaded = true;
  }
}

export interface MadeHereDeps {
  readonly store: StoreWriter;
  readonly contents: Contents;
  readonly uploads: Pick<UploadService, 'versions'>;
  readonly log: Logger;
}

const NAMED_PER_RUN = 100;
const ASKED_AT_ONCE_MAX = 4;
const RECORDS_PER_TURN = 500;
