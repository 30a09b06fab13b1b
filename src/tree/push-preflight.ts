import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { Inode } from '../base/vocabulary.ts';
import { ifReadable } from './if-readable.ts';
import type { MissingEntryQuestion } from './listing-application.ts';
import type { Tree } from './tree.ts';

export interface PushPreflightDeps {
  readonly tree: Tree;
  readonly clock: Clock;
  readonly log: Logger;
  /** Start of the folder's listing in progress (`elapsedMs`); undefined if there is none. */
  readonly begunMs: (folder: Inode) => number | undefined;
  /** Lists a folder, or waits for its listing in progress; never rejects. */
  readonly list: (folder: Inode) => Promise<void>;
  /** Probes one node and applies the result. */
  readonly ask: (question: MissingEntryQuestion) => Promise<unknown>;
}

/** Maximum age of the listings of the target folders of a push. */
const AGE_MS_MAX = 5 * 60_000;
/** Longest wait of a push for these listings: a push must continue if a folder cannot be listed. */
const WAIT_MS_MAX = 10_000;
/** Pause before pushes list a folder again after a failure, and limit of folders remembered for that. */
const PAUSE_MS = 60_000;
const REMEMBERED_MAX = 1_000;

/** Preflight of a push (ADR 24): checks that the target folders still exist. */
export class PushPreflight {
  readonly #deps: PushPreflightDeps;
  /** Time of the last listing for a push (`elapsedMs`), by folder; oldest first. */
  readonly #askedMs = new Map<Inode, number>();

  constructor(deps: PushPreflightDeps) {
    this.#deps = deps;
  }

  /**
   * Lists the node's ancestors that were not listed for a long time, then probes nodes on that path that are retained
   * after a remote deletion. The wait for both is bounded. Never rejects.
   */
  before(ino: Inode): void | Promise<void> {
    const { clock, log } = this.#deps;
    const looks = [...this.#foldersAbove(ino)]
      .filter((folder) => ifReadable(log, folder, () => this.#isOld(folder)) ?? false)
      .map((folder) => this.#look(folder));
    if (looks.length === 0 && this.#goneAbove(ino).length === 0) return;
    const looking = Promise.all(looks).then(() => Promise.all(this.#goneAbove(ino).map((gone) => this.#ask(gone))));
    const waiting = new AbortController();
    const late = clock.sleep(WAIT_MS_MAX, waiting.signal).catch(() => {});
    return Promise.race([looking, late]).then(() => waiting.abort());
  }

  #isOld(folder: Inode): boolean {
    const { tree, clock, begunMs } = this.#deps;
    const listedMs = tree.listedMs(folder);
    if (listedMs === null || tree.node(folder)?.remote == null || tree.isInTrash(folder)) return false;
    const ageMs = clock.nowMs() - listedMs;
    if (ageMs >= 0 && ageMs < AGE_MS_MAX) return false;
    const nowMs = clock.elapsedMs();
    const underWayMs = begunMs(folder);
    if (underWayMs !== undefined) return nowMs - underWayMs < WAIT_MS_MAX;
    return nowMs - (this.#askedMs.get(folder) ?? Number.NEGATIVE_INFINITY) >= PAUSE_MS;
  }

  #look(folder: Inode): Promise<void> {
    this.#askedMs.delete(folder);
    this.#askedMs.set(folder, this.#deps.clock.elapsedMs());
    for (const oldest of this.#askedMs.keys()) {
      if (this.#askedMs.size <= REMEMBERED_MAX) break;
      this.#askedMs.delete(oldest);
    }
    return this.#deps.list(folder);
  }

  /**
   * The node and its ancestors that are retained after a deletion, or may have been deleted: the deletion may be older
   * than the last listing.
   */
  #goneAbove(ino: Inode): MissingEntryQuestion[] {
    const { tree, log } = this.#deps;
    return [ino, ...this.#foldersAbove(ino)].flatMap((at) => {
      const node = tree.gone.has(at) ? ifReadable(log, at, () => tree.node(at)) : undefined;
      return node?.remote == null ? [] : [{ ino: at, resource: node.remote.resource, kind: node.kind }];
    });
  }

  #ask(question: MissingEntryQuestion): Promise<unknown> {
    const { log, ask } = this.#deps;
    return ask(question).catch((err: unknown) =>
      log.debug({ err, ino: question.ino }, 'node not probed before its push'),
    );
  }

  /** The node's remote ancestors, and its local ones, which become remote by its push. */
  #foldersAbove(ino: Inode): Set<Inode> {
    const { tree, log } = this.#deps;
    const above = new Set<Inode>();
    const node = ifReadable(log, ino, () => tree.node(ino));
    for (const start of [node?.remote?.parent, node?.local?.parent]) {
      for (let at = start; at !== undefined && !above.has(at); ) {
        above.add(at);
        const folder: Inode = at;
        const next = ifReadable(log, folder, () => tree.node(folder));
        at = next?.remote?.parent ?? next?.local?.parent;
      }
    }
    return above;
  }
}
