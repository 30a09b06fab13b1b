import type { Clock } from '../base/clock.ts';
import { ApiError } from '../base/errors.ts';
import type { RemoteEntry } from '../base/resources.ts';
import type { Inode, ResourceUrl } from '../base/vocabulary.ts';
import type { Intents } from '../store/intents.ts';
import { isTrashFolder } from '../store/local-trash.ts';
import { listAnew, removeNode, writeNode } from '../store/node-table.ts';
import { mayBeTimeOf } from '../store/service-time.ts';
import type { NodeRecord, RemoteFacet, StoreWriter } from '../store/tables.ts';
import type { RemoteChanges } from './remote-changes.ts';
import type { OnTreeChange } from './remote-naming.ts';

/**
 * Checks a folder, and every folder below it, right before it is deleted whole: the deletion must not include entries of other clients that
 * were never shown here. A listing covers one folder, so that each folder costs a request. Several requests run in parallel, because other
 * clients may add entries between the first of them and the deletion.
 */
export class DeletePreflight {
  readonly #deps: DeletePreflightDeps;

  constructor(deps: DeletePreflightDeps) {
    this.#deps = deps;
  }

  /**
   * Whether the remote folder holds only nodes that were deleted here. If another client changed one of them since, its tombstone is removed,
   * and the next listing shows it again.
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
    // All requests have to end before the failure is reported: none continues in the background.
    for (const end of await Promise.allSettled(looking)) if (end.status === 'rejected') throw end.reason;
    if (onlyOurs || below.length > 0) return onlyOurs;
    // The folder holds entries of other clients only. The next listing of its parent shows it again.
    this.#giveBack(folder.ino);
    return false;
  }

  /**
   * As `holdsOnly`, for a single file. Asked right before the deletion, because the last listing may be as old as the time that this machine
   * was offline.
   * @returns whether the file is unchanged since it was deleted here, or is deleted remotely as well
   */
  async isAsDeleted(file: NodeRecord, remote: RemoteFacet, signal: AbortSignal): Promise<boolean> {
    const { changes } = this.#deps;
    const now = await changes.resource(remote.resource, file.kind, signal);
    if (now === null) await this.#deps.mustBeGone(remote.resource, signal);
    if (now === null || !isChangedSince(file, now) || (await this.#deps.isOnlyAbandoned(remote, signal))) return true;
    this.#giveBack(file.ino);
    return false;
  }

  /** Removes a tombstone: the next listing of its folder shows the resource again. */
  #giveBack(ino: Inode): void {
    const { store, clock } = this.#deps;
    store.transact((tx) => {
      const node = tx.get('node', ino);
      if (!node?.remote) return;
      const { parent, shownAs } = node.remote;
      if (node.local !== null) {
        // In the local trash.
        if (!isTrashFolder(tx, node.local.parent) || tx.get('name', [parent, shownAs]) !== undefined) return;
        writeNode(tx, node, { ...node, local: { ...node.local, parent, name: shownAs } }, clock.nowMs());
        tx.afterCommit(() => this.#deps.onTreeChange([{ kind: 'entry', parent, name: shownAs }]));
      } else removeNode(tx, node, clock.nowMs());
      listAnew(tx, parent);
    });
  }

  async #holdsOnly(folder: ResourceUrl, known: ReadonlySet<Inode>, signal: AbortSignal): Promise<boolean> {
    const { store, intents, changes, clock } = this.#deps;
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
      // A creation that was acknowledged after the deletion was planned is not among the known ones, but deleted as well.
      if (node?.remote && (known.has(node.ino) || node.local === null)) {
        if (!isChangedSince(node, entry) || (await this.#deps.isOnlyAbandoned(node.remote, signal))) continue;
      }
      onlyOurs = false;
      store.transact((tx) => {
        const now = node === undefined ? undefined : tx.get('node', node.ino);
        // The tombstone of a deletion in flight stays until its outcome is known.
        if (now?.local === null && intents.ownedBy(now.ino) === undefined) removeNode(tx, now, clock.nowMs());
      });
    }
    return onlyOurs;
  }
}

export interface DeletePreflightDeps {
  readonly store: StoreWriter;
  readonly intents: Pick<Intents, 'ownedBy'>;
  readonly changes: Pick<RemoteChanges, 'list' | 'resource'>;
  /** Whether a file that differs from `remote` was changed by abandoned uploads only. */
  readonly isOnlyAbandoned: (remote: RemoteFacet, signal: AbortSignal) => Promise<boolean>;
  /** As `NameOutcome.mustBeGone`. */
  readonly mustBeGone: (resource: ResourceUrl, signal: AbortSignal) => Promise<void>;
  readonly clock: Clock;
  readonly onTreeChange: OnTreeChange;
}

/** The number of connections for documents, less one that stays free for other requests. */
const LISTINGS_AT_ONCE_MAX = 7;

function isChangedSince(node: NodeRecord, entry: RemoteEntry): boolean {
  if (entry.kind === 'folder' || node.remote === null) return false;
  const { sizeBytes, modified } = node.remote;
  return entry.sizeBytes !== sizeBytes || !mayBeTimeOf(modified, entry.lastModifiedMs);
}
