import type { Inode } from '../base/vocabulary.ts';
import type { Intents } from '../store/intents.ts';
import { isMoved, newInode, removeNode, writeNode } from '../store/node-table.ts';
import type { NodeRecord, RemoteFacet, Transaction } from '../store/tables.ts';
import { isBackupName, type NamePlace, type VacatedName, type VacatedNames } from './vacated-names.ts';

/**
 * A save keeps the file's history: decides which node takes over a resource when a name passes to another file.
 *
 * Programs save in three ways: (a) write another file and rename it over the old one, (b) rename the old one away and create the name again,
 * (c) delete and create. The service would see a deletion and a new file each time. Instead, the file that ends up with the name takes over
 * the resource, and its bytes become the next version.
 */
export class OwnershipTransfer {
  readonly #intents: Intents;
  readonly #changed: (ino: Inode, what: 'moved' | 'removed') => void;
  readonly #transferred: (from: Inode, to: Inode) => void;
  readonly #saveWindowMs: number;
  readonly #settleMs: number;
  readonly #vacated: VacatedNames;
  readonly #isPinned: (ino: Inode) => boolean;

  constructor(deps: {
    readonly intents: Intents;
    readonly options: { readonly saveWindowMs: number; readonly settleMs: number };
    readonly vacated: VacatedNames;
    readonly isPinned: (ino: Inode) => boolean;
    /** A node other than the one that the user acted on became dirty or clean. */
    readonly changed: (ino: Inode, what: 'moved' | 'removed') => void;
    /** Another node is now the file that the user sees under this name. */
    readonly transferred: (from: Inode, to: Inode) => void;
  }) {
    this.#intents = deps.intents;
    this.#changed = deps.changed;
    this.#transferred = deps.transferred;
    this.#vacated = deps.vacated;
    this.#isPinned = deps.isPinned;
    this.#saveWindowMs = deps.options.saveWindowMs;
    this.#settleMs = deps.options.settleMs;
  }

  /**
   * Whether `source` is a save in progress, which may give up its own resource for another one. It has no resource, or one that this mount
   * created a moment ago and that no other client changed. `mv big-old-file over-another` is no such save.
   */
  isDraftFile(source: NodeRecord, nowMs: number): boolean {
    if (source.kind === 'folder' || source.localOnly || this.#isBusy(source.ino)) return false;
    const { local, remote } = source;
    if (remote === null) return true;
    // A null content is unknown here: another client wrote it, or the version of its bytes has no known URL.
    return (
      remote.createdHereMs !== null &&
      nowMs - remote.createdHereMs < this.#saveWindowMs &&
      remote.content !== null &&
      local !== null &&
      local.content !== null
    );
  }

  /**
   * Rule (a): `source` is about to be renamed over `target`. Afterwards the target's node is removed, or a tombstone.
   * @returns the remote facet that `source` takes over, or undefined if the target has to be deleted on the service
   */
  replace(tx: Transaction, source: NodeRecord, target: NodeRecord, nowMs: number): RemoteFacet | undefined {
    if (target.kind !== source.kind || !this.isDraftFile(source, nowMs)) {
      writeNode(tx, target, { ...target, local: null }, nowMs);
      return undefined;
    }
    // The target's operation in flight (an upload, or its creation) continues for the node that has its name now.
    if (target.remote !== null || source.remote === null) this.#intents.transfer(tx, target.ino, source.ino);
    removeNode(tx, target, nowMs);
    tx.afterCommit(() => this.#transferred(target.ino, source.ino));
    return target.remote === null ? undefined : this.#takeOver(tx, source, target.remote, nowMs);
  }

  /** A node leaves `parent`/`name`, by rename or removal. `before`: the node as it was there. */
  vacate(before: NodeRecord, how: VacatedName['how'], nowMs: number): void {
    const { ino, kind, remote, local } = before;
    if (local === null || kind === 'folder' || before.localOnly) return;
    if (remote === null || isMoved(local, remote)) {
      this.#vacated.release(local);
      return;
    }
    this.#vacated.vacate(local, { ino, kind, how, remote, atMs: nowMs, isPinned: this.#isPinned(ino) });
  }

  /**
   * Rules (b) and (c): `parent`/`name` gets a file again. `source`: the node that is renamed there, undefined for a creation. `to`: its
   * inode, or that of the new file.
   *
   * If a take-over needs the service (the rename or the deletion was pushed, or only the service has the bytes), the name is claimed, and
   * the push of the new file takes over (`sync/takeover`).
   * @returns the remote facet that the file takes over, or undefined
   */
  reclaim(
    tx: Transaction,
    { parent, name, kind }: NamePlace & { readonly kind: NodeRecord['kind'] },
    source: NodeRecord | undefined,
    to: Inode,
    nowMs: number,
  ): RemoteFacet | undefined {
    const place = { parent, name };
    const vacated = this.#vacated.at(place, nowMs);
    if (vacated === undefined || vacated.kind !== kind) return undefined;
    if (source !== undefined && (source.ino === vacated.ino || !this.isDraftFile(source, nowMs))) return undefined;
    const isRecent = nowMs - vacated.atMs < this.#settleMs;
    const remote = isRecent ? this.#reclaimHere(tx, place, vacated, to, nowMs) : undefined;
    if (remote === undefined) {
      tx.afterCommit(() => this.#vacated.claim(place, vacated));
      return undefined;
    }
    tx.afterCommit(() => this.#vacated.forget(place));
    return source === undefined ? remote : this.#takeOver(tx, source, remote, nowMs);
  }

  /** As `reclaim`, for a file that the service still has under that name. */
  #reclaimHere(
    tx: Transaction,
    place: NamePlace,
    vacated: VacatedName,
    to: Inode,
    nowMs: number,
  ): RemoteFacet | undefined {
    const from = tx.get('node', vacated.ino);
    if (from === undefined || from.remote === null) return undefined;
    const { remote, local } = from;
    if (remote.parent !== place.parent || remote.shownAs !== place.name) return undefined;
    // An upload in flight for a deleted file continues for the file that has its name now. Other operations have to end first.
    const intent = this.#intents.ownedBy(from.ino);
    if (intent !== undefined && (intent.content === null || local !== null)) return undefined;
    // The renamed node becomes a new file. Without a content of its own it shows the newest version of its resource, which is about to have
    // other bytes. Then the service has to copy it first.
    if (local !== null && local.content === null) return undefined;
    // `mv report.doc 2024.doc` and a new `report.doc`: the history stays with the renamed file.
    if (local !== null && (local.parent !== place.parent || !isBackupName(local.name, place.name))) return undefined;
    tx.afterCommit(() => this.#transferred(from.ino, to));
    if (local === null) {
      this.#intents.transfer(tx, from.ino, to);
      removeNode(tx, from, nowMs);
      tx.afterCommit(() => this.#changed(from.ino, 'removed'));
    } else {
      writeNode(tx, from, { ...from, remote: null }, nowMs);
      tx.afterCommit(() => this.#changed(from.ino, 'moved'));
    }
    return remote;
  }

  /**
   * `source` gives up its own resource, if any, for `remote`. A tombstone gets the resource that was given up. Its content is the one that
   * `source` still shows: the resource must not be deleted before that content is pushed (`sync/plan`).
   */
  #takeOver(tx: Transaction, source: NodeRecord, remote: RemoteFacet, nowMs: number): RemoteFacet {
    if (source.remote !== null) {
      const orphan = source.remote;
      writeNode(tx, source, { ...source, remote: null }, nowMs);
      this.#bury(tx, source.kind, orphan, nowMs);
    }
    return remote;
  }

  /**
   * `before` becomes local-only, and the caller writes it so. A tombstone gets its resource, and its upload in flight. For a creation in
   * flight, `sync/outcome` makes the tombstone when the resource exists.
   */
  giveUp(tx: Transaction, before: NodeRecord, nowMs: number): void {
    if (before.remote === null) return;
    const tombstone = this.#bury(tx, before.kind, before.remote, nowMs);
    this.#intents.transfer(tx, before.ino, tombstone);
    if (before.kind === 'folder') this.#moveRemoteChildren(tx, before.ino, tombstone, nowMs);
  }

  /**
   * The remote folder of `from` now belongs to `to`. Nodes that are still in it on the service become dirty: the local folder `from` is
   * empty.
   */
  #moveRemoteChildren(tx: Transaction, from: Inode, to: Inode, nowMs: number): void {
    for (const [ino] of tx.all('dirty')) {
      const node = tx.get('node', ino);
      if (node?.remote?.parent !== from) continue;
      writeNode(tx, node, { ...node, remote: { ...node.remote, parent: to } }, nowMs);
      tx.afterCommit(() => this.#changed(ino, 'moved'));
    }
  }

  /** @returns the tombstone of a resource that belongs to no node */
  #bury(tx: Transaction, kind: NodeRecord['kind'], remote: RemoteFacet, nowMs: number): Inode {
    const ino = newInode(tx);
    writeNode(tx, undefined, { ino, kind, localOnly: false, local: null, remote }, nowMs);
    tx.afterCommit(() => this.#changed(ino, 'removed'));
    return ino;
  }

  #isBusy(ino: Inode): boolean {
    return this.#intents.ownedBy(ino) !== undefined;
  }
}
