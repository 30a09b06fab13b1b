import { FsError } from '../base/errors.ts';
import { type HandleId, type Inode, ROOT_INODE, type SpecialKind } from '../base/vocabulary.ts';
import type {
  AllocateMode,
  Answer,
  AttributeChange,
  AttributesReply,
  DirectorySink,
  Entry,
  FileSystemOps,
  FileSystemStats,
  HandleRecord,
  Invalidator,
  NegativeEntry,
  OpContext,
  OpenDirectoryReply,
  OpenFlags,
  OpenReply,
  ReadReply,
  RenameMode,
  WritePlace,
} from '../kernel/binding.ts';
import type { AccountPlaces } from '../tree/account-places.ts';
import type { Tree } from '../tree/tree.ts';
import { CloudAttributes } from './cloud-attributes.ts';
import type { FileSystem } from './file-system.ts';
import type { RefusedReads } from './refused-reads.ts';
import type { TrashBridge } from './trash-bridge.ts';
import { isInVersions, VERSIONS_INODE, VERSIONS_NAME, type VersionsDirectory } from './versions-directory.ts';

export interface ComposedFileSystemDeps {
  readonly files: FileSystem;
  readonly versions: VersionsDirectory;
  readonly attributes: CloudAttributes;
  readonly tree: Tree;
  /** The protected places when the whole account is mounted; null when one folder of the user is. */
  readonly places: AccountPlaces | null;
  /** Whether `.versions` stands in the listing of the root. */
  readonly showVersions: boolean;
  /** Learns which reads failed, for the thumbnail cache of a desktop; null without one. */
  readonly refused: RefusedReads | null;
  /** Where file managers delete to; null if the service has no trash. */
  readonly trash: TrashBridge | null;
}

const COOKIE_DOT = 1;
const COOKIE_DOT_DOT = 2;
const COOKIE_VERSIONS = 3;

/**
 * The mounted file system: the user's files, plus `.versions/` and a trash at the root, `user.cfs.*` on every file, and the protection of an
 * account's fixed places. It costs the user's own operations two comparisons.
 */
export class ComposedFileSystem implements FileSystemOps {
  readonly #files: FileSystem;
  readonly #versions: VersionsDirectory;
  readonly #attributes: CloudAttributes;
  readonly #tree: Tree;
  readonly #places: AccountPlaces | null;
  readonly #showVersions: boolean;
  readonly #refused: RefusedReads | null;
  readonly #trash: TrashBridge | null;

  constructor(deps: ComposedFileSystemDeps) {
    this.#files = deps.files;
    this.#versions = deps.versions;
    this.#attributes = deps.attributes;
    this.#tree = deps.tree;
    this.#places = deps.places;
    this.#showVersions = deps.showVersions;
    this.#refused = deps.refused;
    this.#trash = deps.trash;
  }

  init(invalidator: Invalidator, handles?: HandleRecord): void {
    if (handles !== undefined) this.#versions.recordIn(handles);
    this.#files.init(invalidator, handles);
  }

  made(ino: Inode, flags: OpenFlags | null): Entry | (Entry & { readonly open: OpenReply }) {
    return this.#files.made(ino, flags);
  }

  reopened(ino: Inode, handle: HandleId): OpenReply | OpenDirectoryReply | null {
    return isInVersions(ino) ? this.#versions.reopened(handle) : this.#files.reopened(ino, handle);
  }

  placeOf(folder: Inode): { parent: Inode; name: string } | null {
    return folder === ROOT_INODE || isInVersions(folder) ? null : (this.#tree.node(folder)?.local ?? null);
  }

  validated(ino: Inode): void {
    if (!isInVersions(ino)) this.#files.validated(ino);
  }

  lookup(parent: Inode, name: string, ctx: OpContext): Answer<Entry | NegativeEntry> {
    if (parent === ROOT_INODE && name === VERSIONS_NAME) return this.#lookupVersions(ctx);
    if (this.#trash?.has(parent, name)) return this.#trash.lookup();
    return this.#of(parent).lookup(parent, name, ctx);
  }

  forget(ino: Inode, count: number): void {
    this.#of(ino).forget(ino, count);
  }

  mkdir(parent: Inode, name: string, mode: number, ctx: OpContext): Answer<Entry> {
    if (this.#trash?.has(parent, name)) return this.#trash.mkdir(ctx);
    this.#mayChangeNames(parent, name);
    return this.#of(parent).mkdir(parent, name, mode, ctx);
  }

  mknod(parent: Inode, name: string, kind: 'file' | SpecialKind, mode: number, ctx: OpContext): Answer<Entry> {
    this.#mayChangeNames(parent, name);
    return this.#of(parent).mknod(parent, name, kind, mode, ctx);
  }

  symlink(parent: Inode, name: string, target: string, ctx: OpContext): Answer<Entry> {
    this.#mayChangeNames(parent, name);
    return this.#of(parent).symlink(parent, name, target, ctx);
  }

  readlink(ino: Inode, ctx: OpContext): Answer<string> {
    return this.#of(ino).readlink(ino, ctx);
  }

  unlink(parent: Inode, name: string, ctx: OpContext): Answer<void> {
    this.#mayChangeNames(parent, name);
    return this.#of(parent).unlink(parent, name, ctx);
  }

  rmdir(parent: Inode, name: string, ctx: OpContext): Answer<void> {
    this.#mayChangeNames(parent, name);
    return this.#of(parent).rmdir(parent, name, ctx);
  }

  rename(
    parent: Inode,
    name: string,
    newParent: Inode,
    newName: string,
    mode: RenameMode,
    ctx: OpContext,
  ): Answer<void> {
    this.#mayChangeNames(parent, name);
    this.#mayChangeNames(newParent, newName);
    if (isInVersions(parent) || isInVersions(newParent)) return this.#versions.rename();
    this.#places?.mayMove(parent, newParent);
    return this.#files.rename(parent, name, newParent, newName, mode, ctx);
  }

  link(ino: Inode, newParent: Inode, newName: string, ctx: OpContext): Answer<Entry> {
    this.#files.mayLink(ino);
    this.#mayChangeNames(newParent, newName);
    return this.#of(newParent).link(ino, newParent, newName, ctx);
  }

  getattr(ino: Inode, _handle: HandleId | null, _ctx: OpContext): Answer<AttributesReply> {
    return this.#of(ino).getattr(ino);
  }

  setattr(ino: Inode, change: AttributeChange, handle: HandleId | null, ctx: OpContext): Answer<AttributesReply> {
    this.#places?.mayWrite(ino);
    return this.#of(ino).setattr(ino, change, handle, ctx);
  }

  getxattr(ino: Inode, name: string, ctx: OpContext): Answer<Uint8Array> {
    if (CloudAttributes.has(name) && !isInVersions(ino)) return this.#attributes.get(ino, name, () => ctx.signal);
    return this.#of(ino).getxattr(ino, name);
  }

  setxattr(
    ino: Inode,
    name: string,
    value: Uint8Array,
    mode: 'set' | 'create' | 'replace',
    ctx: OpContext,
  ): Answer<void> {
    this.#places?.mayWrite(ino);
    if (!CloudAttributes.has(name) || isInVersions(ino)) return this.#of(ino).setxattr(ino, name, value, mode);
    this.#files.mayWrite();
    return this.#attributes.set(ino, name, value, () => ctx.signal);
  }

  listxattr(ino: Inode): Answer<readonly string[]> {
    return this.#of(ino).listxattr(ino);
  }

  removexattr(ino: Inode, name: string, ctx: OpContext): Answer<void> {
    this.#places?.mayWrite(ino);
    if (!CloudAttributes.has(name) || isInVersions(ino)) return this.#of(ino).removexattr(ino, name);
    this.#files.mayWrite();
    return this.#attributes.remove(ino, name, () => ctx.signal);
  }

  statfs(): Answer<FileSystemStats> {
    return this.#files.statfs();
  }

  open(ino: Inode, flags: OpenFlags, ctx: OpContext): Answer<OpenReply> {
    if (this.#places !== null && (flags.access !== 'read' || flags.truncate)) this.#places.mayWrite(ino);
    return this.#of(ino).open(ino, flags, ctx);
  }

  create(
    parent: Inode,
    name: string,
    mode: number,
    flags: OpenFlags,
    ctx: OpContext,
  ): Answer<Entry & { readonly open: OpenReply }> {
    this.#mayChangeNames(parent, name);
    return this.#of(parent).create(parent, name, mode, flags, ctx);
  }

  tmpfile(parent: Inode, mode: number, flags: OpenFlags, ctx: OpContext): Answer<Entry & { readonly open: OpenReply }> {
    this.#places?.mayChangeNames(parent);
    return this.#of(parent).tmpfile(parent, mode, flags, ctx);
  }

  read(ino: Inode, handle: HandleId, offset: number, length: number, ctx: OpContext): Answer<ReadReply> {
    const reply = this.#of(ino).read(ino, handle, offset, length, ctx);
    return this.#refused !== null && reply instanceof Promise ? this.#refused.watched(ino, reply) : reply;
  }

  write(
    ino: Inode,
    handle: HandleId,
    offset: number,
    data: Uint8Array,
    ctx: OpContext,
    place?: WritePlace,
  ): Answer<number> {
    return this.#of(ino).write(ino, handle, offset, data, ctx, place);
  }

  flush(ino: Inode, handle: HandleId): Answer<void> {
    return this.#of(ino).flush(ino, handle);
  }

  release(ino: Inode, handle: HandleId): Answer<void> {
    return this.#of(ino).release(ino, handle);
  }

  fsync(ino: Inode, handle: HandleId): Answer<void> {
    return this.#of(ino).fsync(ino, handle);
  }

  fallocate(
    ino: Inode,
    handle: HandleId,
    mode: AllocateMode,
    offset: number,
    length: number,
    ctx: OpContext,
  ): Answer<void> {
    return this.#of(ino).fallocate(ino, handle, mode, offset, length, ctx);
  }

  lseek(ino: Inode, handle: HandleId, offset: number, whence: 'data' | 'hole', ctx: OpContext): Answer<number> {
    return this.#of(ino).lseek(ino, handle, offset, whence, ctx);
  }

  opendir(ino: Inode, ctx: OpContext): Answer<OpenDirectoryReply> {
    return this.#of(ino).opendir(ino, ctx);
  }

  readdir(ino: Inode, handle: HandleId, cookie: number, sink: DirectorySink): Answer<void> {
    if (ino !== ROOT_INODE || !this.#showVersions || cookie >= COOKIE_VERSIONS || !this.#isOurs)
      return this.#of(ino).readdir(ino, handle, cookie, sink);
    if (this.#addVersions(cookie, sink)) return this.#files.readdir(ino, handle, COOKIE_VERSIONS, sink);
  }

  releasedir(ino: Inode, handle: HandleId): Answer<void> {
    return this.#of(ino).releasedir(ino, handle);
  }

  fsyncdir(ino: Inode): Answer<void> {
    return this.#of(ino).fsyncdir();
  }

  #of(ino: Inode): FileSystem | VersionsDirectory {
    return isInVersions(ino) ? this.#versions : this.#files;
  }

  /** A `.versions` of the user goes before the mount's: user files are never hidden. */
  #lookupVersions(ctx: OpContext): Answer<Entry | NegativeEntry> {
    const theirs = this.#files.lookup(ROOT_INODE, VERSIONS_NAME, ctx);
    const choose = (found: Entry | NegativeEntry) => (found.attributes === null ? this.#versions.rootEntry() : found);
    return theirs instanceof Promise ? theirs.then(choose) : choose(theirs);
  }

  get #isOurs(): boolean {
    return this.#tree.child(ROOT_INODE, VERSIONS_NAME) === undefined;
  }

  /** The start of the root's listing, with `.versions` in it. @returns whether all of it fitted */
  #addVersions(cookie: number, sink: DirectorySink): boolean {
    if (cookie < COOKIE_DOT && !sink.add('.', ROOT_INODE, 'folder', COOKIE_DOT, null)) return false;
    if (cookie < COOKIE_DOT_DOT && !sink.add('..', ROOT_INODE, 'folder', COOKIE_DOT_DOT, null)) return false;
    const entry = sink.wantsEntries ? this.#versions.rootEntry() : null;
    return sink.add(VERSIONS_NAME, VERSIONS_INODE, 'folder', COOKIE_VERSIONS, entry);
  }

  #mayChangeNames(parent: Inode, name: string): void {
    if (parent === ROOT_INODE && name === VERSIONS_NAME && this.#isOurs)
      throw new FsError('EROFS', `${VERSIONS_NAME} is made by the mount`);
    this.#places?.mayChangeNames(parent);
  }
}
