import { FsError } from '../base/errors.ts';
import type { HandleId, Inode } from '../base/vocabulary.ts';
import type { FileHandle } from './file-handle.ts';

/** One opendir(2). */
export interface FolderHandle {
  readonly kind: 'folder';
  readonly ino: Inode;
  /** Names handed out lately, by cookie: where to go on when the entry itself is gone by then. Bounded. */
  readonly handedOut: Map<number, string>;
}

type Handle = FileHandle | FolderHandle;

/** What is open, by the numbers the kernel holds. Numbers are never reused while the mount lives. */
export class Handles {
  readonly #handles = new Map<HandleId, Handle>();
  #next = 1;

  add(handle: Handle): HandleId {
    const id = this.#next++ as HandleId;
    this.#handles.set(id, handle);
    return id;
  }

  /** @throws FsError EBADF */
  file(id: HandleId): FileHandle {
    const handle = this.#handles.get(id);
    if (handle?.kind !== 'file') throw new FsError('EBADF');
    return handle;
  }

  /** @throws FsError EBADF */
  folder(id: HandleId): FolderHandle {
    const handle = this.#handles.get(id);
    if (handle?.kind !== 'folder') throw new FsError('EBADF');
    return handle;
  }

  remove(id: HandleId): void {
    this.#handles.delete(id);
  }

  get size(): number {
    return this.#handles.size;
  }
}
