import { FsError } from '../base/errors.ts';
import { type Inode, ROOT_INODE } from '../base/vocabulary.ts';
import type { Answer, Attributes, FileSystemOps } from '../kernel/binding.ts';
import type { OpCalls } from '../kernel/op-calls.ts';
import { after } from './answers.ts';
import { formsOf } from './composed-names.ts';
import type { FileHandles } from './file-handles.ts';
import type { FolderTimes } from './folder-times.ts';
import { NAME_BYTES_MAX } from './protocol.ts';
import type { RemovedFolders } from './removed-folders.ts';
import type { RemovedWhileOpen } from './removed-while-open.ts';
import type { RpcCaller } from './rpc-message.ts';
import type { XdrReader, XdrWriter } from './xdr.ts';

const UTF8 = new TextDecoder('utf-8', { fatal: true });
/** Longer than any name: READ of the argument must not depend on the limit of names. */
const NAME_ARGUMENT_BYTES_MAX = 4096;
const SLASH = 0x2f;

/** Handles, names and attributes in the arguments of procedures. Every lookup is returned before the reply. */
export class Nodes {
  readonly #ops: FileSystemOps;
  readonly #calls: OpCalls;
  readonly #handles: FileHandles;
  readonly #removed: RemovedWhileOpen;
  readonly #removedFolders: RemovedFolders;
  readonly #times: FolderTimes;
  readonly #formsOf: (name: string) => readonly string[];

  /** @param deps.isApple composed and decomposed names are one name */
  constructor(deps: {
    readonly ops: FileSystemOps;
    readonly calls: OpCalls;
    readonly handles: FileHandles;
    readonly removed: RemovedWhileOpen;
    readonly removedFolders: RemovedFolders;
    readonly times: FolderTimes;
    readonly isApple: boolean;
  }) {
    this.#ops = deps.ops;
    this.#calls = deps.calls;
    this.#handles = deps.handles;
    this.#removed = deps.removed;
    this.#removedFolders = deps.removedFolders;
    this.#times = deps.times;
    this.#formsOf = deps.isApple ? formsOf : (name) => [name];
  }

  /** nfs_fh3. @throws NfsError badhandle */
  readHandle(args: XdrReader): Inode {
    return this.#handles.read(args);
  }

  writeHandle(out: XdrWriter, ino: Inode): void {
    this.#handles.write(out, ino);
  }

  /** filename3. @throws FsError EINVAL, EILSEQ, ENAMETOOLONG */
  readName(args: XdrReader): string {
    const bytes = args.opaque(NAME_ARGUMENT_BYTES_MAX);
    if (bytes.byteLength > NAME_BYTES_MAX) throw new FsError('ENAMETOOLONG');
    if (bytes.byteLength === 0 || bytes.includes(0) || bytes.includes(SLASH)) throw new FsError('EINVAL');
    return textOf(bytes);
  }

  /** A name to add or remove: neither `.` nor `..`. @throws FsError as `readName` */
  readChildName(args: XdrReader): string {
    const name = this.readName(args);
    if (name === '.' || name === '..') throw new FsError('EINVAL');
    return name;
  }

  /** @throws FsError ESTALE for a node that no longer exists */
  attributes(ino: Inode, caller: RpcCaller): Answer<Attributes> {
    const removed = this.#removedFolders.attributesOf(ino);
    if (removed !== undefined) return removed;
    const reply = this.#calls.run('getattr', ino, caller, (ctx) => this.#ops.getattr(ino, null, ctx));
    return after(reply, ({ attributes }) => this.asShown(attributes));
  }

  /** The attributes of a node as a client gets them. */
  asShown(attributes: Attributes): Attributes {
    return this.#times.asShown(attributes);
  }

  /** The attributes for a reply, where they are optional. */
  attributesIfKnown(ino: Inode, caller: RpcCaller): Answer<Attributes | null> {
    try {
      const answer = this.attributes(ino, caller);
      return answer instanceof Promise ? answer.catch(() => null) : answer;
    } catch {
      return null;
    }
  }

  /** A folder with names. @throws FsError ENOTDIR, ENOENT for a removed folder, ESTALE */
  async folder(ino: Inode, caller: RpcCaller): Promise<Attributes> {
    if (this.isRemovedFolder(ino)) throw new FsError('ENOENT');
    const attributes = await this.attributes(ino, caller);
    if (attributes.kind !== 'folder') throw new FsError('ENOTDIR');
    return attributes;
  }

  isRemovedFolder(ino: Inode): boolean {
    return this.#removedFolders.attributesOf(ino) !== undefined;
  }

  parentOf(folder: Inode): Inode {
    return this.#ops.placeOf?.(folder)?.parent ?? ROOT_INODE;
  }

  /**
   * Runs `act` with the attributes of a child and the name that it has here, and keeps the child's lookup meanwhile. Without a child `act` gets
   * null, and the name as the client sent it.
   */
  async withChild<T>(
    parent: Inode,
    name: string,
    caller: RpcCaller,
    act: (child: Attributes | null, name: string) => Promise<T>,
  ): Promise<T> {
    const removed = this.#removed.inodeOf(parent, name);
    if (removed !== null) return act(await this.attributes(removed, caller), name);
    for (const form of this.#formsOf(name)) {
      const entry = await this.#calls.run('lookup', parent, caller, (ctx) => this.#ops.lookup(parent, form, ctx));
      if (entry.attributes === null) continue;
      try {
        return await act(this.asShown(entry.attributes), form);
      } finally {
        this.#ops.forget(entry.attributes.ino, 1);
      }
    }
    return act(null, name);
  }

  /**
   * Changes a node.
   *
   * @returns `before`: the attributes before, only if nothing else can have changed the node since then
   */
  change<T>(
    ino: Inode,
    caller: RpcCaller,
    act: () => Answer<T>,
  ): Answer<{ readonly value: T; readonly before: Attributes | null }> {
    const before = this.#attributesNow(ino, caller);
    const answer = act();
    return answer instanceof Promise ? answer.then((value) => ({ value, before: null })) : { value: answer, before };
  }

  #attributesNow(ino: Inode, caller: RpcCaller): Attributes | null {
    const answer = this.attributes(ino, caller);
    if (!(answer instanceof Promise)) return answer;
    answer.catch(() => undefined);
    return null;
  }
}

/** @throws FsError EILSEQ */
export function textOf(bytes: Uint8Array): string {
  try {
    return UTF8.decode(bytes);
  } catch {
    throw new FsError('EILSEQ');
  }
}
