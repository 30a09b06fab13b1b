import type { ContentId, Inode } from '../base/vocabulary.ts';
import { ifSound, soundNode } from '../store/node-table.ts';
import type { NodeRecord, StoreReader } from '../store/tables.ts';
import type { Blocker } from './push.ts';
import { changeKindOf, type ParkedChange, parkedChange, pathOf } from './sync-event.ts';

/** The result of one `syncNow`. */
export interface SyncReport {
  /** Nodes whose present state the service has now. */
  readonly pushed: number;
  /** Nodes that are not pushed: they were refused, or wait for one that was. */
  readonly parked: readonly ParkedChange[];
  /** Nodes that are open. They are pushed after they are closed. */
  readonly open: number;
}

export interface SyncRequestDeps {
  readonly inos: readonly Inode[];
  readonly store: StoreReader;
  /** Whether a push of the node is running, or has an unknown outcome. */
  readonly isBusy: (ino: Inode) => boolean;
  readonly isBeingWritten: (ino: Inode) => boolean;
  /** `found`: the blockers of other nodes, found in the same pass. */
  readonly blockerOf: (ino: Inode, found: Map<Inode, Blocker | null>) => Blocker | null;
  readonly signal: AbortSignal | undefined;
  readonly onEnd: (request: SyncRequest) => void;
}

/** The remaining work of a `syncNow`. */
export interface SyncLeft {
  readonly changes: number;
  /** Total length of the contents that are to be pushed. */
  readonly bytes: number;
}

/** Gets a function that returns the remaining work, while the request runs. */
export type OnBegin = (left: () => SyncLeft) => void;

/** The changes that one `syncNow` waits for, and their progress. */
export class SyncRequest {
  readonly report: Promise<SyncReport>;
  readonly #deps: SyncRequestDeps;
  readonly #left = new Map<Inode, Wanted>();
  /** Nodes that were not requested but have to be pushed first: a new parent, a node whose name has to become free. */
  readonly #before = new Set<Inode>();
  readonly #parked: ParkedChange[] = [];
  #pushed = 0;
  #open = 0;
  #resolve: (report: SyncReport) => void = () => {};
  #reject: (reason: unknown) => void = () => {};
  readonly #aborted = (): void => this.abort(this.#deps.signal?.reason);

  constructor(deps: SyncRequestDeps) {
    this.#deps = deps;
    this.report = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    // The caller may have stopped waiting meanwhile.
    this.report.catch(() => {});
    for (const ino of deps.inos) {
      const node = soundNode(deps.store, ino);
      if (node !== undefined && deps.isBeingWritten(ino)) this.#open++;
      else this.#left.set(ino, wantedOf(node));
    }
    if (deps.signal?.aborted) this.#aborted();
    else deps.signal?.addEventListener('abort', this.#aborted, { once: true });
  }

  /** Whether the node has to be pushed immediately. */
  has(ino: Inode): boolean {
    return this.#left.has(ino) || this.#before.has(ino);
  }

  /** The push of `ino` waits for that of another node. @returns whether this is new, so that the other node should be planned now */
  waitsFor(ino: Inode, before: Inode): boolean {
    if (!this.has(ino) || this.has(before)) return false;
    this.#before.add(before);
    return true;
  }

  left(): SyncLeft {
    let bytes = 0;
    for (const ino of this.#left.keys()) {
      const node = soundNode(this.#deps.store, ino);
      if (node !== undefined && changeKindOf(node) === 'upload') bytes += node.local?.sizeBytes ?? 0;
    }
    return { changes: this.#left.size, bytes };
  }

  inos(): Iterable<Inode> {
    return this.#left.keys();
  }

  /** Checks one node again, or all remaining ones if nothing changes any more. */
  check(ino?: Inode): void {
    if (ino !== undefined) this.#checkOne(ino);
    else {
      // A deleted folder of thousands is checked once, not once for each node in it; so is each node of a long wait chain.
      const found = new Map<Inode, Blocker | null>();
      for (const left of [...this.#left.keys()]) if (!this.#checkOne(left)) this.#checkBlocked(left, found);
    }
    if (this.#left.size > 0) return;
    this.#end();
    this.#resolve({ pushed: this.#pushed, parked: this.#parked, open: this.#open });
  }

  abort(reason: unknown): void {
    this.#end();
    this.#reject(reason);
  }

  /** @returns whether the request does not wait for the node any more */
  #checkOne(ino: Inode): boolean {
    const wanted = this.#left.get(ino);
    if (wanted === undefined) return true;
    const { store, isBusy, isBeingWritten } = this.#deps;
    if (isBusy(ino)) return false;
    const dirty = store.get('dirty', ino);
    if (dirty?.parked) {
      this.#left.delete(ino);
      this.#parked.push(parkedChange(store, ino, dirty.parked));
      return true;
    }
    const read = dirty === undefined ? 'clean' : ifSound(() => ({ node: store.get('node', ino) }));
    if (read === undefined) return false; // damaged: it is about to be parked
    if (read === 'clean' || isReached(read.node, wanted)) {
      this.#left.delete(ino);
      this.#pushed++;
      return true;
    }
    const { node } = read;
    if (isBeingWritten(ino) && node?.local?.content !== wanted.content) {
      this.#left.delete(ino);
      this.#open++;
      return true;
    }
    return false;
  }

  #checkBlocked(ino: Inode, found: Map<Inode, Blocker | null>): void {
    const { store, blockerOf } = this.#deps;
    const blocker = blockerOf(ino, found);
    if (blocker === null) return;
    this.#left.delete(ino);
    const parked = store.get('dirty', blocker.ino)?.parked;
    if (blocker.why === 'open' || !parked) {
      this.#open++;
      return;
    }
    const detail = blocker.ino === ino ? parked.detail : `waits for ${pathOf(store, blocker.ino)}`;
    this.#parked.push(parkedChange(store, ino, { ...parked, detail }));
  }

  #end(): void {
    this.#deps.signal?.removeEventListener('abort', this.#aborted);
    this.#deps.onEnd(this);
  }
}

/** The node as it was at the request. */
interface Wanted {
  readonly exists: boolean;
  readonly parent: Inode | null;
  readonly name: string | null;
  readonly content: ContentId | null;
}

function wantedOf(node: NodeRecord | undefined): Wanted {
  const local = node?.local ?? null;
  return {
    exists: local !== null,
    parent: local?.parent ?? null,
    name: local?.name ?? null,
    content: local?.content ?? null,
  };
}

function isReached(node: NodeRecord | undefined, wanted: Wanted): boolean {
  const remote = node?.remote ?? null;
  if (!wanted.exists || remote === null) return !wanted.exists && remote === null;
  return remote.parent === wanted.parent && remote.shownAs === wanted.name && remote.content === wanted.content;
}
