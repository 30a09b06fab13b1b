import type { Clock } from '../base/clock.ts';
import type { Inode } from '../base/vocabulary.ts';
import type { OpenFile } from '../content/open-file.ts';
import type { Invalidator, OpenReply } from '../kernel/binding.ts';
import { isInDoubt } from '../store/node-table.ts';
import type { FileBytes, LocalFacet, NodeRecord } from '../store/tables.ts';
import type { TreeInvalidation } from '../tree/tree.ts';
import { LeftBehind } from './left-behind.ts';
import type { NodeView } from './node-view.ts';
import type { OpenFiles } from './open-files.ts';
import { RecentInodes } from './recent-inodes.ts';

/** More notifications than this are never under way (`kernel/invalidate`). */
const UNTOLD_MAX = 25_000;
/** A tree of this size is read again and again out of the kernel's cache; a larger one comes from here each time. A few MiB. */
export const UNCHANGED_MAX = 100_000;

/**
 * What the kernel keeps of ours, and when it must let go: names, attributes, bytes and listings may stay in its caches for
 * minutes, because it is told exactly what somebody else changed.
 */
export class KernelCache {
  readonly #files: OpenFiles;
  readonly #view: () => Pick<NodeView, 'local' | 'olderAttributes'>;
  readonly #localOf: (ino: Inode) => LocalFacet | null;
  readonly #clock: Pick<Clock, 'elapsedMs'>;
  /**
   * Inodes whose bytes (or entries) did not change on the service since the kernel last opened them. Not those that did: one of these
   * that is forgotten would be shown as it was for ever.
   */
  readonly #unchanged = new RecentInodes(UNCHANGED_MAX);
  /** Inodes whose size may have changed and was in no answer since: the notification may still be under way. */
  readonly #untold = new RecentInodes(UNTOLD_MAX);
  #invalidator: Invalidator | null = null;

  constructor(deps: {
    files: OpenFiles;
    view: () => Pick<NodeView, 'local' | 'olderAttributes'>;
    /** What a file is and where its name leads to it; null for one that has none. */
    localOf: (ino: Inode) => LocalFacet | null;
    clock: Pick<Clock, 'elapsedMs'>;
  }) {
    this.#files = deps.files;
    this.#view = deps.view;
    this.#localOf = deps.localOf;
    this.#clock = deps.clock;
  }

  /** The connection stands: notifications may be sent from now on. */
  connect(invalidator: Invalidator): void {
    this.#invalidator = invalidator;
  }

  /** Whether an open may go on with what the kernel has of this inode; asked once per open. */
  mayKeep(ino: Inode): boolean {
    const isUnchanged = this.#unchanged.delete(ino);
    this.#unchanged.add(ino);
    return isUnchanged;
  }

  /** How a new handle uses what the kernel has of a file; asked once per open. */
  openedAs(ino: Inode, node: NodeRecord | undefined): Pick<OpenReply, 'directIo' | 'keepCache'> {
    // The kernel has one page cache per inode: what an older handle reads must not get into a newer one's version. And while it
    // still believes an old size, it fills up a shorter file to that with zeros (fuse_short_read).
    const directIo = this.#files.hasDetached(ino) || this.#untold.has(ino);
    // What is in doubt has to come here to be asked about.
    const isSure = node === undefined || !isInDoubt(node);
    return { directIo, keepCache: !directIo && this.mayKeep(ino) && isSure };
  }

  /** An answer says what the inode's attributes are now. */
  told(ino: Inode): void {
    if (this.#untold.size > 0) this.#untold.delete(ino);
  }

  /** A program removes it. */
  folderRemoved(folder: Inode): void {
    this.#invalidator?.folderRemoved?.(folder);
  }

  /** What a merge changed. */
  changed(changes: readonly TreeInvalidation[]): void {
    for (const change of changes) {
      switch (change.kind) {
        case 'entry':
          this.#unchanged.delete(change.parent);
          this.#invalidator?.entry(change.parent, change.name);
          break;
        case 'deleted':
          this.#unchanged.delete(change.parent);
          this.#invalidator?.deleted(change.parent, change.ino, change.name);
          break;
        case 'inode':
          if (change.was !== null) this.contentChanged(change.ino, change.was);
          else this.#invalidator?.inode(change.ino, -1, 0);
          break;
        default:
          change satisfies never;
      }
    }
  }

  /** The service has other bytes than `was`: open handles keep theirs, the next open sees the new ones. */
  contentChanged(ino: Inode, was: FileBytes): void {
    const canBeTwo = this.#invalidator?.replaced !== undefined;
    const left = this.#files.detach(ino, canBeTwo ? 'goes' : 'stays');
    this.#changed(ino);
    if (left === null || !this.#becomesTwo(ino, left, was)) this.#invalidator?.inode(ino, 0, 0);
  }

  /** A first read found another version than was told of, which was `was`, and the service has dropped that one. */
  repinned(ino: Inode, was: FileBytes): void {
    // Of a longer one the kernel asks for the rest when it is told. A shorter one it would fill up with zeros.
    if (this.#view().local(ino).sizeBytes < was.sizeBytes) this.contentChanged(ino, was);
    else this.otherBytes(ino);
  }

  /** The file has other bytes and another size than the kernel was told, for its open handles too. */
  otherBytes(ino: Inode): void {
    this.#changed(ino);
    this.#invalidator?.inode(ino, 0, 0);
  }

  /**
   * To the kernel, which has one size and one set of pages for each, what `left` has open and what the name leads to are two files from now
   * on. With one size for both it would cut the longer version short, and fill up the shorter one with zeros.
   */
  #becomesTwo(ino: Inode, left: OpenFile, was: FileBytes): boolean {
    const place = this.#localOf(ino);
    if (place === null) return false;
    const users = () => this.#files.usersOf(left);
    const behind = new LeftBehind({ file: left, users, newest: () => this.#localOf(ino), clock: this.#clock });
    const older = (asker?: 'program' | 'read') => {
      if (users() === 0) return null;
      if (asker === 'program') behind.looked();
      else if (asker === 'read') behind.reading();
      return this.#view().olderAttributes(ino, left.sizeBytes, (left.kept ?? was).mtime);
    };
    if (!this.#invalidator?.replaced?.(place.parent, place.name, ino, older)) return false;
    left.keep(was);
    return true;
  }

  #changed(ino: Inode): void {
    this.#unchanged.delete(ino);
    this.#untold.add(ino);
  }
}
