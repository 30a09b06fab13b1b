import type { ContentId, Inode } from '../base/vocabulary.ts';
import { ifSound, soundNode } from '../store/node-table.ts';
import type { NodeRecord, StoreReader } from '../store/tables.ts';
import type { Blocker } from './push.ts';
import { changeKindOf, type ParkedChange, parkedChange, pathOf } from './sync-event.ts';

/** What became of what one `syncNow` was to push. */
export interface SyncReport {
  /** Nodes that the service has now as they were here. */
  readonly pushed: number;
  /** Nodes that stay behind: refused themselves, or waiting for one that was. */
  readonly parked: readonly ParkedChange[];
  /** Nodes that are open, so that their turn comes when they are closed. */
  readonly open: number;
}

export interface SyncRequestDeps {
  readonly inos: readonly Inode[];
  readonly store: StoreReader;
  /** Whether a push of the node is under way, or of unknown outcome. */
  readonly isBusy: (ino: Inode) => boolean;
  readonly isBeingWritten: (ino: Inode) => boolean;
  /** `found`: what was found of others already, in the same look at everything. */
  readonly blockerOf: (ino: Inode, found: Map<Inode, Blocker | null>) => Blocker | null;
  readonly signal: AbortSignal | undefined;
  readonly onEnd: (request: SyncRequest) => void;
}

/** How much of a `syncNow` is still to be done. */
export interface SyncLeft {
  readonly changes: number;
  /** Of contents that are to be pushed, whole. */
  readonly bytes: number;
}

/** Gets what tells how much is left, while it lasts. */
export type OnBegin = (left: () => SyncLeft) => void;

/** The set of changes that one `syncNow` waits for, and how far they are. */
export class SyncRequest {
  readonly report: Promise<SyncReport>;
  readonly #deps: SyncRequestDeps;
  readonly #left = new Map<Inode, Wanted>();
  /** Not asked for, but in the way of what is: a parent that is new, a name that has to become free. */
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
    // Whoever asked may have gone meanwhile.
    this.report.catch(() => {});
    for (const ino of deps.inos) {
      const node = soundNode(deps.store, ino);
      if (node !== undefined && deps.isBeingWritten(ino)) this.#open++;
      else this.#left.set(ino, wantedOf(node));
    }
    if (deps.signal?.aborted) this.#aborted();
    else deps.signal?.addEventListener('abort', this.#aborted, { once: true });
  }

  /** Whether the node's push is wanted at once. */
  has(ino: Inode): boolean {
    return this.#left.has(ino) || this.#before.has(ino);
  }

  /** The push of `ino` waits for that of another. @returns whether that is news, so that one should be decided about now */
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

  /** Looks again: at one node, or (when nothing moves any more) at all that are left. */
  check(ino?: Inode): void {
    if (ino !== undefined) this.#checkOne(ino);
    else {
      // A deleted folder of thousands is looked at once, not once for each that goes with it, and so is each of a long row.
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

  /** @returns whether it is not waited for any more */
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

/** The node as it was when it was asked for. */
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
