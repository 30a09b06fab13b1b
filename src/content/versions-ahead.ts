import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { Inode } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import { writeNode } from '../store/node-table.ts';
import { isSameServiceTime } from '../store/service-time.ts';
import type { NodeRecord, StoreWriter } from '../store/tables.ts';
import type { VersionSource } from './version-source.ts';

/** The version of a smaller file is requested when it is opened: a folder may hold thousands of them. */
const LARGE_BYTES_MIN = 1024 * 1024;
/** Limit of queued files: a listing costs a few more requests, not one per entry. The other files are requested when opened. */
const WAITING_MAX = 64;
const QUESTIONS_AT_ONCE = 2;
/** Pause after a failed request. */
const PAUSE_MS = 10_000;

export interface VersionsAheadDeps {
  readonly store: StoreWriter;
  readonly contents: Contents;
  readonly source: Pick<VersionSource, 'newestVersion'>;
  readonly clock: Pick<Clock, 'nowMs' | 'elapsedMs'>;
  readonly log: Logger;
  readonly shutdown: AbortSignal;
  /** An open file requests its own version and keeps the one it started with. */
  readonly isOpen: (ino: Inode) => boolean;
}

/**
 * Requests the newest version of large files that were just listed, so that open(2) saves the round trip before the one that
 * brings bytes. The answer stays valid until a listing shows another size or time. Only an answer that matches the listing is
 * recorded; a failed request has no effect.
 */
export class VersionsAhead {
  readonly #deps: VersionsAheadDeps;
  readonly #waiting = new Set<Inode>();
  #asking = 0;
  #pausedUntilMs = 0;

  constructor(deps: VersionsAheadDeps) {
    this.#deps = deps;
  }

  /** The folder that holds the node was listed. */
  seen(node: NodeRecord): void {
    const { store, isOpen } = this.#deps;
    if ((node.local?.sizeBytes ?? 0) <= LARGE_BYTES_MIN || !isUnknown(node)) return;
    if (this.#deps.clock.elapsedMs() < this.#pausedUntilMs) return;
    if (this.#waiting.size >= WAITING_MAX || isOpen(node.ino) || store.get('dirty', node.ino) !== undefined) return;
    this.#waiting.add(node.ino);
    if (this.#asking < QUESTIONS_AT_ONCE) void this.#ask();
  }

  /** Never rejects. */
  async #ask(): Promise<void> {
    this.#asking++;
    for (const ino of this.#waiting) {
      this.#waiting.delete(ino);
      try {
        await this.#learn(ino);
      } catch (err) {
        this.#deps.log.debug({ ino, err }, 'version not fetched ahead');
        // The queued files are requested, with retries, when they are opened.
        this.#waiting.clear();
        this.#pausedUntilMs = this.#deps.clock.elapsedMs() + PAUSE_MS;
      }
    }
    this.#asking--;
  }

  async #learn(ino: Inode): Promise<void> {
    const { store, contents, source, clock, shutdown, isOpen } = this.#deps;
    const listed = store.get('node', ino);
    const resource = listed?.remote?.resource;
    if (listed === undefined || resource === undefined || !isUnknown(listed)) return;
    const version = await source.newestVersion(resource, shutdown);
    const node = store.get('node', ino);
    if (version === null || node === undefined || !isUnknown(node) || isOpen(ino)) return;
    const { local, remote } = node;
    // A newer listing may have arrived meanwhile, or the file may have been replaced.
    const isListedSame = isSameServiceTime(remote?.modified ?? null, listed.remote?.modified ?? null);
    const isSame = remote?.resource === resource && isListedSame;
    if (local === null || remote === null || !isSame || version.sizeBytes !== local.sizeBytes) return;
    store.transact((tx) => {
      const content = contents.versionContent(tx, version.url, resource, version.sizeBytes);
      const known = { ...node, local: { ...local, content }, remote: { ...remote, content } };
      writeNode(tx, node, known, clock.nowMs());
    });
  }
}

/** Whether the node is as the service listed it, and its version was not requested yet. */
function isUnknown({ kind, local, remote }: NodeRecord): boolean {
  return kind === 'file' && local !== null && remote !== null && local.content === null && remote.content === null;
}
