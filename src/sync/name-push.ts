import type { Clock } from '../base/clock.ts';
import { ApiError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { Inode, IntentId, NodeKind, ResourceUrl } from '../base/vocabulary.ts';
import type { Intents, NewIntent } from '../store/intents.ts';
import { isTrashFolder } from '../store/local-trash.ts';
import { listAnew, removeNode } from '../store/node-table.ts';
import type { NodeRecord, RemoteFacet, StoreWriter } from '../store/tables.ts';
import type { Place } from './collision-memory.ts';
import { CrossedMoves } from './crossed-moves.ts';
import { DeletePreflight, type DeletePreflightDeps } from './delete-preflight.ts';
import type { DirtyIndex } from './dirty-index.ts';
import { mediaTypeOf, SYMLINK_MEDIA_TYPE } from './media-type.ts';
import { NameCollisions, type OnInTheWay, type RefusedName, type WayAround } from './name-collisions.ts';
import type { NameOutcome } from './name-outcome.ts';
import { isTemporaryName, recordRelocated, targetOf, temporaryName } from './outcome.ts';
import type { Action } from './plan.ts';
import { hadNoEffect, ParkedError, PostponedError } from './push-failure.ts';
import type { RemoteChanges } from './remote-changes.ts';
import type { OnTreeChange, RemoteNaming } from './remote-naming.ts';
import { pathOf, type SyncEvent } from './sync-event.ts';
import { TrashEmptying } from './trash-emptying.ts';
import type { UrlChange } from './url-change.ts';

export interface NamePushDeps {
  readonly store: StoreWriter;
  readonly naming: RemoteNaming;
  readonly changes: RemoteChanges;
  readonly intents: Intents;
  readonly index: DirtyIndex;
  readonly outcome: NameOutcome;
  readonly urlChange: UrlChange;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onEvent: (event: SyncEvent) => void;
  readonly onTreeChange: OnTreeChange;
  /** The push made another node dirty. */
  readonly onDirty: (ino: Inode) => void;
  readonly onInTheWay: OnInTheWay;
  readonly isOnlyAbandoned: DeletePreflightDeps['isOnlyAbandoned'];
  /** The name of this machine in the names of conflicted copies. */
  readonly host: string;
  readonly deletion: 'trash' | 'forever';
}

type ActionOf<T extends Action['type']> = Extract<Action, { type: T }>;

/**
 * Carries out the plan's decisions about names: creations, moves and deletions. A request whose response was lost is recovered before it is
 * repeated (`IntentRecovery`). The record in table `intent` says what to look for, also after a crash.
 */
export class NamePush {
  readonly #deps: NamePushDeps;
  readonly #outcome: NameOutcome;
  readonly #taken: NameCollisions;
  readonly #crossedMoves: CrossedMoves;
  readonly #deletePreflight: DeletePreflight;
  readonly #trashEmptying: TrashEmptying;

  constructor(deps: NamePushDeps) {
    this.#deps = deps;
    this.#outcome = deps.outcome;
    this.#taken = new NameCollisions(deps);
    this.#crossedMoves = new CrossedMoves(deps);
    this.#trashEmptying = new TrashEmptying(deps.changes);
    this.#deletePreflight = new DeletePreflight({ ...deps, mustBeGone: deps.outcome.mustBeGone.bind(deps.outcome) });
  }

  async createFolder({ ino, parent, name }: ActionOf<'create-folder'>, signal: AbortSignal): Promise<void> {
    const made = await this.#create('create-folder', ino, parent, name, signal);
    if (made) this.#deps.onEvent({ type: 'folder-created', path: pathOf(this.#deps.store, ino) });
  }

  /** Creates the file without bytes. @returns whether `ino` owns the new resource */
  createFile({ ino, parent, name }: ActionOf<'create-file'>, signal: AbortSignal): Promise<boolean> {
    return this.#create('create-file', ino, parent, name, signal);
  }

  async relocate({ ino, parent, name }: ActionOf<'relocate'>, signal: AbortSignal): Promise<void> {
    const { store, onEvent } = this.#deps;
    const node = store.get('node', ino);
    if (node?.remote && isTrashFolder(store, parent)) return this.#toTrash(node, node.remote, signal);
    const target = store.get('node', parent)?.remote?.resource;
    if (!node?.remote || target === undefined) return;
    const fileName = name ?? temporaryName(ino);
    const remoteName = name === null ? fileName : this.#remoteName(node.remote, name);
    const from = pathOf(store, node.remote.parent);
    await this.#place(node, node.remote, target, remoteName, fileName, signal);
    if (name !== null && node.local !== null) {
      const before = node.remote.shownAs;
      onEvent({ type: 'renamed', from: from === '' ? before : `${from}/${before}`, to: pathOf(store, ino) });
    }
  }

  /**
   * Deletes the resource; for a folder, everything below it too.
   * @returns 'split' if the folder contains entries that must not be deleted
   */
  async remove({ ino, below }: ActionOf<'delete'>, signal: AbortSignal): Promise<'done' | 'split'> {
    const { store, changes, deletion, onEvent } = this.#deps;
    const node = store.get('node', ino);
    if (!node?.remote || node.local !== null) return 'done';
    const { resource, name, nameBefore } = node.remote;
    if (isTrashFolder(store, node.remote.parent)) return this.#deleteTrashed(node, node.remote, below, signal);
    if (node.kind === 'folder' && !(await this.#deletePreflight.holdsOnly(node, below, signal))) return 'split';
    if (node.kind !== 'folder' && !(await this.#deletePreflight.isAsDeleted(node, node.remote, signal))) return 'done';
    // A listing has restored the node during the preflight.
    if (store.get('node', ino)?.local !== null) return 'done';
    const path = pathOf(store, ino);
    const id = this.#begin(ino, { action: 'trash', parentResource: null, name: null, resource });
    await this.#sent(id, () =>
      deletion === 'trash'
        ? changes.moveToTrash(resource, node.kind, (isTemporaryName(name) ? nameBefore : null) ?? name, signal)
        : changes.deleteForever(resource, node.kind, signal),
    );
    this.#outcome.deleted(id, resource, below);
    onEvent({ type: 'deleted', path, to: deletion, url: resource });
    return 'done';
  }

  /** Moves the resource of an entry of the local trash to the trash of the service. A file that was saved elsewhere since goes back. */
  async #toTrash(node: NodeRecord, { resource, parent, shownAs, name, nameBefore }: RemoteFacet, signal: AbortSignal) {
    const { store, changes, onEvent } = this.#deps;
    const { ino, kind, remote } = node;
    if (remote === null) return;
    if (kind !== 'folder' && !(await this.#deletePreflight.isAsDeleted(node, remote, signal))) return;
    // Restored during the preflight.
    const local = store.get('node', ino)?.local;
    if (local == null || !isTrashFolder(store, local.parent)) return;
    const folder = pathOf(store, parent);
    const id = this.#begin(ino, { action: 'trash', parentResource: null, name: local.name, resource });
    const remoteName = (isTemporaryName(name) ? nameBefore : null) ?? name;
    await this.#sent(id, () => changes.moveToTrash(resource, kind, remoteName, signal));
    this.#outcome.deleted(id, resource, []);
    onEvent({ type: 'deleted', path: folder === '' ? shownAs : `${folder}/${shownAs}`, to: 'trash', url: resource });
  }

  /** Deletes an entry of the trash of the service permanently. One that another client restored stays, and listings show it again. */
  async #deleteTrashed(
    { ino, kind }: NodeRecord,
    { resource, name }: RemoteFacet,
    below: readonly Inode[],
    signal: AbortSignal,
  ): Promise<'done'> {
    const { store, changes, clock, naming, onEvent } = this.#deps;
    const isThere = await this.#trashEmptying.isInTrash(resource, kind, signal);
    if (!isThere || (kind === 'folder' && !(await this.#trashEmptying.emptyFolder(resource, signal)))) {
      store.transact((tx) => {
        const node = tx.get('node', ino);
        if (node?.local === null && node.remote?.resource === resource) removeNode(tx, node, clock.nowMs());
      });
      return 'done';
    }
    const id = this.#begin(ino, { action: 'trash', parentResource: null, name: null, resource });
    await this.#sent(id, () => changes.deleteForever(resource, kind, signal));
    this.#outcome.deleted(id, resource, below);
    onEvent({ type: 'deleted', path: naming.toFileName(name), to: 'forever', url: resource });
    return 'done';
  }

  /**
   * The remote name for a node that is shown as `name`. If only the folder changes, the remote name stays, even one that is no valid file
   * name (more than 255 bytes). A number that distinguishes equal names becomes part of the remote name: the user who moved the file saw it.
   */
  #remoteName(remote: RemoteFacet, name: string): string {
    const { naming } = this.#deps;
    const isKept = name === remote.shownAs && naming.toFileName(remote.name) === name;
    return isKept ? remote.name : naming.toRemoteName(name);
  }

  async #create(
    action: 'create-folder' | 'create-file',
    ino: Inode,
    parent: Inode,
    name: string,
    signal: AbortSignal,
  ): Promise<boolean> {
    const { store, naming, changes, log } = this.#deps;
    const node = store.get('node', ino);
    const parentResource = store.get('node', parent)?.remote?.resource;
    if (node === undefined || parentResource === undefined) return false;
    const kind: NodeKind = node.kind;
    let remoteName = naming.toRemoteName(name);
    const mediaType = kind === 'symlink' ? SYMLINK_MEDIA_TYPE : mediaTypeOf(name);
    for (let attempt = 1; ; attempt++) {
      const asked = remoteName;
      const id = this.#begin(ino, { action, parentResource, name: asked, resource: null });
      try {
        const url = await this.#sent(id, () =>
          kind === 'folder'
            ? changes.createFolder(parentResource, asked, signal)
            : changes.createFile(parentResource, asked, mediaType, signal),
        );
        const isMade =
          this.#outcome.created(id, ino, kind, { url, parent, name: asked, fileName: name }, 'made') === ino;
        if (isMade && asked !== naming.toRemoteName(name)) this.#calledOtherwise(ino, parent, asked);
        return isMade;
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        if (error.status === 404) return this.#outcome.parentMissing(parent, parentResource, error, signal);
        if (error.status === 403) this.#outcome.parentMayHaveMoved(parent, parentResource, error);
        // Some services answer 400 if a folder's name is taken (docs/service.md 13.4).
        const mayBeTaken = error.status === 409 || (error.status === 400 && kind === 'folder');
        if (!mayBeTaken || attempt === NAME_ATTEMPTS_MAX) throw nameRefused(error);
        const place = { parent, name };
        const refused = { ino, kind, self: null, folder: parentResource, name: asked, place };
        const way = await this.#wayAround(refused, signal);
        if (way.type === 'adopt') {
          this.#mustBeWanted(node, place, null);
          const found = { url: way.url, parent, name: asked, fileName: name };
          return this.#outcome.created(id, ino, kind, found, 'found') === ino;
        }
        if (way.type !== 'rename' && error.status === 400) throw nameRefused(error);
        this.#mustBeWanted(node, place, way.type === 'rename' ? null : asked);
        if (way.type !== 'rename') continue;
        log.info({ ino, status: error.status }, 'the name is taken on the service; another name is used there');
        remoteName = way.name;
      }
    }
  }

  /** Moves a resource to a place, with another name if the service says that the name is taken. */
  async #place(
    node: NodeRecord,
    remote: RemoteFacet,
    target: ResourceUrl,
    wanted: string,
    fileName: string,
    signal: AbortSignal,
  ): Promise<void> {
    const { store, changes, intents, clock, log } = this.#deps;
    const { ino, kind } = node;
    const targetIno = store.get('resource', target);
    if (targetIno === undefined) return;
    const place = { parent: targetIno, name: fileName };
    let remoteName = wanted;
    for (let attempt = 1; ; attempt++) {
      const asked = remoteName;
      const id = this.#begin(ino, {
        action: 'relocate',
        parentResource: target,
        name: asked,
        resource: remote.resource,
      });
      try {
        const url = await this.#sent(id, () => changes.relocate(remote.resource, kind, target, asked, signal));
        store.transact((tx) => {
          const folder = targetOf(tx, intents.get(id), targetIno);
          const there = { resource: url, parent: folder, name: asked, shownAs: fileName };
          recordRelocated(tx, remote.resource, there, clock.nowMs());
          intents.end(tx, id);
          intents.readdress(tx, remote.resource, url);
        });
        if (asked !== wanted) this.#calledOtherwise(ino, targetIno, asked);
        return;
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        if (error.status === 404) {
          await this.#notFound(node, remote, { folder: targetIno, resource: target, name: asked }, error, signal);
          return;
        }
        if (error.status === 403) this.#outcome.parentMayHaveMoved(targetIno, target, error);
        // 429 and 503 mean a busy service, not a refusal.
        const isRefusal = error.status >= 400 && error.status < 429;
        if (isRefusal && kind === 'folder' && targetIno !== remote.parent) {
          const inside = await this.#crossedMoves.wayInside(target, remote.resource, signal);
          if (inside !== null) {
            this.#mustBeWanted(node, place, null);
            log.info({ ino }, 'two folders were moved into each other here and elsewhere; the move here is undone');
            this.#crossedMoves.undoMove(ino, inside);
            return;
          }
          // Another push of this mount may have moved the obstacle away meanwhile.
          if (attempt === 1) {
            this.#mustBeWanted(node, place, asked);
            continue;
          }
        }
        if (error.status !== 409 || attempt === NAME_ATTEMPTS_MAX) throw nameRefused(error);
        const refused = { ino, kind, self: remote.resource, folder: target, name: asked, place };
        const way = await this.#wayAround(refused, signal);
        if (way.type === 'self') {
          // The node's own old name is the obstacle (`readme` to `README` on a service that folds case). A temporary name comes first.
          await this.#place(node, remote, target, temporaryName(ino), temporaryName(ino), signal);
          throw new PostponedError('it has a temporary name on the service until its new name is free');
        }
        this.#mustBeWanted(node, place, way.type === 'rename' ? null : asked);
        if (way.type === 'rename') remoteName = way.name;
      }
    }
  }

  /**
   * Checks that the refused request is still wanted, before it is repeated or the node gives way. It is obsolete in three cases: the node was
   * moved or deleted here; it took over another resource together with its intent, which a new intent would replace; another node of ours
   * occupies the place.
   *
   * @param name the name, if it is the same again; null for another one
   * @throws PostponedError if the request is obsolete: the node is planned again
   */
  #mustBeWanted({ ino, local: before, remote }: NodeRecord, { parent }: Place, name: string | null): void {
    const { store, index } = this.#deps;
    const now = store.get('node', ino);
    const isElsewhere = now?.local?.parent !== before?.parent || now?.local?.name !== before?.name;
    const isOther = now?.remote?.resource !== remote?.resource;
    const isTaken = name !== null && [...index.occupants(parent, name)].some((other) => other !== ino);
    if (isElsewhere || isOther || isTaken) throw new PostponedError('its place changed, or is occupied');
  }

  /** The service has the node under another name than requested, because that name was taken. The next listing uses that name here too. */
  #calledOtherwise(ino: Inode, parent: Inode, name: string): void {
    const { store, naming, onEvent } = this.#deps;
    store.transact((tx) => listAnew(tx, parent));
    const path = pathOf(store, ino);
    onEvent({ type: 'conflict', path, copy: path.replace(/[^/]*$/, () => naming.toFileName(name)) });
  }

  /** As `NameCollisions.wayAround`. @throws PostponedError if the folder is deleted, or has another address */
  async #wayAround(refused: RefusedName, signal: AbortSignal): Promise<WayAround> {
    try {
      return await this.#taken.wayAround(refused, signal);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
      await this.#outcome.parentMissing(refused.place.parent, refused.folder, error, signal);
      throw new PostponedError('its target folder was deleted', { cause: error });
    }
  }

  /** Handles a 404 for a move. It concerns the moved resource, which may have another address now, or the target folder. */
  async #notFound(
    { ino, kind }: NodeRecord,
    { resource }: RemoteFacet,
    aimed: { readonly folder: Inode; readonly resource: ResourceUrl; readonly name: string },
    error: ApiError,
    signal: AbortSignal,
  ): Promise<void> {
    const { store, changes, urlChange } = this.#deps;
    // The address of the folder may have changed since the push began.
    const parentResource = store.get('node', aimed.folder)?.remote?.resource ?? aimed.resource;
    // Until the outcome is known, listings of the target folder must not treat the node's entry as another client's.
    const id = this.#begin(ino, { action: 'relocate', parentResource, name: aimed.name, resource });
    const found = await changes.resource(resource, kind, signal);
    if (found !== null && found.url === resource) {
      this.#deps.intents.forget(id);
      // If the folder's address changed meanwhile, the push is repeated with the present one.
      if (store.get('resource', aimed.resource) === aimed.folder)
        await this.#outcome.parentMissing(aimed.folder, aimed.resource, error, signal);
      return;
    }
    await urlChange.recover(id, resource, found, signal);
  }

  /**
   * @throws PostponedError if the resource belongs to another node, or has another address, since an earlier request of this push: the
   *   operation would not belong to the node that it changes
   */
  #begin(owner: Inode, started: Omit<NewIntent, 'owner' | 'content'>): IntentId {
    const { store, intents, clock } = this.#deps;
    return store.transact((tx) => {
      const { resource } = started;
      if (resource !== null && tx.get('resource', resource) !== owner)
        throw new PostponedError('its resource belongs to another file now, or has another address');
      return intents.begin(tx, { ...started, owner, content: null }, clock.nowMs());
    });
  }

  /** A request that may take effect although its response is lost. The intent ends if the request certainly had no effect. */
  async #sent<T>(id: IntentId, request: () => Promise<T>): Promise<T> {
    try {
      return await request();
    } catch (error) {
      if (hadNoEffect(error)) this.#deps.intents.forget(id);
      throw error;
    }
  }
}

/** A 400 for a request that only gives a name is about the name. */
function nameRefused(error: ApiError): Error {
  return error.status === 400 ? new ParkedError('name-refused', error.message, { cause: error }) : error;
}

/** Names tried for one node before its push is parked. */
const NAME_ATTEMPTS_MAX = 4;
