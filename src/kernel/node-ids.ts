import type { Inode } from '../base/vocabulary.ts';
import type { Attributes } from './binding.ts';
import type { FolderIdRows } from './folder-id-rows.ts';

/** Node ids from here on are no inodes: those of the tree count from 1, and those of `.versions/` start at 2^51. */
const FIRST_SUCCESSOR = 2 ** 50;
const SUCCESSORS_END = 2 ** 51;
const SUCCESSORS_OF_GENERATION = 2 ** 32;
/** The most successors at a time. Beyond that the kernel keeps one id per file, as in other file systems. */
const SUCCESSORS_MAX = 100_000;
/** Removed folders without a FORGET yet. For a folder that no process uses, FORGET comes immediately. */
const REMOVED_MAX = 100_000;
/** A removed folder has no older attributes. */
const NOT_KEPT: OlderAttributes = () => null;

/**
 * The attributes of a file for the handles that were opened before it was replaced; null once these are closed.
 *
 * @param asker `program`: stat(2) of the descriptor; `read`: the kernel, as part of a read(2); absent: no request
 */
export type OlderAttributes = (asker?: 'program' | 'read') => Attributes | null;

/**
 * The node ids by which the kernel knows inodes: nearly always the inode itself.
 *
 * To the kernel a node id has one size and one set of pages. A file whose bytes were replaced on the service while programs read it has two
 * of each. Open handles keep the old id, and lookups of the name return a new one, its successor. stat(2) shows the same inode number for
 * both. A node id is never reused.
 *
 * A folder that was removed while it is a process's working directory, and that reappears, gets a successor too. The kernel's object under
 * the old id is dead (S_DEAD, vfs_rmdir): no lookup in it succeeds, nothing can be created, and readdir(3) ends immediately.
 */
export class NodeIds {
  /** Files with more than one node id. */
  readonly #replaced = new Map<Inode, Replaced>();
  /** Node ids that are no inodes, with their inode and the lookups that the kernel still holds. */
  readonly #successors = new Map<number, { readonly ino: Inode; lookups: number }>();
  /** Files with a single node id again: the kernel's pages under it may date from before. */
  readonly #oneAgain = new Set<Inode>();
  /** Node ids of removed folders, until FORGET. */
  readonly #removed = new Set<number>();
  #next: number;
  /** Where a successor of this process finds the node ids of folders; null without one. */
  readonly #folders: FolderIdRows | null;

  /** @param generation of the mounting process: its successors' node ids are others than those of earlier processes */
  constructor(generation = 0, folders: FolderIdRows | null = null) {
    this.#next = FIRST_SUCCESSOR + generation * SUCCESSORS_OF_GENERATION;
    this.#folders = folders;
    for (const { nodeId, ino, isDead } of folders?.inherited() ?? []) {
      if (isDead) this.#removed.add(nodeId);
      if (isSuccessor(nodeId)) this.#inherited(nodeId, ino);
    }
  }

  /**
   * An earlier process gave the kernel `nodeId` for the inode, and a handle uses it. Names lead to it, unless the inode has been replaced in this
   * process: then they lead to a new id.
   */
  inherit(nodeId: number, ino: Inode): void {
    if (!isSuccessor(nodeId)) return;
    if (this.#replaced.has(ino)) this.#successors.set(nodeId, { ino, lookups: 1 });
    else this.#inherited(nodeId, ino);
  }

  #inherited(nodeId: number, ino: Inode): void {
    this.#successors.set(nodeId, { ino, lookups: 1 });
    this.#replaced.set(ino, { current: nodeId, older: new Map(), isInodeKnown: true, areSeveral: true });
  }

  /** The inode of a node id. */
  inodeOf(nodeId: number): Inode {
    return (isSuccessor(nodeId) ? (this.#successors.get(nodeId)?.ino ?? nodeId) : nodeId) as Inode;
  }

  /** The node id for notifications about an inode. */
  currentOf(ino: Inode): number {
    return this.#replaced.size > 0 ? (this.#replaced.get(ino)?.current ?? ino) : ino;
  }

  /** Counts a lookup and returns its node id; FORGET returns the lookup. */
  lookedUp(ino: Inode): number {
    if (this.#removed.size > 0) this.#reappears(ino);
    const nodeId = this.currentOf(ino);
    const successor = nodeId === ino ? undefined : this.#successors.get(nodeId);
    if (successor !== undefined) successor.lookups++;
    return nodeId;
  }

  /** A removed folder that a lookup finds gets another node id. */
  #reappears(ino: Inode): void {
    const dead = this.currentOf(ino);
    if (!this.#removed.has(dead) || !this.replace(ino, NOT_KEPT)) return;
    this.#folders?.note({ nodeId: dead, ino, isDead: true });
    this.#folders?.note({ nodeId: this.currentOf(ino), ino, isDead: false });
  }

  /**
   * Whether an open by the current node id may keep the kernel's pages; call once per such open. Reads and writes through one id do not
   * update the pages of another. Pages are not trusted for a file with several ids, nor if they date from that time.
   */
  mayKeep(ino: Inode): boolean {
    const replaced = this.#replaced.size > 0 ? this.#replaced.get(ino) : undefined;
    if (replaced?.areSeveral === true) return false;
    return this.#oneAgain.size === 0 || !this.#oneAgain.delete(ino);
  }

  /** Whether lookups of the node now answer with another id, so that this one is an older one of the kernel's. */
  isFormer(nodeId: number): boolean {
    return this.#replaced.size > 0 && this.currentOf(this.inodeOf(nodeId)) !== nodeId;
  }

  /** FORGET. @returns the inode */
  forgotten(nodeId: number, count: number): Inode {
    if (this.#removed.size > 0 && this.#removed.delete(nodeId) && !isSuccessor(nodeId)) this.#folders?.drop(nodeId);
    const ino = this.inodeOf(nodeId);
    const replaced = this.#replaced.size > 0 ? this.#replaced.get(ino) : undefined;
    if (replaced === undefined) {
      this.#dropSuccessor(nodeId);
      this.#oneAgain.delete(ino); // its bytes went with it
      return ino;
    }
    const successor = this.#successors.get(nodeId);
    if (successor !== undefined) successor.lookups -= count;
    if (nodeId === ino) replaced.isInodeKnown = false;
    this.#tidy(ino, replaced);
    if (nodeId === this.currentOf(ino)) this.#oneAgain.delete(ino);
    const isInUse = nodeId === replaced.current || replaced.older.has(nodeId);
    if (!isInUse && (successor?.lookups ?? 0) <= 0) this.#dropSuccessor(nodeId);
    return ino;
  }

  /** Undoes a lookup by `lookedUp` whose reply was not delivered: no FORGET returns it. @returns the inode */
  undelivered(nodeId: number): Inode {
    const ino = this.inodeOf(nodeId);
    const successor = this.#successors.get(nodeId);
    if (successor === undefined) return ino;
    successor.lookups--;
    const replaced = this.#replaced.get(ino);
    if (replaced !== undefined) this.#tidy(ino, replaced);
    const isInUse = nodeId === replaced?.current || replaced?.older.has(nodeId) === true;
    if (!isInUse && successor.lookups <= 0) this.#dropSuccessor(nodeId);
    return ino;
  }

  /** The older attributes behind a replaced node id, for its open handles; null for any other id. */
  olderOf(nodeId: number): OlderAttributes | null {
    if (this.#replaced.size === 0) return null;
    return this.#replaced.get(this.inodeOf(nodeId))?.older.get(nodeId) ?? null;
  }

  /** A folder is being removed here: if it reappears before FORGET, it gets another node id. */
  folderRemoved(folder: Inode): void {
    this.#removed.add(this.currentOf(folder));
    if (this.#removed.size <= REMOVED_MAX) return;
    const [first] = this.#removed;
    if (first !== undefined) this.#removed.delete(first);
  }

  /** Gives the name a new node id. @returns false when there are too many: nothing was changed */
  replace(ino: Inode, older: OlderAttributes): boolean {
    if (this.#successors.size >= SUCCESSORS_MAX) for (const each of this.#replaced) this.#tidy(...each);
    if (this.#successors.size >= SUCCESSORS_MAX || this.#next >= SUCCESSORS_END) return false;
    const replaced = this.#replaced.get(ino) ?? {
      current: ino,
      older: new Map(),
      isInodeKnown: true,
      areSeveral: true,
    };
    this.#replaced.set(ino, replaced);
    replaced.areSeveral = true;
    replaced.older.set(replaced.current, older);
    replaced.current = this.#next++;
    this.#successors.set(replaced.current, { ino, lookups: 0 });
    return true;
  }

  #dropSuccessor(nodeId: number): void {
    this.#successors.delete(nodeId);
    this.#folders?.drop(nodeId);
  }

  /** Drops node ids that neither the kernel nor a program holds. The name never leads to an id by which an older file is still read. */
  #tidy(ino: Inode, replaced: Replaced): void {
    const isKnown = (nodeId: number): boolean => (this.#successors.get(nodeId)?.lookups ?? 0) > 0;
    for (const [nodeId, older] of replaced.older) {
      // The kernel may hold it without an open handle: by a path from before (O_PATH, a bind mount).
      if (older() !== null || isKnown(nodeId)) continue;
      replaced.older.delete(nodeId);
      this.#dropSuccessor(nodeId);
    }
    const wereSeveral = replaced.areSeveral;
    replaced.areSeveral = replaced.older.size > 0 || replaced.isInodeKnown;
    if (wereSeveral && !replaced.areSeveral) this.#oneAgain.add(ino);
    if (replaced.older.size > 0 || isKnown(replaced.current)) return;
    this.#dropSuccessor(replaced.current);
    this.#replaced.delete(ino);
    // The kernel may have pages under it by a path from before (O_PATH, a bind mount).
    if (replaced.isInodeKnown) this.#oneAgain.add(ino);
    else this.#oneAgain.delete(ino);
  }
}

interface Replaced {
  current: number;
  /** The former node ids, while handles or lookups of them remain. */
  readonly older: Map<number, OlderAttributes>;
  /** Whether the kernel may hold the inode as node id: its lookups are not counted, but one FORGET returns all of them. */
  isInodeKnown: boolean;
  /**
   * Whether the kernel may have pages under several node ids. False once it holds only the current one; `Replaced` then lasts until the
   * kernel forgets that one too.
   */
  areSeveral: boolean;
}

function isSuccessor(nodeId: number): boolean {
  return nodeId >= FIRST_SUCCESSOR && nodeId < SUCCESSORS_END;
}
