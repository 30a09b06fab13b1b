import type { Inode } from '../base/vocabulary.ts';
import type { Attributes } from './binding.ts';

/** Numbers from here on are no inode's: those of the tree count from 1, and `.versions/` has its own beyond 2^51. */
const FIRST_SUCCESSOR = 2 ** 50;
const SUCCESSORS_END = 2 ** 51;
/** Files with a second number at a time. Past it the kernel goes on with one, as every other file system has it. */
const SUCCESSORS_MAX = 100_000;
/** Folders that were removed, and of which the kernel has not said that it let go: it says so at once of those that nobody sits in. */
const REMOVED_MAX = 100_000;
/** Of a folder that was removed nobody asks what it was. */
const NOT_KEPT: OlderAttributes = () => null;

/**
 * What a file is for those who opened it before it was replaced; null once nobody has it open any more.
 *
 * @param asker `program`: stat(2) of the descriptor; `read`: the kernel, on behalf of a read(2); without: nobody asks
 */
export type OlderAttributes = (asker?: 'program' | 'read') => Attributes | null;

/**
 * The numbers by which the kernel knows inodes: nearly always the inode itself.
 *
 * To the kernel an inode has one size and one set of pages. A file whose bytes somebody else replaced while programs read it here has
 * two of each: those who read go on by the number they have, and whoever looks for the name is given another, its successor. What
 * stat(2) shows as the inode stays the same. A number is never used twice.
 *
 * So is a folder that was removed while a program sits in it, and is there again: what the kernel has by the number of before is dead to it
 * (S_DEAD, vfs_rmdir: no name is found in it, none can be made, and readdir(3) ends at once), also for whoever comes by the name.
 */
export class NodeIds {
  /** Files with more than one number. */
  readonly #replaced = new Map<Inode, Replaced>();
  /** Numbers that are no inode's: whose they are, and how many lookups of them the kernel owes us. */
  readonly #successors = new Map<number, { readonly ino: Inode; lookups: number }>();
  /** Files that the kernel has by one number again: what it has by that may be from before. */
  readonly #oneAgain = new Set<Inode>();
  /** Numbers of folders that were removed, until the kernel has let go of them. */
  readonly #removed = new Set<number>();
  #next = FIRST_SUCCESSOR;

  /** The inode that the kernel means. */
  inodeOf(nodeId: number): Inode {
    return (isSuccessor(nodeId) ? (this.#successors.get(nodeId)?.ino ?? nodeId) : nodeId) as Inode;
  }

  /** What is said of an inode now is said of this number. */
  currentOf(ino: Inode): number {
    return this.#replaced.size > 0 ? (this.#replaced.get(ino)?.current ?? ino) : ino;
  }

  /** The number for the answer to a lookup; the kernel tells by FORGET when it lets go of it. */
  lookedUp(ino: Inode): number {
    if (this.#removed.size > 0 && this.#removed.has(this.currentOf(ino))) this.replace(ino, NOT_KEPT);
    const nodeId = this.currentOf(ino);
    const successor = nodeId === ino ? undefined : this.#successors.get(nodeId);
    if (successor !== undefined) successor.lookups++;
    return nodeId;
  }

  /**
   * Whether an open may go on with the bytes that the kernel has by the number that the name leads to; asked once per open by that one. Whoever
   * reads or writes by one number brings nothing of it to the others: of a file with several, none is trusted, and of one that had several
   * not what is left of that time.
   */
  mayKeep(ino: Inode): boolean {
    const replaced = this.#replaced.size > 0 ? this.#replaced.get(ino) : undefined;
    if (replaced?.areSeveral === true) return false;
    return this.#oneAgain.size === 0 || !this.#oneAgain.delete(ino);
  }

  /** Whether the name leads to another number by now. */
  isFormer(nodeId: number): boolean {
    return this.#replaced.size > 0 && this.currentOf(this.inodeOf(nodeId)) !== nodeId;
  }

  /** FORGET. @returns the inode that was meant */
  forgotten(nodeId: number, count: number): Inode {
    if (this.#removed.size > 0) this.#removed.delete(nodeId);
    const ino = this.inodeOf(nodeId);
    const replaced = this.#replaced.size > 0 ? this.#replaced.get(ino) : undefined;
    if (replaced === undefined) {
      this.#successors.delete(nodeId);
      this.#oneAgain.delete(ino); // its bytes went with it
      return ino;
    }
    const successor = this.#successors.get(nodeId);
    if (successor !== undefined) successor.lookups -= count;
    if (nodeId === ino) replaced.isInodeKnown = false;
    this.#tidy(ino, replaced);
    if (nodeId === this.currentOf(ino)) this.#oneAgain.delete(ino);
    const isInUse = nodeId === replaced.current || replaced.older.has(nodeId);
    if (!isInUse && (successor?.lookups ?? 0) <= 0) this.#successors.delete(nodeId);
    return ino;
  }

  /** A lookup that `lookedUp` counted, and whose answer the kernel did not take: no FORGET tells of it. @returns the inode that was meant */
  unheard(nodeId: number): Inode {
    const ino = this.inodeOf(nodeId);
    const successor = this.#successors.get(nodeId);
    if (successor === undefined) return ino;
    successor.lookups--;
    const replaced = this.#replaced.get(ino);
    if (replaced !== undefined) this.#tidy(ino, replaced);
    const isInUse = nodeId === replaced?.current || replaced?.older.has(nodeId) === true;
    if (!isInUse && successor.lookups <= 0) this.#successors.delete(nodeId);
    return ino;
  }

  /** What a number that was replaced stands for while somebody has it open; null for every other. */
  olderOf(nodeId: number): OlderAttributes | null {
    if (this.#replaced.size === 0) return null;
    return this.#replaced.get(this.inodeOf(nodeId))?.older.get(nodeId) ?? null;
  }

  /** A folder is being removed here: should it be there again before the kernel has let go of it, it gets another number. */
  folderRemoved(folder: Inode): void {
    this.#removed.add(this.currentOf(folder));
    if (this.#removed.size <= REMOVED_MAX) return;
    const [first] = this.#removed;
    if (first !== undefined) this.#removed.delete(first);
  }

  /** From now on the name leads to another number. @returns false when there are too many: nothing was changed */
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

  /** Lets go of numbers that neither the kernel nor a program has. The name leads to no number that somebody reads an older file by. */
  #tidy(ino: Inode, replaced: Replaced): void {
    const isKnown = (nodeId: number): boolean => (this.#successors.get(nodeId)?.lookups ?? 0) > 0;
    for (const [nodeId, older] of replaced.older) {
      // The kernel may know it without anybody having it open: by a path from before (O_PATH, a bind mount).
      if (older() !== null || isKnown(nodeId)) continue;
      replaced.older.delete(nodeId);
      this.#successors.delete(nodeId);
    }
    const wereSeveral = replaced.areSeveral;
    replaced.areSeveral = replaced.older.size > 0 || replaced.isInodeKnown;
    if (wereSeveral && !replaced.areSeveral) this.#oneAgain.add(ino);
    if (replaced.older.size > 0 || isKnown(replaced.current)) return;
    this.#successors.delete(replaced.current);
    this.#replaced.delete(ino);
    // What it has by a path from before (O_PATH, a bind mount), if there is one.
    if (replaced.isInodeKnown) this.#oneAgain.add(ino);
    else this.#oneAgain.delete(ino);
  }
}

interface Replaced {
  current: number;
  /** The numbers before, while somebody has the file open by them or the kernel owes us lookups. */
  readonly older: Map<number, OlderAttributes>;
  /** Whether the kernel may know it by the inode: of that number nobody counts the lookups, but the kernel forgets it in one. */
  isInodeKnown: boolean;
  /** Whether it may have bytes by more than one number. It may know the current one alone for as long as the file is used. */
  areSeveral: boolean;
}

function isSuccessor(nodeId: number): boolean {
  return nodeId >= FIRST_SUCCESSOR && nodeId < SUCCESSORS_END;
}
