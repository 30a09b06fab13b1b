import type { Inode } from '../base/vocabulary.ts';
import type { Attributes } from '../kernel/binding.ts';

const FOLDERS_MAX = 256;

/**
 * Removed folders that a program may still have open or work in: a client reports neither. The latest ones keep their attributes and an empty
 * listing. Without them, `ls` there would be ESTALE.
 */
export class RemovedFolders {
  readonly #folders = new Map<Inode, Attributes>();

  /** @param attributes of the folder before its removal */
  add(attributes: Attributes): void {
    this.#folders.set(attributes.ino, attributes);
    if (this.#folders.size <= FOLDERS_MAX) return;
    const [oldest] = this.#folders.keys();
    if (oldest !== undefined) this.#folders.delete(oldest);
  }

  attributesOf(ino: Inode): Attributes | undefined {
    return this.#folders.size === 0 ? undefined : this.#folders.get(ino);
  }
}
