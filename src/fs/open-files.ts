import type { Inode } from '../base/vocabulary.ts';
import { OpenFile, type OpenFileDeps } from '../content/open-file.ts';
import type { NodeRecord } from '../store/tables.ts';

interface Entry {
  readonly file: OpenFile;
  users: number;
  writers: number;
}

/** The files in use: one OpenFile per inode, shared by its handles and closed with the last of them. */
export class OpenFiles {
  readonly #deps: OpenFileDeps;
  readonly #current = new Map<Inode, Entry>();
  /** Everything in use, also what was detached: by object. */
  readonly #entries = new Map<OpenFile, Entry>();

  constructor(deps: OpenFileDeps) {
    this.#deps = deps;
  }

  acquire(ino: Inode, access: 'read' | 'write'): OpenFile {
    let entry = this.#current.get(ino);
    if (entry === undefined) {
      entry = { file: new OpenFile(this.#deps, ino), users: 0, writers: 0 };
      this.#current.set(ino, entry);
      this.#entries.set(entry.file, entry);
    }
    entry.users++;
    if (access === 'write') entry.writers++;
    return entry.file;
  }

  release(file: OpenFile, access: 'read' | 'write'): void {
    const entry = this.#entries.get(file);
    if (entry === undefined) return;
    if (access === 'write') entry.writers--;
    if (--entry.users > 0) return;
    this.#entries.delete(file);
    if (this.#current.get(file.ino) === entry) this.#current.delete(file.ino);
    file.close();
  }

  /** The one whose size and times stat(2) shows: a detached file that is written goes before one that only reads. */
  get(ino: Inode): OpenFile | undefined {
    for (const { file } of this.#detached(ino)) if (file.unflushed !== null) return file;
    return this.#current.get(ino)?.file;
  }

  isOpen(ino: Inode): boolean {
    return this.#current.has(ino) || this.hasDetached(ino);
  }

  isBeingWritten(ino: Inode): boolean {
    for (const { writers } of this.#detached(ino)) if (writers > 0) return true;
    return (this.#current.get(ino)?.writers ?? 0) > 0;
  }

  /** Whether handles are open that read another version than a new one would. */
  hasDetached(ino: Inode): boolean {
    for (const _ of this.#detached(ino)) return true;
    return false;
  }

  /**
   * The service has a newer version: handles that read already keep theirs, the next open sees the new one. A file that nobody
   * read yet stays, it pins the new version at its first miss; unless it `goes`, because the kernel can keep its length.
   *
   * @returns what only readers have open from now on; null where there is none
   */
  detach(ino: Inode, unread: 'stays' | 'goes'): OpenFile | null {
    const entry = this.#current.get(ino);
    if (entry === undefined || entry.file.unflushed !== null) return null;
    if (!entry.file.isPinned && (unread === 'stays' || entry.writers > 0)) return null;
    this.#current.delete(ino);
    return entry.writers === 0 ? entry.file : null;
  }

  /** How many have it open. */
  usersOf(file: OpenFile): number {
    return this.#entries.get(file)?.users ?? 0;
  }

  /** The last name is gone; open handles go on with their bytes. */
  orphan(node: NodeRecord): void {
    this.#current.get(node.ino)?.file.orphan(node);
    for (const { file } of this.#detached(node.ino)) file.orphan(node);
  }

  get files(): Iterable<OpenFile> {
    return this.#entries.keys();
  }

  /** What is in use, and whether somebody may write into it. */
  *inUse(): Iterable<{ readonly ino: Inode; readonly isWritten: boolean }> {
    for (const { file, writers } of this.#entries.values()) yield { ino: file.ino, isWritten: writers > 0 };
  }

  *#detached(ino: Inode): Iterable<Entry> {
    if (this.#entries.size === this.#current.size) return; // nearly always
    const current = this.#current.get(ino);
    for (const entry of this.#entries.values()) if (entry.file.ino === ino && entry !== current) yield entry;
  }
}
