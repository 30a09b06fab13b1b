import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { Inode } from '../base/vocabulary.ts';
import { ifReadable } from './if-readable.ts';
import type { AbsenceQuestion } from './listing-application.ts';
import type { Tree } from './tree.ts';

export interface PushLookDeps {
  readonly tree: Tree;
  readonly clock: Clock;
  readonly log: Logger;
  /** When the listing of a folder that is under way began (by `elapsedMs`); undefined: none is. */
  readonly begunMs: (folder: Inode) => number | undefined;
  /** Lists a folder, or waits for the listing that is under way; never rejects. */
  readonly list: (folder: Inode) => Promise<void>;
  /** Asks the service for one node and believes the answer. */
  readonly ask: (question: AbsenceQuestion) => Promise<unknown>;
}

/** What is pushed goes into folders that were listed so long ago at most. */
const AGE_MS_MAX = 5 * 60_000;
/** How long a push waits for that, at most: it is to go on where a folder cannot be listed. */
const WAIT_MS_MAX = 10_000;
/** How long what cannot be listed is not asked for again by pushes, and how many such folders are remembered. */
const PAUSE_MS = 60_000;
const REMEMBERED_MAX = 1_000;

/** A look before a push (ADR 24): is the place still there that a change is about to be pushed into? */
export class PushLook {
  readonly #deps: PushLookDeps;
  /** When a push last asked for a folder (by `elapsedMs`); the oldest first. */
  readonly #askedMs = new Map<Inode, number>();

  constructor(deps: PushLookDeps) {
    this.#deps = deps;
  }

  /**
   * Lists the folders on the way to a node that were not listed for long, then asks for what is kept on that way though it is gone; waits a
   * while for both. Never rejects.
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
    if (listedMs === null || tree.node(folder)?.remote == null) return false;
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

  /** The node, or folders above it, where they are kept though they are gone, or may be: it may have been long before the last listing. */
  #goneAbove(ino: Inode): AbsenceQuestion[] {
    const { tree, log } = this.#deps;
    return [ino, ...this.#foldersAbove(ino)].flatMap((at) => {
      const node = tree.gone.has(at) ? ifReadable(log, at, () => tree.node(at)) : undefined;
      return node?.remote == null ? [] : [{ ino: at, resource: node.remote.resource, kind: node.kind }];
    });
  }

  #ask(question: AbsenceQuestion): Promise<unknown> {
    const { log, ask } = this.#deps;
    return ask(question).catch((err: unknown) =>
      log.debug({ err, ino: question.ino }, 'not asked for before its push'),
    );
  }

  /** The folders that lead to a node on the service, and those that will when its change is pushed. */
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
