import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { Inode } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import { writeNode } from '../store/node-table.ts';
import type { NodeRecord, StoreWriter } from '../store/tables.ts';
import type { VersionSource } from './version-source.ts';

/** Smaller files are asked about when they are opened: a folder may hold thousands of them. */
const LARGE_BYTES_MIN = 1024 * 1024;
/** Files of one look that are asked about, the rest when they are opened: a listing costs a few requests more, not one for each. */
const WAITING_MAX = 64;
const QUESTIONS_AT_ONCE = 2;
/** After a question without an answer. */
const PAUSE_MS = 10_000;

export interface VersionsAheadDeps {
  readonly store: StoreWriter;
  readonly contents: Contents;
  readonly source: Pick<VersionSource, 'newestVersion'>;
  readonly clock: Pick<Clock, 'nowMs' | 'elapsedMs'>;
  readonly log: Logger;
  readonly shutdown: AbortSignal;
  /** Files that are open ask for themselves: they hold what they began with. */
  readonly isOpen: (ino: Inode) => boolean;
}

/**
 * Asks for the newest version of large files that were just listed, so that opening one costs no round trip before the one that
 * brings its bytes. What is learnt is believed for as long as the listing is: the next one that shows another size or time
 * drops it. Only an answer that fits the listing is kept, and one that does not come is nobody's loss.
 */
export class VersionsAhead {
  readonly #deps: VersionsAheadDeps;
  readonly #waiting = new Set<Inode>();
  #asking = 0;
  #pausedUntilMs = 0;

  constructor(deps: VersionsAheadDeps) {
    this.#deps = deps;
  }

  /** Somebody looked at the folder that the node lies in. */
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
        this.#deps.log.debug({ ino, err }, 'version not learnt ahead');
        // Whoever opens one of them waits for the service as patiently as is due.
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
    // Another listing may have come meanwhile, or the file may be another one by now.
    const isSame = remote?.resource === resource && remote.lastModifiedMs === listed.remote?.lastModifiedMs;
    if (local === null || remote === null || !isSame || version.sizeBytes !== local.sizeBytes) return;
    store.transact((tx) => {
      const content = contents.versionContent(tx, version.url, resource, version.sizeBytes);
      const known = { ...node, local: { ...local, content }, remote: { ...remote, content } };
      writeNode(tx, node, known, clock.nowMs());
    });
  }
}

/** Whether the node is what the service listed, and nobody asked which version that is. */
function isUnknown({ kind, local, remote }: NodeRecord): boolean {
  return kind === 'file' && local !== null && remote !== null && local.content === null && remote.content === null;
}
