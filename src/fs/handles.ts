import { FsError } from '../base/errors.ts';
import type { ContentId, HandleId, Inode } from '../base/vocabulary.ts';
import type { OpenFile } from '../content/open-file.ts';
import type { HandleRecord } from '../kernel/binding.ts';
import type { TreeInvalidation } from '../tree/tree.ts';
import type { FileHandle } from './file-handle.ts';
import type { FolderHandle } from './folder-handle.ts';

type Handle = FileHandle | FolderHandle;

/** Open handles by the ids that the kernel holds. An id is never reused during a mount. */
export class Handles {
  readonly #handles = new Map<HandleId, Handle>();
  readonly #folders = new Map<Inode, Set<FolderHandle>>();
  #next = 1;
  /** With a record: the handles through which a file was changed since its last flush. */
  readonly #unstored = new Map<Inode, Map<HandleId, FileHandle>>();
  /** Where a successor of this process finds them; null without one. */
  #record: HandleRecord | null = null;

  /** Records all handles from now on, for a successor of this process. */
  recordIn(record: HandleRecord): void {
    this.#record = record;
    this.#next = record.firstHandle;
  }

  add(handle: Handle): HandleId {
    const id = this.#next++ as HandleId;
    this.restore(id, handle);
    const record = this.#record;
    if (record === null) return id;
    const isFile = handle.kind === 'file';
    record.opened({
      handle: id,
      ino: isFile ? handle.file.ino : handle.ino,
      kind: handle.kind,
      flags: isFile ? handle.rawFlags : 0,
      content: isFile ? handle.file.content : null,
      isUnstored: isFile && isUnstored(handle),
    });
    if (isFile && isUnstored(handle)) this.#changed(id, handle);
    return id;
  }

  /** A handle under its number: also one that an earlier process opened. */
  restore(id: HandleId, handle: Handle): void {
    this.#handles.set(id, handle);
    if (handle.kind === 'folder') {
      const ofFolder = this.#folders.get(handle.ino) ?? new Set();
      this.#folders.set(handle.ino, ofFolder.add(handle));
      return;
    }
    if (this.#record !== null) handle.onChange = () => this.#changed(id, handle);
  }

  /** Notes each flush of a file before `next`. */
  whenStored(next: (ino: Inode) => void): (ino: Inode) => void {
    return (ino) => {
      this.#stored(ino);
      next(ino);
    };
  }

  /** A flush of the file: a successor of this process has what was written. */
  #stored(ino: Inode): void {
    const unstored = this.#unstored.size > 0 ? this.#unstored.get(ino) : undefined;
    if (unstored === undefined) return;
    for (const [id, handle] of unstored) {
      if (isUnstored(handle)) continue;
      unstored.delete(id);
      this.#record?.changed(id, false);
    }
    if (unstored.size === 0) this.#unstored.delete(ino);
  }

  /** `file` reads `content` from now on. */
  reads(file: OpenFile, content: ContentId | 'older'): void {
    if (this.#record === null) return;
    for (const [id, handle] of this.#handles)
      if (handle.kind === 'file' && handle.file === file) this.#record.reads(id, content);
  }

  /** Whether an earlier process opened the handle, and what was written through it, or the file itself, is lost. */
  isLost(id: HandleId): boolean {
    return this.#record !== null && id < this.#record.firstHandle && !this.#handles.has(id);
  }

  /** @throws FsError EBADF, and EIO for a handle that the death of an earlier process cost */
  file(id: HandleId): FileHandle {
    const handle = this.#handles.get(id);
    if (handle?.kind === 'file') return handle;
    if (this.isLost(id)) throw new FsError('EIO', 'the mount process died while this file was open and changed');
    throw new FsError('EBADF');
  }

  /**
   * After unmount: closes the handles without pending writes. The kernel drops the requests that it has not sent yet (fuse_abort_conn), and
   * close(2) does not wait for RELEASE.
   */
  closeWhole(failed: (ino: Inode, err: unknown) => void): void {
    for (const [id, handle] of [...this.#handles]) {
      if (handle.kind !== 'file' || !handle.isWhole) continue;
      this.remove(id);
      try {
        void handle.close();
      } catch (err) {
        failed(handle.file.ino, err);
      }
    }
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
    this.#record?.closed(id);
    if (handle?.kind === 'file') {
      const unstored = this.#unstored.size > 0 ? this.#unstored.get(handle.file.ino) : undefined;
      if (unstored?.delete(id) && unstored.size === 0) this.#unstored.delete(handle.file.ino);
    }
    if (handle?.kind !== 'folder') return;
    const ofFolder = this.#folders.get(handle.ino);
    ofFolder?.delete(handle);
    if (ofFolder?.size === 0) this.#folders.delete(handle.ino);
  }

  get size(): number {
    return this.#handles.size;
  }

  #changed(id: HandleId, handle: FileHandle): void {
    const { ino } = handle.file;
    const unstored = this.#unstored.get(ino) ?? new Map<HandleId, FileHandle>();
    if (unstored.has(id)) return;
    this.#unstored.set(ino, unstored.set(id, handle));
    this.#record?.changed(id, true);
  }
}

/** Whether changes of the file are in the memory of this process alone. */
function isUnstored({ file }: FileHandle): boolean {
  return file.unflushed !== null || file.isJustEmptied;
}
