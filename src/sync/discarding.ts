import type { Clock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import { type Inode, ROOT_INODE, timespecOfMs } from '../base/vocabulary.ts';
import { type Intents, mayHaveActed } from '../store/intents.ts';
import {
  deletedAbove,
  isContentDirty,
  isMoved,
  listAnew,
  newInode,
  removeNode,
  writeNode,
} from '../store/node-table.ts';
import { suspected } from '../store/service-time.ts';
import type { LocalFacet, NodeRecord, RemoteFacet, StoreWriter, Transaction } from '../store/tables.ts';
import { isEmpty, isWithin } from '../tree/live-folder.ts';
import type { TreeInvalidation } from '../tree/tree.ts';
import type { RemoteNaming } from './remote-naming.ts';
import { pathOf } from './sync-event.ts';

/** The effect of discarding one change, for the user. */
export interface Discard {
  readonly path: string;
  /** `made`: exists only here and is removed. `changed`: gets the bytes of the service. `moved`, `deleted`: undone. */
  readonly change: 'made' | 'changed' | 'moved' | 'deleted';
  /** Bytes that exist nowhere else. */
  readonly lostBytes: number;
}

/** Discards changes: the local state becomes that of the service. Sends no requests. */
export class Discarding {
  readonly #deps: DiscardingDeps;

  constructor(deps: DiscardingDeps) {
    this.#deps = deps;
  }

  /** The changes that a discard would undo. A node may have two. */
  preview(inos: readonly Inode[]): readonly Discard[] {
    const { store } = this.#deps;
    return inos.flatMap((ino) => {
      const node = store.get('node', ino);
      if (node === undefined) return [];
      const path = pathOf(store, ino);
      const own = node.kind === 'folder' ? 0 : (node.local?.sizeBytes ?? 0);
      if (node.remote === null || isUnfilled(node.remote)) {
        return node.local === null ? [] : [{ path, change: 'made' as const, lostBytes: own }];
      }
      if (node.local === null) return [{ path, change: 'deleted' as const, lostBytes: 0 }];
      const given: Discard[] = [];
      if (isContentDirty(node)) given.push({ path, change: 'changed', lostBytes: own });
      if (isMoved(node.local, node.remote)) given.push({ path, change: 'moved', lostBytes: 0 });
      return given;
    });
  }

  /**
   * Discards the changes that `preview` listed, all or nothing. No push of them may be running. Creations and moves whose response was lost
   * are still recovered, and then undone. Uploads that may have taken effect are abandoned: their versions are ours.
   * @returns the entries that the kernel has to forget
   * @throws UsageError if a deletion may have taken effect: a file that is shown again here could be deleted on the service. Not if the
   *   deletion is parked: then a person has been informed that its outcome is unknown
   */
  discard(inos: readonly Inode[]): readonly TreeInvalidation[] {
    const { store, intents } = this.#deps;
    const forget: TreeInvalidation[] = [];
    const isUnheard = (ino: Inode): boolean =>
      intents.ownedBy(ino)?.action === 'trash' && store.get('dirty', ino)?.parked == null;
    if (inos.some(isUnheard))
      throw new UsageError('the service has not answered a deletion in it yet: try again after the answer');
    // The deepest first: a folder is removed once it is empty.
    const deepestFirst = [...inos].sort((a, b) => depthOf(store, b) - depthOf(store, a));
    store.transact((tx) => {
      const abandoned = new Set<Inode>();
      for (const ino of inos) {
        const intent = intents.ownedBy(ino);
        if (intent === undefined || (intent.content === null && intent.action !== 'trash')) continue;
        intents.abandon(tx, intent.id);
        if (intent.content !== null && mayHaveActed(intent)) abandoned.add(ino);
      }
      const dropped = new Set(inos.filter((ino) => this.#dropFile(tx, ino, forget)));
      // Names are free only after all nodes have left theirs.
      const names = new Map<Inode, string>();
      for (const ino of inos) this.#stepAside(tx, ino, names, forget);
      for (const ino of inos) if (!dropped.has(ino) && !this.#isDropped(tx, ino)) this.#revive(tx, ino, forget);
      for (const ino of inos) this.#revertBytes(tx, ino, { isUnheard: abandoned.has(ino) }, forget);
      for (const ino of names.keys()) this.#goBack(tx, ino, forget);
      for (const ino of deepestFirst) this.#dropFolder(tx, ino, names.get(ino), forget);
    });
    return forget;
  }

  /** A file that exists only here. If we have created an empty one for it on the service, that is deleted like any other. */
  #dropFile(tx: Transaction, ino: Inode, forget: TreeInvalidation[]): boolean {
    const node = tx.get('node', ino);
    if (!node?.local || node.kind === 'folder' || (node.remote !== null && !isUnfilled(node.remote))) return false;
    const nowMs = this.#deps.clock.nowMs();
    forget.push({ kind: 'deleted', parent: node.local.parent, ino, name: node.local.name });
    if (node.remote === null) removeNode(tx, node, nowMs);
    else writeNode(tx, node, { ...node, local: null }, nowMs);
    return true;
  }

  /** Whether the node was created here and deleted since, by a discard or a user: the service never had its bytes. */
  #isDropped(tx: Transaction, ino: Inode): boolean {
    const node = tx.get('node', ino);
    return node?.kind !== 'folder' && node?.local === null && node.remote !== null && isUnfilled(node.remote);
  }

  /** A folder that exists only here. It stays if it contains local-only nodes. */
  #dropFolder(tx: Transaction, ino: Inode, name: string | undefined, forget: TreeInvalidation[]): void {
    const node = tx.get('node', ino);
    if (!node?.local || node.remote !== null || node.kind !== 'folder' || name === undefined) return;
    const nowMs = this.#deps.clock.nowMs();
    const { local } = node;
    if (isEmpty(tx, ino)) {
      forget.push({ kind: 'deleted', parent: local.parent, ino, name, isFolder: true });
      removeNode(tx, node, nowMs);
    } else {
      const kept = this.#freeName(tx, { parent: local.parent, shownAs: name });
      writeNode(tx, node, { ...node, local: { ...local, name: kept } }, nowMs);
      forget.push({ kind: 'entry', parent: local.parent, name: kept });
    }
  }

  /** Undoes a deletion, together with those of the folders above. */
  #revive(tx: Transaction, ino: Inode, forget: TreeInvalidation[]): void {
    const { clock, intents } = this.#deps;
    const nowMs = clock.nowMs();
    const root = tx.get('node', ROOT_INODE)?.local;
    for (const { node, remote, parent } of deletedAbove(tx, ino)) {
      const time = timespecOfMs(remote.modified?.ms ?? nowMs);
      const local: LocalFacet = {
        parent,
        name: this.#freeName(tx, { ...remote, parent }),
        mode: node.kind === 'folder' ? 0o755 : 0o644,
        uid: root?.uid ?? 0,
        gid: root?.gid ?? 0,
        atime: time,
        mtime: time,
        ctime: timespecOfMs(nowMs),
        xattrs: null,
        content: remote.content,
        sizeBytes: remote.sizeBytes ?? 0,
      };
      if (node.kind === 'folder') writeNode(tx, node, { ...node, local }, nowMs);
      else {
        // A program that has the deleted file open keeps it as a file without a name. The revived file is another node.
        const revived = newInode(tx);
        removeNode(tx, node, nowMs);
        writeNode(tx, undefined, { ...node, ino: revived, local }, nowMs);
        intents.transfer(tx, node.ino, revived);
      }
      listAnew(tx, parent);
      forget.push({ kind: 'entry', parent, name: local.name });
    }
  }

  /** @param upload.isUnheard its outcome is unknown: the service may have its bytes, as many as the version before, in the same second */
  #revertBytes(tx: Transaction, ino: Inode, upload: { readonly isUnheard: boolean }, forget: TreeInvalidation[]): void {
    const node = tx.get('node', ino);
    if (!node?.local || node.remote === null || !isContentDirty(node)) return;
    const { modified } = node.remote;
    const remote = upload.isUnheard ? { ...node.remote, modified: suspected(modified) } : node.remote;
    const nowMs = this.#deps.clock.nowMs();
    const mtime = timespecOfMs(modified?.ms ?? nowMs);
    const bytes = { content: remote.content, sizeBytes: remote.sizeBytes ?? 0, mtime, ctime: timespecOfMs(nowMs) };
    writeNode(tx, node, { ...node, local: { ...node.local, ...bytes }, remote }, nowMs);
    listAnew(tx, remote.parent);
    forget.push({ kind: 'inode', ino, was: node.local });
  }

  /** A node that does not keep its name gets a temporary one, invisible outside this transaction. */
  #stepAside(tx: Transaction, ino: Inode, names: Map<Inode, string>, forget: TreeInvalidation[]): void {
    const node = tx.get('node', ino);
    if (!node?.local || (node.remote !== null && !isMoved(node.local, node.remote))) return;
    names.set(ino, node.local.name);
    forget.push({ kind: 'entry', parent: node.local.parent, name: node.local.name });
    const name = `.cfs-discarding-${ino}`;
    writeNode(tx, node, { ...node, local: { ...node.local, name } }, this.#deps.clock.nowMs());
  }

  #goBack(tx: Transaction, ino: Inode, forget: TreeInvalidation[]): void {
    const node = tx.get('node', ino);
    if (!node?.local || node.remote === null) return;
    const { remote } = node;
    this.#revive(tx, remote.parent, forget);
    // The folder may have been deleted remotely meanwhile. Then the node goes to the root until the next listing moves it.
    const home = tx.get('node', remote.parent)?.local == null ? ROOT_INODE : remote.parent;
    // The folder is now inside this node: it goes back first.
    for (let at = home, depth = 0; isWithin(tx, home, ino) && depth < DEPTH_MAX; depth++) {
      const above = tx.get('node', at);
      if (!above?.local || above.remote === null || at === ino) break;
      const next = above.local.parent;
      if (next !== above.remote.parent) {
        forget.push({ kind: 'entry', parent: above.local.parent, name: above.local.name });
        this.#goBack(tx, at, forget);
      }
      at = next;
    }
    if (isWithin(tx, home, ino)) return;
    const now = tx.get('node', ino);
    if (!now?.local) return;
    const name = this.#freeName(tx, { ...remote, parent: home });
    writeNode(tx, now, { ...now, local: { ...now.local, parent: home, name } }, this.#deps.clock.nowMs());
    listAnew(tx, home);
    forget.push({ kind: 'entry', parent: home, name });
  }

  #freeName(tx: Transaction, { parent, shownAs }: Pick<RemoteFacet, 'parent' | 'shownAs'>): string {
    const isTaken = (name: string): boolean => tx.get('name', [parent, name]) !== undefined;
    return isTaken(shownAs) ? this.#deps.naming.distinct(shownAs, isTaken) : shownAs;
  }
}

export interface DiscardingDeps {
  readonly store: StoreWriter;
  readonly intents: Pick<Intents, 'ownedBy' | 'abandon' | 'transfer'>;
  readonly naming: RemoteNaming;
  readonly clock: Clock;
}

const DEPTH_MAX = 4096;

/** Whether we created the resource, and no upload to it was acknowledged. */
function isUnfilled({ createdHereMs, sizeBytes }: RemoteFacet): boolean {
  return createdHereMs !== null && sizeBytes === null;
}

function depthOf(store: StoreWriter, ino: Inode): number {
  let depth = 0;
  for (let node: NodeRecord | undefined = store.get('node', ino); node?.local && depth < DEPTH_MAX; depth++) {
    if (node.local.parent === node.ino) break;
    node = store.get('node', node.local.parent);
  }
  return depth;
}
