import type { ContentId, Inode, Timespec } from '../base/vocabulary.ts';
import { OpenFile, type OpenFileDeps } from '../content/open-file.ts';
import type { NodeRecord } from '../store/tables.ts';
import type { FilesInUse } from '../tree/files-in-use.ts';

interface Entry {
  readonly ino: Inode;
  readonly file: OpenFile;
  users: number;
  writers: number;
  /** Writers with changes that they have not closed yet: until then the file may be incomplete. */
  changers: number;
  /** The node as it lost its name: the entry stays without users until the kernel forgets the inode. Null for a file with a name. */
  nameless: NodeRecord | null;
}

export interface OpenFilesDeps extends OpenFileDeps {
  /** Is kept up to date. */
  readonly inUse: FilesInUse;
}

/** The files in use: one OpenFile per inode, shared by its handles and closed with the last of them. */
export class OpenFiles {
  readonly #deps: OpenFileDeps;
  readonly #inUse: FilesInUse;
  readonly #current = new Map<Inode, Entry>();
  /** Every file in use, detached ones too, by object. */
  readonly #entries = new Map<OpenFile, Entry>();
  /**
   * Files that lost their last name while nothing had them open and no bytes of them were here: there is nothing to hold until an open makes an
   * entry, or the kernel forgets the inode. Nearly every file of `rm -r` is one.
   */
  readonly #unheld = new Map<Inode, NodeRecord>();

  constructor(deps: OpenFilesDeps) {
    this.#deps = deps;
    this.#inUse = deps.inUse;
  }

  acquire(ino: Inode, access: 'read' | 'write'): OpenFile {
    const entry = this.#entry(ino);
    entry.users++;
    if (access === 'write') entry.writers++;
    return entry.file;
  }

  /**
   * The file of a handle that an earlier process opened.
   *
   * @param content what that handle reads; null: nothing yet
   * @returns null if the content is gone, or the file with it
   */
  resume(ino: Inode, access: 'read' | 'write', content: ContentId | null): OpenFile | null {
    const local = this.#deps.store.get('node', ino)?.local;
    if (local == null) return this.#resumeNameless(ino, access, content);
    if (content === null) return this.acquire(ino, access);
    if (local.content !== null && this.#isCurrent(content, local.content)) {
      const file = this.acquire(ino, access);
      file.goOnOver(null, local.content);
      return file;
    }
    if (access === 'write' || this.#deps.contents.record(content) === undefined) return null;
    return this.#resumeOlder(ino, content, local.mtime);
  }

  /** A reader of a version that another one has replaced. */
  #resumeOlder(ino: Inode, content: ContentId, mtime: Timespec): OpenFile {
    for (const entry of this.#detached(ino)) {
      if (entry.file.content !== content) continue;
      entry.users++;
      return entry.file;
    }
    const file = new OpenFile(this.#deps, ino);
    const entry: Entry = { ino, file, users: 1, writers: 0, changers: 0, nameless: null };
    this.#entries.set(file, entry);
    this.#inUse.add(entry);
    // Its time is not recorded: it was not after that of the newest version.
    file.keep({ content, sizeBytes: this.#deps.contents.sizeOf(content), mtime });
    return file;
  }

  /** A handle of a file without a name, which was orphaned before. */
  #resumeNameless(ino: Inode, access: 'read' | 'write', content: ContentId | null): OpenFile | null {
    const entry = this.#unheld.has(ino) ? this.#entry(ino) : this.#current.get(ino);
    if (entry?.nameless == null) return null;
    const { file, nameless } = entry;
    if (content !== null && content !== file.content) {
      const kind = this.#deps.contents.record(content)?.kind;
      if (kind === undefined || (kind === 'version' && access === 'write')) return null;
      if (kind === 'version' && nameless.local !== null) {
        const older = this.#resumeOlder(ino, content, nameless.local.mtime);
        older.orphan(nameless, 'older');
        return older;
      }
      file.goOnOver(file.content, content);
    }
    return this.acquire(ino, access);
  }

  /** Whether handles on `content` use the newest bytes: those, or a draft over them that was just begun. */
  #isCurrent(content: ContentId, newest: ContentId): boolean {
    if (content === newest) return true;
    const { contents } = this.#deps;
    const record = contents.record(newest);
    if (record?.kind !== 'draft' || record.sealed) return false;
    // An empty content is no base.
    return record.base === content || (record.base === null && contents.record(content)?.sizeBytes === 0);
  }

  /** The file keeps an older version of which it holds no bytes yet. */
  keepsUnheld(file: OpenFile): void {
    this.#deps.onHeld?.(file, 'older');
  }

  release(file: OpenFile, access: 'read' | 'write'): void {
    const entry = this.#entries.get(file);
    if (entry === undefined) return;
    if (access === 'write') entry.writers--;
    if (--entry.users > 0 || entry.nameless !== null) return;
    this.#close(entry);
  }

  /** The file whose size and times stat(2) shows: a detached one with unflushed writes goes before the current one. */
  get(ino: Inode): OpenFile | undefined {
    for (const { file } of this.#detached(ino)) if (file.unflushed !== null) return file;
    return this.#current.get(ino)?.file;
  }

  /** All files of the inode that are in use, detached ones first. */
  of(ino: Inode): OpenFile[] {
    const files = Array.from(this.#detached(ino), ({ file }) => file);
    const current = this.#current.get(ino);
    return current === undefined ? files : [...files, current.file];
  }

  /** As `OnSameBytes` of the sync. */
  goOnOver(ino: Inode, was: ContentId, is: ContentId): void {
    for (const file of this.of(ino)) file.goOnOver(was, is);
  }

  isOpen(ino: Inode): boolean {
    return (this.#current.get(ino)?.users ?? 0) > 0 || this.hasDetached(ino);
  }

  isBeingWritten(ino: Inode): boolean {
    for (const { writers } of this.#detached(ino)) if (writers > 0) return true;
    return (this.#current.get(ino)?.writers ?? 0) > 0;
  }

  /** A writer changes the file for the first time. */
  addChanger(file: OpenFile): void {
    const entry = this.#entries.get(file);
    if (entry !== undefined) entry.changers++;
  }

  /** A writer that changed the file is about to be released. */
  removeChanger(file: OpenFile): void {
    const entry = this.#entries.get(file);
    if (entry !== undefined) entry.changers--;
  }

  /** Whether a writer has unclosed changes. Closed changes are complete, even if others write later. */
  isBeingChanged(ino: Inode): boolean {
    for (const { changers } of this.#detached(ino)) if (changers > 0) return true;
    return (this.#current.get(ino)?.changers ?? 0) > 0;
  }

  /** Whether open handles read another version than a new handle would. */
  hasDetached(ino: Inode): boolean {
    return this.#detached(ino).length > 0;
  }

  /**
   * The service has a newer version: handles that have read keep theirs, the next open sees the new one. A file without a read stays, and
   * pins the new version at its first miss; with `goes` it is detached too, because the kernel can keep its length.
   *
   * @returns the detached file if only readers have it open; otherwise null
   */
  detach(ino: Inode, unread: 'stays' | 'goes'): OpenFile | null {
    const entry = this.#current.get(ino);
    if (entry === undefined || entry.users === 0 || entry.file.unflushed !== null) return null;
    if (!entry.file.isPinned && (unread === 'stays' || entry.writers > 0)) return null;
    this.#current.delete(ino);
    // No new open can reach it: its last handle closes it.
    entry.nameless = null;
    return entry.writers === 0 ? entry.file : null;
  }

  /** The number of handles that have it open. */
  usersOf(file: OpenFile): number {
    return this.#entries.get(file)?.users ?? 0;
  }

  /**
   * The last name is gone; handles keep the bytes. New handles get them too until the kernel forgets the inode: a lookup may have preceded the
   * deletion, and nothing else keeps the bytes.
   */
  orphan(node: NodeRecord): void {
    if (node.kind === 'file' && node.local?.content == null && !this.#current.has(node.ino)) {
      this.#unheld.set(node.ino, node);
    } else if (node.kind === 'file') {
      const entry = this.#entry(node.ino);
      entry.nameless = node;
      entry.file.orphan(node);
    }
    for (const { file } of this.#detached(node.ino)) file.orphan(node, 'older');
  }

  /** The file got its first name: from now on its node holds its content. */
  named(ino: Inode): void {
    const entry = this.#current.get(ino);
    if (entry === undefined) return;
    entry.nameless = null;
    entry.file.named();
    if (entry.users === 0) this.#close(entry);
  }

  /** The kernel forgot the inode: no new open can follow. */
  forget(ino: Inode): void {
    this.#unheld.delete(ino);
    const entry = this.#current.get(ino);
    if (entry === undefined || entry.nameless === null) return;
    entry.nameless = null;
    if (entry.users === 0) this.#close(entry);
  }

  get files(): Iterable<OpenFile> {
    return this.#entries.keys();
  }

  #entry(ino: Inode): Entry {
    const known = this.#current.get(ino);
    if (known !== undefined) return known;
    const nameless = this.#unheld.get(ino) ?? null;
    const entry: Entry = { ino, file: new OpenFile(this.#deps, ino), users: 0, writers: 0, changers: 0, nameless };
    this.#current.set(ino, entry);
    this.#entries.set(entry.file, entry);
    this.#inUse.add(entry);
    if (nameless !== null) {
      this.#unheld.delete(ino);
      entry.file.orphan(nameless);
    }
    return entry;
  }

  #close(entry: Entry): void {
    const { file } = entry;
    this.#entries.delete(file);
    this.#inUse.remove(entry);
    if (this.#current.get(file.ino) === entry) this.#current.delete(file.ino);
    file.close();
  }

  #detached(ino: Inode): readonly Entry[] {
    if (this.#entries.size === this.#current.size) return NONE; // nearly always
    const current = this.#current.get(ino);
    return [...this.#entries.values()].filter((entry) => entry.ino === ino && entry !== current);
  }
}

const NONE: readonly Entry[] = [];
