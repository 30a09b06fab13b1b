import type { Inode } from '../base/vocabulary.ts';
import type { Invalidator } from '../kernel/binding.ts';
import type { TreeInvalidation } from '../tree/tree.ts';
import type { OpenFiles } from './open-files.ts';

/**
 * What the kernel keeps of ours, and when it must let go: names, attributes, bytes and listings may stay in its caches for
 * minutes, because it is told exactly what somebody else changed.
 */
export class KernelCache {
  readonly #files: OpenFiles;
  /** Inodes whose bytes (or entries) changed on the service since the kernel last opened them. */
  readonly #changedElsewhere = new Set<Inode>();
  #invalidator: Invalidator | null = null;

  constructor(files: OpenFiles) {
    this.#files = files;
  }

  /** The connection stands: notifications may be sent from now on. */
  connect(invalidator: Invalidator): void {
    this.#invalidator = invalidator;
  }

  /** Whether an open may go on with what the kernel has of this inode; asked once per open. */
  mayKeep(ino: Inode): boolean {
    return !this.#changedElsewhere.delete(ino);
  }

  /** What a merge changed. */
  changed(changes: readonly TreeInvalidation[]): void {
    for (const change of changes) {
      switch (change.kind) {
        case 'entry':
          this.#changedElsewhere.add(change.parent);
          this.#invalidator?.entry(change.parent, change.name);
          break;
        case 'deleted':
          this.#changedElsewhere.add(change.parent);
          this.#invalidator?.deleted(change.parent, change.ino, change.name);
          break;
        case 'inode':
          if (change.contentChanged) this.contentChanged(change.ino);
          else this.#invalidator?.inode(change.ino, -1, 0);
          break;
        default:
          change satisfies never;
      }
    }
  }

  /** The service has other bytes than before: open handles keep theirs, the next open sees the new ones. */
  contentChanged(ino: Inode): void {
    this.#files.detach(ino);
    this.#changedElsewhere.add(ino);
    this.#invalidator?.inode(ino, 0, 0);
  }

  /** The file has other bytes and another size than the kernel was told, for its open handles too. */
  otherBytes(ino: Inode): void {
    this.#changedElsewhere.add(ino);
    this.#invalidator?.inode(ino, 0, 0);
  }
}
