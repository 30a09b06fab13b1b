import type { Clock } from '../base/clock.ts';
import { ApiError } from '../base/errors.ts';
import type { RemoteEntry } from '../base/resources.ts';
import type { Inode, ResourceUrl } from '../base/vocabulary.ts';
import { listAnew, removeNode } from '../store/node-table.ts';
import { mayBeTimeOf } from '../store/service-time.ts';
import type { NodeRecord, RemoteFacet, StoreWriter } from '../store/tables.ts';
import type { RemoteChanges } from './remote-changes.ts';

/**
 * The look into a folder that is about to be deleted whole, and into every folder below it: nothing must go with it that
 * somebody else put there and that was never shown here. No listing tells of more than one folder, so it takes one request for
 * each; some go at a time, because the time between the first of them and the deletion is time in which others may come.
 */
export class LastLook {
  readonly #deps: LastLookDeps;

  constructor(deps: LastLookDeps) {
    this.#deps = deps;
  }

  /**
   * Whether the service has nothing in the folder but what was deleted here. What somebody else changed since is theirs
   * again: its tombstone goes, and the next listing brings it back.
   */
  async holdsOnly(folder: NodeRecord, below: readonly Inode[], signal: AbortSignal): Promise<boolean> {
    const { store } = this.#deps;
    const known = new Set(below);
    const inside = below.map((ino) => store.get('node', ino)).filter((node) => node?.kind === 'folder');
    const resources = [folder, ...inside].map((node) => node?.remote?.resource).filter((url) => url !== undefined);
    const waiting = resources.values();
    let onlyOurs = true;
    let failed = false;
    const look = async (): Promise<void> => {
      for (const resource of waiting) {
        if (failed) return;
        try {
          if (!(await this.#holdsOnly(resource, known, signal))) onlyOurs = false;
        } catch (error) {
          failed = true;
          throw error;
        }
      }
    };
    const looking = Array.from({ length: Math.min(LISTINGS_AT_ONCE_MAX, resources.length) }, look);
    // None goes on behind the back of whoever hears of a failure.
    for (const end of await Promise.allSettled(looking)) if (end.status === 'rejected') throw end.reason;
    if (onlyOurs || below.length > 0) return onlyOurs;
    // Nothing of ours is left in it, something of theirs is: the folder comes back with their next listing.
    store.transact((tx) => {
      const node = tx.get('node', folder.ino);
      if (node?.remote && node.local === null) {
        listAnew(tx, node.remote.parent);
        removeNode(tx, node, this.#deps.clock.nowMs());
      }
    });
    return false;
  }

  /**
   * As `holdsOnly`, for a file that is deleted by itself: asked for right before, because a listing may be as old as this machine was away.
   * @returns whether it is as it was deleted here, or gone
   */
  async isAsDeleted(file: NodeRecord, remote: RemoteFacet, signal: AbortSignal): Promise<boolean> {
    const { store, changes, clock } = this.#deps;
    const now = await changes.resource(remote.resource, file.kind, signal);
    if (now === null) await this.#deps.mustBeGone(remote.resource, signal);
    if (now === null || !isChangedSince(file, now) || (await this.#deps.isOnlyAbandoned(remote, signal))) return true;
    store.transact((tx) => {
      const node = tx.get('node', file.ino);
      if (!node?.remote || node.local !== null) return;
      listAnew(tx, node.remote.parent);
      removeNode(tx, node, clock.nowMs());
    });
    return false;
  }

  async #holdsOnly(folder: ResourceUrl, known: ReadonlySet<Inode>, signal: AbortSignal): Promise<boolean> {
    const { store, changes, clock } = this.#deps;
    let entries: readonly RemoteEntry[];
    try {
      entries = await changes.list(folder, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      await this.#deps.mustBeGone(folder, signal);
      return true;
    }
    let onlyOurs = true;
    for (const entry of entries) {
      const ino = store.get('resource', entry.url);
      const node = ino === undefined ? undefined : store.get('node', ino);
      if (node?.remote && known.has(node.ino)) {
        if (!isChangedSince(node, entry) || (await this.#deps.isOnlyAbandoned(node.remote, signal))) continue;
      }
      onlyOurs = false;
      if (node !== undefined && node.local === null) store.transact((tx) => removeNode(tx, node, clock.nowMs()));
    }
    return onlyOurs;
  }
}

export interface LastLookDeps {
  readonly store: StoreWriter;
  readonly changes: Pick<RemoteChanges, 'list' | 'resource'>;
  /** Whether a file that differs from `remote` was changed by abandoned uploads only. */
  readonly isOnlyAbandoned: (remote: RemoteFacet, signal: AbortSignal) => Promise<boolean>;
  /** As `NameOutcome.mustBeGone`. */
  readonly mustBeGone: (resource: ResourceUrl, signal: AbortSignal) => Promise<void>;
  readonly clock: Clock;
}

/** As many as there are connections for documents, but one for who asks meanwhile. */
const LISTINGS_AT_ONCE_MAX = 7;

function isChangedSince(node: NodeRecord, entry: RemoteEntry): boolean {
  if (entry.kind === 'folder' || node.remote === null) return false;
  const { sizeBytes, modified } = node.remote;
  return entry.sizeBytes !== sizeBytes || !mayBeTimeOf(modified, entry.lastModifiedMs);
}
