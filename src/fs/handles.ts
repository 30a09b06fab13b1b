import { FsError } from '../base/errors.ts';
import type { ContentId, HandleId, Inode } from '../base/vocabulary.ts';
import type { OpenFile } from '../content/open-file.ts';
import type { Answer, HandleRecord } from '../kernel/binding.ts';
import type { TreeInvalidation } from '../tree/tree.ts';
import { lastly } from './answer-chain.ts';
import type { FileHandle } from './file-handle.ts';
import type { FolderHandle } from './folder-handle.ts';

type Handle = FileHandle | FolderHandle;

/** Open handles by the ids that the kernel holds. An id is never reused during a mount. */
export class Handles {
  readonly #handles = new Map<HandleId, Handle>();
  readonly #folders = new Map<Inode, Set<FolderHandle>>();
  /** With a record: the handles of each file. */
  readonly #ofFile = new Map<OpenFile, HandleId[]>();
  #next = 1;
  /** With a record: the files with changes that a successor would not find. */
  readonly #unkept = new Set<OpenFile>();
  /** Where a successor of this process finds them; null without one. */
  #record: HandleRecord | null = null;

  /** Records all handles from now on, for a successor of this process. */
  recordIn(record: HandleRecord): void {
    this.#record = record;
    this.#next = record.firstHandle;
  }

  /** Whether a successor of this process may follow. */
  get isRecorded(): boolean {
    return this.#record !== null;
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
      hasChanged: isFile && handle.hasChanged,
      isUnstored: isFile && this.#unkept.has(handle.file),
    });
    return id;
  }

  /** A handle under its number: also one that an earlier process opened. */
  restore(id: HandleId, handle: Handle): void {
    this.#handles.set(id, handle);
    const record = this.#record;
    if (handle.kind === 'folder') {
      const ofFolder = this.#folders.get(handle.ino) ?? new Set();
      this.#folders.set(handle.ino, ofFolder.add(handle));
      if (record !== null) handle.onRewind = () => record.rewound(id);
      return;
    }
    if (record === null) return;
    const ofFile = this.#ofFile.get(handle.file);
    if (ofFile === undefined) this.#ofFile.set(handle.file, [id]);
    else ofFile.push(id);
    if (!handle.hasChanged) handle.onChange = () => record.changed(id);
  }

  /** Notes each flush of a file before `next`. */
  whenStored(next: (ino: Inode) => void): (ino: Inode) => void {
    return (ino) => {
      this.#stored(ino);
      next(ino);
    };
  }

  /** A successor of this process would not find a change of the file. */
  unkept(file: OpenFile): void {
    if (this.#record === null || this.#unkept.has(file)) return;
    this.#unkept.add(file);
    this.#setUnstored(file, true);
  }

  /** A flush of the file: a successor of this process has what was written. */
  #stored(ino: Inode): void {
    if (this.#unkept.size === 0) return;
    for (const file of this.#unkept) {
      if (file.ino !== ino || file.unflushed !== null) continue;
      this.#unkept.delete(file);
      this.#setUnstored(file, false);
    }
  }

  #setUnstored(file: OpenFile, isUnstored: boolean): void {
    for (const id of this.#ofFile.get(file) ?? []) this.#record?.unstored(id, isUnstored);
  }

  /** `file` reads `content` from now on. */
  reads(file: OpenFile, content: ContentId | 'older'): void {
    const ofFile = this.#ofFile.get(file);
    if (ofFile !== undefined) for (const id of ofFile) this.#record?.reads(id, content);
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

  /** An open handle of either kind. */
  get(id: HandleId): Handle | undefined {
    return this.#handles.get(id);
  }

  /** @throws FsError EBADF */
  folder(id: HandleId): FolderHandle {
    const handle = this.#handles.get(id);
    if (handle?.kind !== 'folder') throw new FsError('EBADF');
    return handle;
  }

  /** `entry` is about to lose `name` in `folder`. */
  leaving(folder: Inode, entry: Inode, name: string): void {
    if (this.#record !== null && this.#folders.has(folder)) this.#record.removals.leaves(folder, entry, name);
  }

  /** `entry` no longer has `name` in `folder`: open listings of the folder continue after that name. */
  left(folder: Inode, entry: Inode, name: string): void {
    for (const handle of this.#folders.get(folder) ?? []) handle.left(entry, name);
  }

  /** Notes entries that remote changes removed from folders. */
  changedElsewhere(changes: readonly TreeInvalidation[]): void {
    if (this.#folders.size === 0) return;
    for (const change of changes)
      if ((change.kind === 'entry' || change.kind === 'deleted') && change.ino !== undefined) {
        this.leaving(change.parent, change.ino, change.name);
        this.left(change.parent, change.ino, change.name);
      }
  }

  /** RELEASE of a file. The handle is recorded until it is closed: a successor of this process may have to close it. */
  close(id: HandleId): Answer<void> {
    if (this.isLost(id)) return this.remove(id);
    const handle = this.file(id);
    return lastly(
      () => handle.close(),
      () => this.remove(id),
    );
  }

  remove(id: HandleId): void {
    const handle = this.#handles.get(id);
    this.#handles.delete(id);
    this.#record?.closed(id);
    if (handle?.kind === 'file' && this.#record !== null) this.#leaves(handle.file, id);
    if (handle?.kind !== 'folder') return;
    const ofFolder = this.#folders.get(handle.ino);
    ofFolder?.delete(handle);
    if (ofFolder?.size === 0) this.#folders.delete(handle.ino);
  }

  #leaves(file: OpenFile, id: HandleId): void {
    const ofFile = this.#ofFile.get(file) ?? [];
    if (ofFile.length <= 1) this.#ofFile.delete(file);
    else ofFile.splice(ofFile.indexOf(id), 1);
  }

  /** Folders that a program has open. */
  get openFolders(): Iterable<Inode> {
    return this.#folders.keys();
  }

  get size(): number {
    return this.#handles.size;
  }
}
