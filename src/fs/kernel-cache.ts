import type { Clock } from '../base/clock.ts';
import type { Inode } from '../base/vocabulary.ts';
import type { OpenFile } from '../content/open-file.ts';
import type { Invalidator, OpenReply } from '../kernel/binding.ts';
import { isSuspect } from '../store/node-table.ts';
import type { FileBytes, LocalFacet, NodeRecord } from '../store/tables.ts';
import type { TreeInvalidation } from '../tree/tree.ts';
import type { NodeView } from './node-view.ts';
import type { OpenFiles } from './open-files.ts';
import { RecentInodes } from './recent-inodes.ts';
import { StaleReaders } from './stale-readers.ts';

/** The most notifications that are ever in flight (`kernel/invalidate`). */
const UNSENT_MAX = 25_000;
/** The kernel's cache serves repeated reads of a tree up to this size; a larger one is read from here each time. A few MiB. */
export const UNCHANGED_MAX = 100_000;

/**
 * The kernel's caches of this mount, and their invalidation. Names, attributes, bytes and listings may stay cached for minutes, because
 * each remote change sends a notification.
 */
export class KernelCache {
  readonly #files: OpenFiles;
  readonly #view: () => Pick<NodeView, 'local' | 'olderAttributes'>;
  readonly #localOf: (ino: Inode) => LocalFacet | null;
  readonly #clock: Pick<Clock, 'elapsedMs'>;
  /**
   * Inodes whose bytes (or entries) did not change on the service since the kernel last opened them. The set holds the unchanged ones,
   * because it forgets: a forgotten changed inode would stay stale permanently.
   */
  readonly #unchanged = new RecentInodes(UNCHANGED_MAX);
  /** Inodes whose size may have changed and was in no reply since: the notification may still be in flight. */
  readonly #unsent = new RecentInodes(UNSENT_MAX);
  #invalidator: Invalidator | null = null;

  constructor(deps: {
    files: OpenFiles;
    view: () => Pick<NodeView, 'local' | 'olderAttributes'>;
    /** The local facet of a file, with its place in the tree; null for a file without a name. */
    localOf: (ino: Inode) => LocalFacet | null;
    clock: Pick<Clock, 'elapsedMs'>;
  }) {
    this.#files = deps.files;
    this.#view = deps.view;
    this.#localOf = deps.localOf;
    this.#clock = deps.clock;
  }

  /** The connection is up: notifications may be sent from now on. */
  connect(invalidator: Invalidator): void {
    this.#invalidator = invalidator;
  }

  /** Whether an open may keep the kernel's cached pages or entries of this inode; call once per open. */
  mayKeep(ino: Inode): boolean {
    const isUnchanged = this.#unchanged.delete(ino);
    this.#unchanged.add(ino);
    return isUnchanged;
  }

  /** How a new handle uses the kernel's page cache; call once per open. */
  openedAs(ino: Inode, node: NodeRecord | undefined): Pick<OpenReply, 'directIo' | 'keepCache'> {
    // The kernel has one page cache per inode: an older handle's reads must not get into a newer version's pages. With an outdated size
    // it also pads a shorter file with zeros (fuse_short_read).
    const directIo = this.#files.hasDetached(ino) || this.#unsent.has(ino);
    // Reads of a file that needs revalidation must reach this process.
    const isSure = node === undefined || !isSuspect(node);
    return { directIo, keepCache: !directIo && this.mayKeep(ino) && isSure };
  }

  /** A reply carries the inode's current attributes. */
  attributesSent(ino: Inode): void {
    if (this.#unsent.size > 0) this.#unsent.delete(ino);
  }

  /** A program removes the folder. */
  folderRemoved(folder: Inode): void {
    this.#invalidator?.folderRemoved?.(folder);
  }

  /** Applies the changes of a merge. */
  changed(changes: readonly TreeInvalidation[]): void {
    for (const change of changes) {
      switch (change.kind) {
        case 'entry':
          this.#unchanged.delete(change.parent);
          this.#invalidator?.entry(change.parent, change.name);
          break;
        case 'first-entries':
          this.#unchanged.delete(change.parent);
          this.#invalidator?.firstEntries?.(change.parent);
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

  /** The service replaced the bytes `was`: open handles keep theirs, the next open sees the new ones. */
  contentChanged(ino: Inode, was: FileBytes): void {
    const canBeTwo = this.#invalidator?.replaced !== undefined;
    const left = this.#files.detach(ino, canBeTwo ? 'goes' : 'stays');
    this.#changed(ino);
    if (left === null || !this.#becomesTwo(ino, left, was)) this.#invalidator?.inode(ino, 0, 0);
  }

  /** A first read pinned another version than `was`, the announced one, because the service has dropped that. */
  repinned(ino: Inode, was: FileBytes): void {
    // After a notification the kernel reads the rest of a longer version. It would pad a shorter one with zeros.
    if (this.#view().local(ino).sizeBytes < was.sizeBytes) this.contentChanged(ino, was);
    else this.otherBytes(ino);
  }

  /** The bytes and size of the file changed against the kernel's cached attributes, for open handles too. */
  otherBytes(ino: Inode): void {
    this.#changed(ino);
    this.#invalidator?.inode(ino, 0, 0);
  }

  /**
   * Splits the kernel's inode in two: one for the handles in `left`, one for the name. The kernel keeps one size and one set of pages per
   * inode. With one size for both it would cut the longer version short and pad the shorter one with zeros.
   */
  #becomesTwo(ino: Inode, left: OpenFile, was: FileBytes): boolean {
    const place = this.#localOf(ino);
    if (place === null) return false;
    const users = () => this.#files.usersOf(left);
    const readers = new StaleReaders({ file: left, users, newest: () => this.#localOf(ino), clock: this.#clock });
    const older = (asker?: 'program' | 'read') => {
      if (users() === 0) return null;
      if (asker === 'program') readers.polled();
      else if (asker === 'read') readers.reading();
      return this.#view().olderAttributes(ino, left.sizeBytes, (left.kept ?? was).mtime);
    };
    if (!this.#invalidator?.replaced?.(place.parent, place.name, ino, older)) return false;
    left.keep(was);
    if (left.content === null) this.#files.keepsUnheld(left);
    return true;
  }

  /** An earlier process split the inode, for handles that keep the older version `left` (null: they are lost). */
  staysTwo(ino: Inode, left: OpenFile | null): void {
    if (left?.kept != null) this.#becomesTwo(ino, left, left.kept);
    const place = left === null ? this.#localOf(ino) : null;
    if (place !== null) this.#invalidator?.replaced?.(place.parent, place.name, ino, () => null);
  }

  #changed(ino: Inode): void {
    this.#unchanged.delete(ino);
    this.#unsent.add(ino);
  }
}
