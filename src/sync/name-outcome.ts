import type { Clock } from '../base/clock.ts';
import { ApiError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { RemoteEntry } from '../base/resources.ts';
import { type Inode, type IntentId, type NodeKind, type ResourceUrl, ROOT_INODE } from '../base/vocabulary.ts';
import type { Intents } from '../store/intents.ts';
import { isContentDirty, removeNode } from '../store/node-table.ts';
import type { RemoteFacet, StoreWriter } from '../store/tables.ts';
import type { DirtyIndex } from './dirty-index.ts';
import { PostponedError } from './failure.ts';
import { mustBeUnknown, ownerOf, recordCreated, recordDeleted, recordGone } from './outcome.ts';
import type { RemoteChanges } from './remote-changes.ts';
import type { OnTreeChange } from './remote-naming.ts';

/** Writes down what came of a push of names, whether its answer came or it was found out: in one record with the end of its intent. */
export class NameOutcome {
  readonly #deps: NameOutcomeDeps;

  constructor(deps: NameOutcomeDeps) {
    this.#deps = deps;
  }

  /**
   * A resource was created for `ino`, or was found where one was to be created.
   *
   * @param how a resource that was only found may be another client's, which has filled it or is about to
   * @returns the node that has it now
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
      const maker = intents.get(id)?.owner ?? ino;
      intents.end(tx, id);
      const nowMs = clock.nowMs();
      const facet: RemoteFacet = {
        resource: made.url,
        parent: made.parent,
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

  /** The resource was deleted, or found to have been, with the tombstones `below` it. */
  deleted(id: IntentId, resource: ResourceUrl, below: readonly Inode[]): void {
    const { store, intents, clock, index } = this.#deps;
    // The deepest first: what a crash leaves of it is still below the folder whose deletion is then found out.
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
      recordDeleted(tx, resource, clock.nowMs());
      intents.end(tx, id);
      intents.forgetAbandoned(tx, resource);
    });
  }

  /**
   * The resource's own address was 404, which any gateway in front of the service can say. A listing of its folder that lacks the resource
   * proves it, or a folder that is gone itself.
   *
   * @throws PostponedError where the folder lists the resource, or cannot be listed: the push waits
   */
  async mustBeGone(resource: ResourceUrl, signal: AbortSignal, depth = 0): Promise<void> {
    const { store, changes } = this.#deps;
    const parent = ownerOf(store, resource)?.remote?.parent;
    const folder = parent === undefined ? undefined : store.get('node', parent)?.remote?.resource;
    if (folder === undefined) return;
    const doubt = (cause?: ApiError) => new PostponedError('404, and nothing proves that it is gone', { cause });
    let entries: readonly RemoteEntry[];
    try {
      entries = await changes.list(folder, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      if (parent === ROOT_INODE || depth === DEPTH_MAX) throw doubt(error);
      if ((await changes.resource(folder, 'folder', signal)) !== null) throw doubt(error);
      await this.mustBeGone(folder, signal, depth + 1);
      return;
    }
    if (entries.some(({ url }) => url === resource)) throw doubt();
  }

  /** The service does not have the resource (any more), and it was not this push. Call after `mustBeGone`. */
  gone(id: IntentId | null, resource: ResourceUrl): void {
    const { store, intents, clock, onTreeChange, onKeptOpen, log, isOpen } = this.#deps;
    log.info({ resource }, 'resource was deleted elsewhere');
    const removed = store.transact((tx) => {
      if (id !== null) intents.end(tx, id);
      intents.forgetAbandoned(tx, resource);
      const node = ownerOf(tx, resource);
      // Whoever has it open may be about to write: tried again until it is closed.
      if (node?.kind === 'file' && node.local !== null && !isContentDirty(node) && isOpen(node.ino)) {
        tx.afterCommit(() => onKeptOpen(node.ino));
        return null;
      }
      return recordGone(tx, resource, clock.nowMs());
    });
    if (removed?.local)
      onTreeChange([{ kind: 'deleted', parent: removed.local.parent, ino: removed.ino, name: removed.local.name }]);
  }

  /**
   * A 404 that may be the folder's: then it is made anew before what goes into it, but for the mount's root, which lies nowhere.
   *
   * @returns false, or throws `error` · PostponedError where the folder may only have another address by now
   */
  async parentMissing(parent: Inode, resource: ResourceUrl, error: ApiError, signal: AbortSignal): Promise<false> {
    if (parent === ROOT_INODE) throw error;
    if ((await this.#deps.changes.resource(resource, 'folder', signal)) !== null) throw error;
    await this.mustBeGone(resource, signal);
    // What came of a push that was parked is asked for as well: what goes into the folder would wait for it for ever.
    this.#findOutAgain(parent);
    this.parentMayHaveMoved(parent, resource, error);
    this.gone(this.#deps.intents.ownedBy(parent)?.id ?? null, resource);
    this.#deps.onDirty(parent);
    return false;
  }

  /**
   * A refusal of what was to go into the folder says nothing where that was sent to an address that is not the folder's any more.
   *
   * @throws PostponedError where a push of the folder's own may have given it another, and its answer is on its way or was heard since; not where
   * that is parked: who waits for a person is waited for by nobody
   */
  parentMayHaveMoved(parent: Inode, resource: ResourceUrl, error?: ApiError): void {
    const { store, intents } = this.#deps;
    const isOnItsWay = intents.ownedBy(parent) !== undefined && !store.get('dirty', parent)?.parked;
    if (isOnItsWay || store.get('resource', resource) !== parent)
      throw new PostponedError('the folder that it lies in, or goes into, is being changed', { cause: error });
  }

  /** Where it has an intent. */
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
  /** Whether a handle of the node is open. */
  readonly isOpen: (ino: Inode) => boolean;
  /** It is gone, and stays here as it is for as long as it is open. */
  readonly onKeptOpen: (ino: Inode) => void;
  /** Another node than the one that is pushed has to be pushed now. */
  readonly onDirty: (ino: Inode) => void;
}

/** Folders above each other that are asked for; a loop in what a service tells ends here. */
const DEPTH_MAX = 64;
/** Nodes changed by one journal record at most, so that no turn of the thread takes long. */
const NODES_PER_RECORD = 500;
