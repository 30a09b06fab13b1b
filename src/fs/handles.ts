import { FsError } from '../base/errors.ts';
import type { HandleId, Inode } from '../base/vocabulary.ts';
import type { TreeInvalidation } from '../tree/tree.ts';
import type { FileHandle } from './file-handle.ts';
import type { FolderHandle } from './folder-handle.ts';

type Handle = FileHandle | FolderHandle;

/** Open handles by the ids that the kernel holds. An id is never reused during a mount. */
export class Handles {
  readonly #handles = new Map<HandleId, Handle>();
  readonly #folders = new Map<Inode, Set<FolderHandle>>();
  #next = 1;

  add(handle: Handle): HandleId {
    const id = this.#next++ as HandleId;
    this.#handles.set(id, handle);
    if (handle.kind === 'folder') {
      const ofFolder = this.#folders.get(handle.ino) ?? new Set();
      this.#folders.set(handle.ino, ofFolder.add(handle));
    }
    return id;
  }

  /** @throws FsError EBADF */
  file(id: HandleId): FileHandle {
    const handle = this.#handles.get(id);
    if (handle?.kind !== 'file') throw new FsError('EBADF');
    return handle;
  }

  get files(): ReadonlyMap<HandleId, FileHandle> {
    return new Map([...this.#handles].filter((entry): entry is [HandleId, FileHandle] => entry[1].kind === 'file'));
  }

  /** @throws FsError EBADF */
  folder(id: HandleId): FolderHandle {
    const handle = this.#handles.get(id);
    if (handle?.kind !== 'folder') throw new FsError('EBADF');
    return handle;
  }

  /** `entry` no longer has `name` in `folder`: open listings of the folder continue after that name. */
  left(folder: Inode, entry: Inode, name: string): void {
    for (const handle of this.#folders.get(folder) ?? []) handle.left(entry, name);
  }

  /** Notes entries that remote changes removed from folders. */
  changedElsewhere(changes: readonly TreeInvalidation[]): void {
    if (this.#folders.size === 0) return;
    for (const change of changes)
      if (change.kind !== 'inode' && change.ino !== undefined) this.left(change.parent, change.ino, change.name);
  }

  remove(id: HandleId): void {
    const handle = this.#handles.get(id);
    this.#handles.delete(id);
    if (handle?.kind !== 'folder') return;
    const ofFolder = this.#folders.get(handle.ino);
    ofFolder?.delete(handle);
    if (ofFolder?.size === 0) this.#folders.delete(handle.ino);
  }

  get size(): number {
    return this.#handles.size;
  }
}
