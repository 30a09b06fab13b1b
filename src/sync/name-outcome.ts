import type { Clock } from '../base/clock.ts';
import { ApiError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { RemoteEntry } from '../base/resources.ts';
import { type Inode, type IntentId, type NodeKind, type ResourceUrl, ROOT_INODE } from '../base/vocabulary.ts';
import type { Intents } from '../store/intents.ts';
import { isContentDirty, removeNode } from '../store/node-table.ts';
import type { RemoteFacet, StoreWriter } from '../store/tables.ts';
import type { DirtyIndex } from './dirty-index.ts';
import { mustBeUnknown, ownerOf, recordCreated, recordDeleted, recordGone, targetOf } from './outcome.ts';
import { PostponedError } from './push-failure.ts';
import type { RemoteChanges } from './remote-changes.ts';
import type { OnTreeChange } from './remote-naming.ts';

/**
 * Stores the outcome of creating, renaming, moving or deleting on the service, known from the response or by intent recovery, in the
 * transaction that also removes the intent.
 */
export class NameOutcome {
  readonly #deps: NameOutcomeDeps;

  constructor(deps: NameOutcomeDeps) {
    this.#deps = deps;
  }

  /**
   * A resource was created for `ino`, or one was found at the requested place.
   *
   * @param how a resource that was only found may be another client's, which has filled it or is about to
   * @returns the node that has the resource now
   */
  created(
    id: IntentId,
    ino: Inode,
    kind: NodeKind,
    made: { url: ResourceUrl; parent: Inode; name: string; fileName: string },
    how: 'made' | 'found',
  ): Inode {
    const { store, intents, clock } = this.#deps;
    return store.transact((tx) => {
      mustBeUnknown(tx, made.url);
      const intent = intents.get(id);
      const maker = intent?.owner ?? ino;
      intents.end(tx, id);
      const nowMs = clock.nowMs();
      const facet: RemoteFacet = {
        resource: made.url,
        parent: targetOf(tx, intent, made.parent),
        name: made.name,
        shownAs: made.fileName,
        sizeBytes: null,
        modified: null,
        mediaType: null,
        content: null,
        createdHereMs: how === 'made' ? nowMs : null,
      };
      const owner = recordCreated(tx, maker, kind, facet, nowMs);
      if (how === 'found' && kind === 'folder') tx.put('folder', owner, { listedMs: 0 });
      if (owner !== ino) tx.afterCommit(() => this.#deps.onDirty(owner));
      return owner;
    });
  }

  /** The resource was deleted, or was found deleted, together with the tombstones `below` it. */
  deleted(id: IntentId, resource: ResourceUrl, below: readonly Inode[]): void {
    const { store, intents, clock, index, deletion } = this.#deps;
    // The deepest first: after a crash, the remaining tombstones are still below the folder whose deletion is recovered.
    const inside = [...below].reverse();
    for (let at = 0; at < inside.length; at += NODES_PER_RECORD) {
      const some = inside.slice(at, at + NODES_PER_RECORD);
      store.transact((tx) => {
        for (const child of some) {
          const node = tx.get('node', child);
          if (node !== undefined && node.local === null) removeNode(tx, node, clock.nowMs());
          tx.afterCommit(() => index.refresh(child));
        }
      });
    }
    store.transact((tx) => {
      // Only a move into the local trash has a name.
      recordDeleted(tx, resource, intents.get(id)?.name ?? null, clock.nowMs());
      intents.end(tx, id);
      // From the trash it may come back, with versions of uploads that its deletion ended (`takeover`).
      if (deletion === 'forever') intents.forgetAbandoned(tx, resource);
    });
  }

  /**
   * Confirms a 404 of the resource, which any gateway in front of the service can produce. A deletion is proved by a listing of its folder
   * that lacks the resource, or by a folder that is itself deleted.
   *
   * @throws PostponedError if the folder lists the resource, or cannot be listed: the push waits
   */
  async mustBeGone(resource: ResourceUrl, signal: AbortSignal, depth = 0): Promise<void> {
    const { store, changes } = this.#deps;
    const parent = ownerOf(store, resource)?.remote?.parent;
    const folder = parent === undefined ? undefined : store.get('node', parent)?.remote?.resource;
    if (parent === undefined || folder === undefined) return;
    let entries: readonly RemoteEntry[];
    try {
      entries = await changes.list(folder, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      await this.folderMustBeGone(parent, folder, error, signal, depth + 1);
      return;
    }
    if (entries.some(({ url }) => url === resource)) throw doubtful();
  }

  /**
   * As `mustBeGone`, for a folder whose listing answered `error`, a 404. The root is never gone.
   *
   * @throws PostponedError if the folder has its address still, or the listing of its parent has it
   */
  async folderMustBeGone(
    ino: Inode,
    folder: ResourceUrl,
    error: ApiError,
    signal: AbortSignal,
    depth = 0,
  ): Promise<void> {
    if (ino === ROOT_INODE || depth > DEPTH_MAX) throw doubtful(error);
    if ((await this.#deps.changes.resource(folder, 'folder', signal)) !== null) throw doubtful(error);
    await this.mustBeGone(folder, signal, depth);
  }

  /** The service does not have the resource, and this push did not delete it. Call after `mustBeGone`. */
  gone(id: IntentId | null, resource: ResourceUrl): void {
    const { store, intents, clock, onTreeChange, onKeptOpen, log, isOpen } = this.#deps;
    log.info({ resource }, 'resource was deleted elsewhere');
    const removed = store.transact((tx) => {
      if (id !== null) intents.end(tx, id);
      intents.forgetAbandoned(tx, resource);
      const node = ownerOf(tx, resource);
      // A program has the file open and may be about to write. The push is repeated until the file is closed.
      if (node?.kind === 'file' && node.local !== null && !isContentDirty(node) && isOpen(node.ino)) {
        tx.afterCommit(() => onKeptOpen(node.ino));
        return null;
      }
      return recordGone(tx, resource, clock.nowMs());
    });
    if (removed?.local)
      onTreeChange([
        {
          ...{ kind: 'deleted', parent: removed.local.parent, ino: removed.ino, name: removed.local.name },
          isFolder: removed.kind === 'folder',
        },
      ]);
  }

  /**
   * Handles a 404 that may be the parent folder's. If the folder is deleted, it is recreated before its new entry. The root cannot be
   * recreated.
   *
   * @returns false, or throws `error` · PostponedError if the folder may only have another address
   */
  async parentMissing(parent: Inode, resource: ResourceUrl, error: ApiError, signal: AbortSignal): Promise<false> {
    if (parent === ROOT_INODE) throw error;
    if ((await this.#deps.changes.resource(resource, 'folder', signal)) !== null) throw error;
    await this.mustBeGone(resource, signal);
    // Also recovers the intent of a parked folder. Otherwise its new entries would wait permanently.
    this.#findOutAgain(parent);
    this.parentMayHaveMoved(parent, resource, error);
    this.gone(this.#deps.intents.ownedBy(parent)?.id ?? null, resource);
    this.#deps.onDirty(parent);
    return false;
  }

  /**
   * A refusal of a new entry proves nothing if the request named an address that the folder does not have any more.
   *
   * @throws PostponedError if an unacknowledged push of the folder may have changed its address, or an acknowledged one has. Not if that push
   *   is parked: no other push waits for a person
   */
  parentMayHaveMoved(parent: Inode, resource: ResourceUrl, error?: ApiError): void {
    const { store, intents } = this.#deps;
    const isOnItsWay = intents.ownedBy(parent) !== undefined && !store.get('dirty', parent)?.parked;
    if (isOnItsWay || store.get('resource', resource) !== parent)
      throw new PostponedError('its folder, or its target folder, is being changed', { cause: error });
  }

  /** Recovers the intent of a parked node, if it has one. */
  #findOutAgain(ino: Inode): void {
    const { store, intents, onDirty } = this.#deps;
    const dirty = store.get('dirty', ino);
    if (!dirty?.parked || intents.ownedBy(ino) === undefined) return;
    store.transact((tx) => tx.put('dirty', ino, { ...dirty, parked: null }));
    onDirty(ino);
  }
}

export interface NameOutcomeDeps {
  readonly store: StoreWriter;
  readonly changes: Pick<RemoteChanges, 'resource' | 'list'>;
  readonly intents: Intents;
  readonly index: DirtyIndex;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onTreeChange: OnTreeChange;
  readonly deletion: 'trash' | 'forever';
  /** Whether a handle of the node is open. */
  readonly isOpen: (ino: Inode) => boolean;
  /** The file was deleted remotely, and stays here unchanged while it is open. */
  readonly onKeptOpen: (ino: Inode) => void;
  /** The push made another node dirty. */
  readonly onDirty: (ino: Inode) => void;
}

function doubtful(cause?: ApiError): PostponedError {
  return new PostponedError('the address answers 404, but no listing proves the deletion', { cause });
}

/** Parent folders that are checked; bounds a loop in the responses of a service. */
const DEPTH_MAX = 64;
/** Nodes changed by one journal record at most, so that no turn of the thread takes long. */
const NODES_PER_RECORD = 500;
