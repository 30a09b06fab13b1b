import type { Clock } from '../base/clock.ts';
import { FsError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { RemoteEntry, RemoteResource } from '../base/resources.ts';
import {
  type ContentId,
  type Inode,
  isSpecial,
  type NodeKind,
  type ResourceUrl,
  ROOT_INODE,
  timespecOfMs,
} from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import type { Intents } from '../store/intents.ts';
import { isInTrash, isTrashedThere, isTrashFolder, setTrashRoot, trashRootAbove } from '../store/local-trash.ts';
import { childOf, newInode, removeNode, writeNode } from '../store/node-table.ts';
import { pinnedNodes } from '../store/pinned-nodes.ts';
import { rollbackRemovals, writeRollbackRemovals } from '../store/rollback-removals.ts';
import type { LocalFacet, NodeRecord, StoreWriter, Transaction } from '../store/tables.ts';
import {
  type AbsenceOutcome,
  ListingApplication,
  type MergeOutcome,
  type NewcomerOptions,
} from './listing-application.ts';
import type { ListingFence } from './listing-fence.ts';
import { isComplete, isEmpty, liveFolder, mustBeEmpty, touch } from './live-folder.ts';
import type { MergedAhead } from './merged-ahead.ts';
import type { Names } from './names.ts';
import type { LocalChangeKind, NodeChanges } from './node-changes.ts';
import { OwnershipTransfer } from './ownership-transfer.ts';
import type { ReceivedChange } from './received-changes.ts';
import type { OpenHere, RemoteDeletions } from './remote-deletions.ts';
import { type RenameMode, renameNode } from './rename.ts';
import { rootNode } from './root-node.ts';
import { VacatedNames } from './vacated-names.ts';

export type { AbsenceOutcome, MergeOutcome, MissingEntryQuestion, TreeInvalidation } from './listing-application.ts';

export type AttributePatch = Partial<
  Pick<LocalFacet, 'mode' | 'uid' | 'gid' | 'atime' | 'mtime' | 'ctime' | 'xattrs' | 'content' | 'sizeBytes'>
>;

export interface NodeInit {
  readonly kind: NodeKind;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  /** Initial content; by default a file gets an empty draft. Created in the transaction that creates the node. */
  readonly content?: ContentId | ((tx: Transaction) => ContentId);
  readonly sizeBytes?: number;
}

export interface TreeDeps {
  readonly store: StoreWriter;
  readonly contents: Contents;
  readonly names: Names;
  readonly intents: Intents;
  readonly fence: ListingFence;
  readonly clock: Clock;
  readonly log: Logger;
  /** The service lost the newest version of a file; `copy` holds the local bytes. */
  readonly onTakenBack?: (ino: Inode, copy: Inode | null) => void;
  /** Where the tree reports changes of its nodes. */
  readonly changes: NodeChanges;
  /** Changes made elsewhere that are shown now. */
  readonly onReceived?: (changes: readonly ReceivedChange[]) => void;
  /** Files deleted remotely while open here are retained or recreated. */
  readonly openFiles?: () => Iterable<OpenHere>;
  readonly options: NewcomerOptions & {
    readonly saveWindowMs: number;
    readonly settleMs: number;
    /** What is deleted when the local trash is emptied: nothing of the service, or also what its trash has. */
    readonly emptyTrash?: 'here' | 'service';
  };
}

/**
 * The node tree: lookup, create, rename, remove, and merging of listings.
 *
 * User operations write the local facet and return immediately; each is one atomic record of the store. Names are
 * compared by bytes, so upper and lower case differ. Every method may throw StorageError if the store cannot save the
 * change.
 */
export class Tree {
  /** Names that a save may take over. */
  readonly vacated: VacatedNames;
  readonly #store: StoreWriter;
  readonly #contents: Contents;
  readonly #names: Names;
  readonly #intents: Intents;
  readonly #clock: Clock;
  readonly #ownershipTransfer: OwnershipTransfer;
  readonly #listings: ListingApplication;
  readonly #changes: NodeChanges;
  readonly #emptyTrash: 'here' | 'service';

  constructor(deps: TreeDeps) {
    this.#store = deps.store;
    this.#contents = deps.contents;
    this.#names = deps.names;
    this.#intents = deps.intents;
    this.#clock = deps.clock;
    this.#changes = deps.changes;
    this.#emptyTrash = deps.options.emptyTrash ?? 'here';
    this.vacated = new VacatedNames(deps.options);
    this.#ownershipTransfer = new OwnershipTransfer({
      ...deps,
      vacated: this.vacated,
      isPinned: (ino) => pinnedNodes(deps.store).includes(ino),
      changed: (ino, what) => this.#tellLocal(ino, what),
      transferred: (from, to) => this.#changes.emit('ownershipTransferred', from, to),
    });
    this.#listings = new ListingApplication({
      ...deps,
      pinnedAgain: (inos) => this.#changes.emit('pinned', inos),
      changedThere: (changes) => {
        if (changes.length > 0) this.#changes.emit('remote', changes);
      },
      toPush: (ino) => this.#tellLocal(ino, 'moved'),
    });
  }

  /** Creates the root node in an empty store. Idempotent; an existing root is unchanged. */
  static createRoot(
    store: StoreWriter,
    clock: Clock,
    root: { readonly resource: ResourceUrl; readonly uid: number; readonly gid: number },
  ): void {
    if (store.get('node', ROOT_INODE) !== undefined) return;
    const nowMs = clock.nowMs();
    store.transact((tx) => {
      while (newInode(tx) < ROOT_INODE);
      writeNode(tx, undefined, rootNode(root, nowMs), nowMs);
    });
  }

  /** The record of an inode, including tombstones: deleted here (local facet null), but not yet remotely. */
  node(ino: Inode): NodeRecord | undefined {
    return this.#store.get('node', ino);
  }

  /** The node of a known resource. */
  nodeOf(resource: ResourceUrl): NodeRecord | undefined {
    const ino = this.#store.get('resource', resource);
    return ino === undefined ? undefined : this.#store.get('node', ino);
  }

  child(parent: Inode, name: string): NodeRecord | undefined {
    return childOf(this.#store, parent, name);
  }

  /** Entries in the order of their names' bytes, from `after` (exclusive) on. */
  *children(parent: Inode, after?: string): Iterable<{ readonly name: string; readonly node: NodeRecord }> {
    for (const [name, ino] of this.#store.scan('name', parent, after)) {
      const node = this.#store.get('node', ino);
      if (node !== undefined) yield { name, node };
    }
  }

  isEmpty(folder: Inode): boolean {
    return isEmpty(this.#store, folder);
  }

  /** Whether all entries of a folder are known: it was listed at least once, or exists only here. */
  isComplete(folder: Inode): boolean {
    return isComplete(this.#store, folder);
  }

  /** When the newest merged listing of a folder was requested (wall, ms); null for never. */
  listedMs(folder: Inode): number | null {
    return this.#store.get('folder', folder)?.listedMs ?? null;
  }

  /**
   * Creates an entry. A file gets an empty draft, so that it is pushed; it takes over a resource that had the name a
   * moment ago (`OwnershipTransfer`).
   *
   * @throws FsError EEXIST · ENOENT the folder was deleted · ENOTDIR · ENAMETOOLONG, EILSEQ, EINVAL, EPERM from
   * `Names.check`
   */
  create(parent: Inode, name: string, init: NodeInit): NodeRecord {
    this.#names.check(name);
    const nowMs = this.#clock.nowMs();
    const now = timespecOfMs(nowMs);
    const node = this.#store.transact((tx) => {
      const folder = liveFolder(tx, parent);
      if (tx.get('name', [parent, name]) !== undefined) throw new FsError('EEXIST');
      const { kind, mode, uid, gid } = init;
      const ino = newInode(tx);
      const place = { parent, name, kind };
      const remote = folder.localOnly ? undefined : this.#ownershipTransfer.reclaim(tx, place, undefined, ino, nowMs);
      // A save continues a travelling file even under a local-only name.
      const localOnly =
        folder.localOnly || isSpecial(init.kind) || (remote === undefined && this.#names.staysLocal(name));
      const created: NodeRecord = {
        ino,
        kind,
        localOnly,
        local: {
          parent,
          name,
          mode,
          uid,
          gid,
          atime: now,
          mtime: now,
          ctime: now,
          xattrs: null,
          content: this.#firstContent(tx, init),
          sizeBytes: init.sizeBytes ?? 0,
        },
        remote: remote ?? null,
      };
      writeNode(tx, undefined, created, nowMs);
      // The folder is new and empty: it never needs a first listing.
      if (kind === 'folder') tx.put('folder', created.ino, { listedMs: nowMs });
      touch(tx, parent, now, nowMs);
      return created;
    });
    this.#tellLocal(node.ino, 'created');
    return node;
  }

  /**
   * Allocates an inode and an empty draft for a file without a name. Only the draft is stored, as garbage: a lease must
   * hold it.
   */
  createNameless(init: Pick<NodeInit, 'mode' | 'uid' | 'gid'>): NodeRecord {
    const now = timespecOfMs(this.#clock.nowMs());
    return this.#store.transact((tx) => {
      const content = this.#contents.createDraft(tx, null);
      tx.put('garbage', content, true);
      const times = { atime: now, mtime: now, ctime: now };
      const local = { ...init, ...times, parent: ROOT_INODE, name: '', xattrs: null, content, sizeBytes: 0 };
      return { ino: newInode(tx), kind: 'file', localOnly: false, local, remote: null };
    });
  }

  /**
   * Gives a file of `createNameless` its first name, and stores its draft.
   *
   * @throws FsError as `create`
   */
  name(nameless: NodeRecord, parent: Inode, name: string): NodeRecord {
    this.#names.check(name);
    const nowMs = this.#clock.nowMs();
    const now = timespecOfMs(nowMs);
    const named = this.#store.transact((tx) => {
      const folder = liveFolder(tx, parent);
      if (tx.get('name', [parent, name]) !== undefined) throw new FsError('EEXIST');
      const { ino, kind, local } = nameless;
      if (local?.content == null) throw new FsError('ENOENT');
      this.#contents.flush(tx, local.content);
      const localOnly = folder.localOnly || this.#names.staysLocal(name);
      const remote = localOnly
        ? undefined
        : this.#ownershipTransfer.reclaim(tx, { parent, name, kind }, nameless, ino, nowMs);
      const named: NodeRecord = {
        ...nameless,
        localOnly,
        local: { ...local, parent, name, ctime: now },
        remote: remote ?? null,
      };
      writeNode(tx, undefined, named, nowMs);
      touch(tx, parent, now, nowMs);
      return named;
    });
    this.#tellLocal(named.ino, 'created');
    return named;
  }

  /**
   * Changes attributes or bytes. `ctime` becomes now unless given.
   *
   * @throws FsError ENOENT the node does not exist, or was deleted here
   */
  change(ino: Inode, patch: AttributePatch): NodeRecord {
    const nowMs = this.#clock.nowMs();
    const node = this.#store.transact((tx) => {
      const before = tx.get('node', ino);
      if (before === undefined || before.local === null) throw new FsError('ENOENT');
      const local = { ...before.local, ctime: timespecOfMs(nowMs), ...patch };
      const after: NodeRecord = { ...before, local };
      writeNode(tx, before, after, nowMs);
      return after;
    });
    this.#tellLocal(ino, patch.content !== undefined || patch.sizeBytes !== undefined ? 'content' : 'attributes');
    return node;
  }

  /**
   * unlink(2) and rmdir(2). A remote resource becomes a tombstone until it is deleted remotely too.
   *
   * @throws FsError ENOENT · EISDIR · ENOTDIR · ENOTEMPTY (also for a folder whose entries are not known yet: list it
   * first)
   */
  remove(
    parent: Inode,
    name: string,
    what: 'file' | 'folder',
    before?: (node: NodeRecord) => void,
  ): { readonly removed: NodeRecord } {
    const nowMs = this.#clock.nowMs();
    const removed = this.#store.transact((tx) => {
      liveFolder(tx, parent);
      const node = childOf(tx, parent, name);
      if (node === undefined) throw new FsError('ENOENT');
      if (what === 'file' && node.kind === 'folder') throw new FsError('EISDIR');
      if (what === 'folder' && node.kind !== 'folder') throw new FsError('ENOTDIR');
      if (what === 'folder') mustBeEmpty(tx, node);
      before?.(node);
      if (this.#isTrashedThere(tx, node)) this.#removeTrashed(tx, node, nowMs);
      else writeNode(tx, node, { ...node, local: null }, nowMs);
      touch(tx, parent, timespecOfMs(nowMs), nowMs);
      return node;
    }, 'freeing');
    this.#ownershipTransfer.vacate(removed, 'unlinked', nowMs);
    this.#tellLocal(removed.ino, 'removed');
    return { removed };
  }

  /**
   * rename(2) with its flags. A file that replaces another one as part of a save takes over its resource
   * (`OwnershipTransfer`). `replaced`: the node that lost its name; null if none did.
   *
   * @throws FsError ENOENT · EEXIST · ENOTEMPTY · EISDIR · ENOTDIR · EINVAL a folder into itself · EXDEV between
   * local-only and travelling places, for a folder with entries or a file whose bytes may not all be here (mv(1) then
   * copies); never into the local trash or out of it · errors of `Names.check`
   */
  rename(
    parent: Inode,
    name: string,
    newParent: Inode,
    newName: string,
    mode: RenameMode,
  ): { readonly moved: NodeRecord; readonly replaced: NodeRecord | null } {
    this.#names.check(newName);
    const nowMs = this.#clock.nowMs();
    const places = { parent, name, newParent, newName };
    const result = this.#store.transact((tx) => {
      const changed = (ino: Inode) => this.#tellLocal(ino, 'moved');
      const rules = { names: this.#names, ownershipTransfer: this.#ownershipTransfer, changed };
      return renameNode(tx, rules, places, mode, nowMs);
    });
    const { moved, before, replaced, swapped } = result;
    if (moved !== before) {
      // What a person deletes is not a save in progress.
      const leavesName = mode !== 'exchange' && !isTrashFolder(this.#store, newParent);
      if (leavesName) this.#ownershipTransfer.vacate(before, 'renamed', nowMs);
      if (replaced !== null) this.#tellLocal(replaced.ino, 'removed');
      if (swapped !== null) this.#tellLocal(swapped.ino, 'moved');
      this.#tellLocal(moved.ino, 'moved');
    }
    return { moved, replaced };
  }

  /** Creates the root of a user's local trash (`store/local-trash`), outside of the tree of the account. It has no name in any folder. */
  createTrashRoot(init: Pick<NodeInit, 'mode' | 'uid' | 'gid'> & { readonly name: string }): NodeRecord {
    const nowMs = this.#clock.nowMs();
    const now = timespecOfMs(nowMs);
    return this.#store.transact((tx) => {
      const ino = newInode(tx);
      const times = { atime: now, mtime: now, ctime: now };
      const local = { ...init, ...times, parent: ino, xattrs: null, content: null, sizeBytes: 0 };
      const root: NodeRecord = { ino, kind: 'folder', localOnly: true, local, remote: null };
      writeNode(tx, undefined, root, nowMs);
      setTrashRoot(tx, init.uid, ino);
      return root;
    });
  }

  /** Whether a node is in a local trash or is its root. */
  isInTrash(ino: Inode): boolean {
    return isInTrash(this.#store, ino);
  }

  /**
   * Merges a complete listing of `folder` in one step; `mergeSteps` does the same in several. `requestedSequence` from
   * `ListingFence.nextSequence`, `requestedMs` by the wall clock, `serverTimeMs` the service's clock of the first page.
   */
  merge(
    folder: Inode,
    entries: readonly RemoteEntry[],
    requestedSequence: number,
    requestedMs: number,
    serverTimeMs: number | null,
  ): MergeOutcome {
    const steps = this.mergeSteps(folder, entries, requestedSequence, requestedMs, serverTimeMs);
    for (;;) {
      const step = steps.next();
      if (step.done) return step.value;
    }
  }

  /**
   * As `merge`, in steps of at most 500 entries, each one record of the store; the tree may change between them.
   * `ahead`: the pages that were already merged.
   */
  mergeSteps(
    folder: Inode,
    entries: readonly RemoteEntry[],
    requestedSequence: number,
    requestedMs: number,
    serverTimeMs: number | null,
    ahead: MergedAhead | null = null,
  ): Generator<void, MergeOutcome> {
    return this.#listings.merge(folder, entries, requestedSequence, requestedMs, serverTimeMs, ahead);
  }

  /**
   * Merges a page of the first listing of an empty folder, whose last page is under way, in steps. `mergeSteps` with
   * `ahead` ends the listing.
   */
  mergePageSteps(
    folder: Inode,
    entries: readonly RemoteEntry[],
    requestedSequence: number,
    requestedMs: number,
    serverTimeMs: number | null,
    ahead: MergedAhead,
  ): Generator<void, void> {
    return this.#listings.mergePart(folder, entries, requestedSequence, requestedMs, serverTimeMs, ahead);
  }

  /** Merges some entries of a listing, for postponed ones; missing entries mean nothing. */
  mergePart(
    folder: Inode,
    entries: readonly RemoteEntry[],
    requestedSequence: number,
    requestedMs: number,
    serverTimeMs: number | null,
  ): void {
    const steps = this.#listings.mergePart(folder, entries, requestedSequence, requestedMs, serverTimeMs, null);
    while (!steps.next().done);
  }

  /**
   * Applies the result of a probe for a node that a listing lacked: null for 404. `isBelieved`: false if the removal
   * waits for the user's confirmation.
   */
  resolveAbsence(
    ino: Inode,
    answer: RemoteResource | null,
    requestedSequence: number,
    isBelieved: boolean,
  ): AbsenceOutcome {
    return this.#listings.resolveAbsence(ino, answer, requestedSequence, isBelieved);
  }

  /** Number of nodes known to exist remotely, without the root, up to `max`. */
  countKnown(max: number): number {
    let known = -1;
    for (const _ of this.#store.all('resource')) if (++known >= max) break;
    return Math.max(known, 0);
  }

  /** Nodes whose removal waits for the user since the service lost an acknowledged version. */
  get rollbackRemovals(): readonly Inode[] {
    return rollbackRemovals(this.#store);
  }

  /** @throws StorageError on a full disk */
  setRollbackRemovals(inos: readonly Inode[]): void {
    this.#store.transact((tx) => writeRollbackRemovals(tx, inos), 'learnt');
  }

  /** Nodes deleted remotely but retained here for now. */
  get gone(): Pick<RemoteDeletions, 'has' | 'suspected' | 'countOf'> {
    return this.#listings.gone;
  }

  /** A push in flight is recovered first: its tombstone stays. */
  #isTrashedThere(tx: Transaction, node: NodeRecord): boolean {
    return isTrashedThere(tx, node) && this.#intents.ownedBy(node.ino) === undefined;
  }

  /** Emptying the local trash leaves that of the service alone, or deletes the entry of that one: then a tombstone remains. */
  #removeTrashed(tx: Transaction, node: NodeRecord, nowMs: number): void {
    const { remote } = node;
    const root = this.#emptyTrash === 'service' && remote !== null ? trashRootAbove(tx, remote.parent) : null;
    if (remote === null || root === null) removeNode(tx, node, nowMs);
    // The folders of the local trash may be removed next; its root stays.
    else writeNode(tx, node, { ...node, local: null, remote: { ...remote, parent: root } }, nowMs);
  }

  #firstContent(tx: Transaction, init: NodeInit): ContentId | null {
    if (init.kind === 'folder' || isSpecial(init.kind)) return null;
    if (typeof init.content === 'function') return init.content(tx);
    return init.content ?? this.#contents.createDraft(tx, null);
  }

  #tellLocal(ino: Inode, what: LocalChangeKind): void {
    this.#changes.emit('local', ino, what);
  }
}
