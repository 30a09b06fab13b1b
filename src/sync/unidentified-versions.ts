import { setImmediate as nextTurn } from 'node:timers/promises';
import { backoffMs } from '../base/backoff.ts';
import type { Clock } from '../base/clock.ts';
import { ApiError, isPassing } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { ContentId, ResourceUrl } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import { soundContents } from '../bytes/sound-contents.ts';
import type { Intents } from '../store/intents.ts';
import { DamagedRow } from '../store/record-codec.ts';
import { mayBeTimeOf } from '../store/service-time.ts';
import type { StoreWriter } from '../store/tables.ts';
import type { UploadService } from './remote-changes.ts';

/**
 * Files that this mount created and filled by one plain PUT, whose response does not name the version. Their bytes stay drafts, which the cache
 * never evicts. Learning the name costs one request per file. So the requests wait until the cache exceeds its budget; then each named draft
 * becomes a version like any other.
 */
export class UnidentifiedVersions {
  readonly #deps: UnidentifiedVersionsDeps;
  /** Sealed drafts that the service holds as versions without a known name, oldest first. */
  readonly #nameless = new Set<ContentId>();
  #isLoaded = false;
  /** Consecutive runs that ended without an answer. */
  #failures = 0;
  #closedUntilMs = 0;

  constructor(deps: UnidentifiedVersionsDeps) {
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

  /** Remaining pause after a run without an answer, ms; 0: requests are useful. */
  get pauseMs(): number {
    return Math.max(0, Math.ceil(this.#closedUntilMs - this.#deps.clock.elapsedMs()));
  }

  /** Requests names while the cache exceeds its budget, some at a time. Does nothing during the pause after a failure. */
  async nameVersions(signal: AbortSignal): Promise<void> {
    const { contents, log } = this.#deps;
    if (this.pauseMs > 0 || contents.overBudgetBytes() === 0) return;
    if (!this.#isLoaded) await this.#load(signal);
    const now = [...this.#nameless].slice(0, NAMED_PER_RUN);
    // After a failure, one request tests whether the service answers again.
    const atOnce = this.#failures > 0 ? 1 : ASKED_AT_ONCE_MAX;
    const failed = await this.#ask(now, atOnce, signal, () => contents.overBudgetBytes() === 0);
    if (signal.aborted) return;
    if (failed === null) {
      this.#failures = 0;
      return;
    }
    this.#failures++;
    const askedMs = failed.reason instanceof ApiError ? failed.reason.retryAfterMs : null;
    const pauseMs = backoffMs(this.#failures, this.#deps.clock.random(), PAUSE, askedMs);
    this.#closedUntilMs = this.#deps.clock.elapsedMs() + pauseMs;
    log.debug({ err: failed.reason, pauseMs }, 'the URLs of versions could not be read; tried again later');
  }

  /**
   * Requests the names of these contents now, whatever the budget says. What is no pushed draft is left out.
   *
   * @returns false if the service did not answer
   */
  async nameThese(contents: readonly ContentId[], signal: AbortSignal): Promise<boolean> {
    const failed = await this.#ask(contents, ASKED_AT_ONCE_MAX, signal, () => false);
    if (failed !== null) this.#deps.log.debug({ err: failed.reason }, 'the URLs of versions could not be read');
    return failed === null && !signal.aborted;
  }

  /** @returns the first failure, after which no further request was sent; null for none */
  async #ask(
    contents: readonly ContentId[],
    atOnce: number,
    signal: AbortSignal,
    isEnough: () => boolean,
  ): Promise<{ readonly reason: unknown } | null> {
    let left = [...contents];
    const ask = async (): Promise<void> => {
      for (let next = left.shift(); next !== undefined; next = left.shift()) {
        if (signal.aborted || isEnough()) return;
        // The budget's runs ask once per process, whatever the answer is.
        const wasNameless = this.#nameless.delete(next);
        try {
          await this.#name(next, signal);
        } catch (error) {
          if (wasNameless) this.#nameless.add(next);
          left = []; // the other requests would fail for the same cause
          throw error;
        }
      }
    };
    const asking = await Promise.allSettled(Array.from({ length: atOnce }, ask));
    return asking.find((end) => end.status === 'rejected') ?? null;
  }

  async #name(content: ContentId, signal: AbortSignal): Promise<void> {
    const { store, contents, uploads } = this.#deps;
    try {
      const file = this.#fileOf(content);
      if (file === null) return;
      const complete = (await uploads.versions(file, signal)).filter((version) => version.complete);
      const [version] = complete;
      // A second version is a remote one: the version of this mount is not known.
      if (version === undefined || complete.length > 1) return;
      if (version.sizeBytes !== contents.sizeOf(content) || this.#fileOf(content) !== file) return;
      // A service without old versions may hold a remote version only: its time differs from the listed one.
      const ino = store.get('resource', file);
      const listed = ino === undefined ? undefined : store.get('node', ino)?.remote?.modified;
      if (!mayBeTimeOf(listed ?? null, version.lastModifiedMs)) return;
      store.transact((tx) => contents.adopt(tx, content, version.url, file));
    } catch (error) {
      // The listing shows a removed file, and the store reports a damaged row.
      if (isGone(error) || error instanceof DamagedRow) return;
      throw error;
    }
  }

  /** The file that has these bytes, here and on the service; null if it has others by now, or they still change. */
  #fileOf(content: ContentId): ResourceUrl | null {
    const { store, intents } = this.#deps;
    const record = store.get('content', content);
    if (record === undefined || record.kind !== 'draft' || !record.sealed || record.resource === null) return null;
    const ino = store.get('resource', record.resource);
    const node = ino === undefined ? undefined : store.get('node', ino);
    if (ino === undefined || intents.ownedBy(ino) !== undefined) return null;
    return node?.remote?.content === content && node.local?.content === content ? record.resource : null;
  }

  /** Finds the drafts of earlier processes. */
  async #load(signal: AbortSignal): Promise<void> {
    let count = 0;
    const later = [...this.#nameless];
    this.#nameless.clear();
    for (const [content, record] of soundContents(this.#deps.store)) {
      if (record?.kind === 'draft' && record.sealed && record.resource !== null) this.#nameless.add(content);
      if (++count % RECORDS_PER_TURN === 0) await nextTurn();
      if (signal.aborted) return;
    }
    for (const content of later) this.#nameless.add(content);
    this.#isLoaded = true;
  }
}

export interface UnidentifiedVersionsDeps {
  readonly store: StoreWriter;
  readonly contents: Contents;
  readonly intents: Pick<Intents, 'ownedBy'>;
  readonly uploads: Pick<UploadService, 'versions'>;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Whether a retry is useless: a permanent refusal that concerns this file, not the sign-in. */
function isGone(error: unknown): boolean {
  return error instanceof ApiError && error.status !== 401 && !isPassing(error);
}

const PAUSE = { firstMs: 10_000, maxMs: 10 * 60_000 };

const NAMED_PER_RUN = 100;
const ASKED_AT_ONCE_MAX = 4;
const RECORDS_PER_TURN = 500;
