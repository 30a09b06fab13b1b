import type { Inode } from '../base/vocabulary.ts';
import type { OpenHere } from './remote-deletions.ts';

/** A file that is open, or may be opened again, as its owner counts it. */
export interface FileInUse {
  readonly ino: Inode;
  /** Handles that have it open. */
  readonly users: number;
  /** Those of the open handles that may write. */
  readonly writers: number;
}

/** The open files of a mount. The tree asks it which files are in use; `OpenFiles` fills it. */
export class FilesInUse {
  readonly #files = new Set<FileInUse>();

  add(file: FileInUse): void {
    this.#files.add(file);
  }

  remove(file: FileInUse): void {
    this.#files.delete(file);
  }

  /** The inodes in use, and whether a handle may write to them. */
  *open(): Iterable<OpenHere> {
    for (const { ino, users, writers } of this.#files) if (users > 0) yield { ino, isWritten: writers > 0 };
  }
}
