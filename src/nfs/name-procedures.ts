import { constants } from 'node:fs';
import { FsError } from '../base/errors.ts';
import type { Inode } from '../base/vocabulary.ts';
import type { Answer, AttributeChange, Attributes, Entry, OpContext } from '../kernel/binding.ts';
import { openFlags } from '../kernel/open-flags.ts';
import { readChange, writeMaybeAttributes, writeWcc } from './attributes.ts';
import type { NfsParts } from './nfs-parts.ts';
import { textOf } from './nodes.ts';
import {
  expectGranted,
  expectMayAdd,
  expectMayRemove,
  MAY_EXECUTE,
  MAY_WRITE,
  permittedChange,
} from './permissions.ts';
import {
  CREATE_MODE,
  DEVICE_TYPES,
  FILE_TYPE,
  NfsError,
  STATUS,
  TARGET_BYTES_MAX,
  VERIFIER_BYTES,
} from './protocol.ts';
import type { RpcCaller } from './rpc-message.ts';
import { XdrError, type XdrReader, type XdrWriter } from './xdr.ts';

const NEW_FILE = openFlags(constants.O_RDWR | constants.O_CREAT | constants.O_EXCL);
const FILE_MODE = 0o644;
const FOLDER_MODE = 0o755;
/** Files whose exclusive CREATE may be repeated. */
const VERIFIERS_MAX = 1_000;

/** The procedures that look up, add, remove and rename names. Each writes its result after the status. */
export class NameProcedures {
  readonly #parts: NfsParts;
  /** The verifiers of exclusive creations: a repeated CREATE with the same verifier succeeds. */
  readonly #verifiers = new Map<Inode, Buffer>();

  constructor(parts: NfsParts) {
    this.#parts = parts;
  }

  async lookup(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes } = this.#parts;
    const folder = nodes.readHandle(args);
    const name = nodes.readName(args);
    const attributes = await nodes.folder(folder, caller);
    expectGranted(attributes, caller, MAY_EXECUTE);
    const write = (found: Attributes): void => {
      nodes.writeHandle(out, found.ino);
      writeMaybeAttributes(out, found);
      writeMaybeAttributes(out, attributes);
    };
    if (name === '.') return write(attributes);
    if (name === '..') return write(await nodes.attributes(nodes.parentOf(folder), caller));
    await nodes.withChild(folder, name, caller, async (found) => {
      if (found === null) throw new NfsError(STATUS.noent);
      write(found);
    });
  }

  async create(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes, opens, ops, calls } = this.#parts;
    const folder = nodes.readHandle(args);
    const name = nodes.readChildName(args);
    const how = args.u32();
    if (how > CREATE_MODE.exclusive) throw new XdrError(`${how} is no createmode3`);
    const verifier = how === CREATE_MODE.exclusive ? Buffer.from(args.fixed(VERIFIER_BYTES)) : null;
    const change = verifier === null ? readChange(args) : {};
    const attributes = await nodes.folder(folder, caller);
    await nodes.withChild(folder, name, caller, async (existing) => {
      if (existing !== null) {
        await this.#expectReusable(existing, how, verifier, change, caller);
        return this.#writeCreated(out, existing.ino, { ino: folder, before: null }, caller);
      }
      expectMayAdd(attributes, caller);
      const { value: created, before } = await nodes.change(folder, caller, () =>
        calls.run('create', folder, caller, (ctx) => ops.create(folder, name, change.mode ?? FILE_MODE, NEW_FILE, ctx)),
      );
      const { ino } = created.attributes;
      opens.adopt(ino, created.open.handle, caller);
      ops.forget(ino, 1);
      if (verifier !== null) this.#remember(ino, verifier);
      await this.#setRest(ino, change, caller);
      await this.#writeCreated(out, ino, { ino: folder, before }, caller);
    });
  }

  async mkdir(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes, ops } = this.#parts;
    const folder = nodes.readHandle(args);
    const name = nodes.readChildName(args);
    const change = readChange(args);
    const mode = change.mode ?? FOLDER_MODE;
    await this.#add(out, folder, name, change, caller, (ctx) => ops.mkdir(folder, name, mode, ctx), 'mkdir');
  }

  async symlink(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes, ops } = this.#parts;
    const folder = nodes.readHandle(args);
    const name = nodes.readChildName(args);
    const { mode: _always0777, ...change } = readChange(args);
    const target = textOf(args.opaque(TARGET_BYTES_MAX));
    await this.#add(out, folder, name, change, caller, (ctx) => ops.symlink(folder, name, target, ctx), 'symlink');
  }

  async mknod(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes, ops } = this.#parts;
    const folder = nodes.readHandle(args);
    const name = nodes.readChildName(args);
    const type = args.u32();
    if (DEVICE_TYPES.has(type)) throw new FsError('EPERM');
    const kind = type === FILE_TYPE.socket ? 'socket' : type === FILE_TYPE.fifo ? 'fifo' : null;
    if (kind === null) throw new NfsError(STATUS.badtype);
    const change = readChange(args);
    const mode = change.mode ?? FILE_MODE;
    await this.#add(out, folder, name, change, caller, (ctx) => ops.mknod(folder, name, kind, mode, ctx), 'mknod');
  }

  async remove(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes, removed, opens, ops } = this.#parts;
    const folder = nodes.readHandle(args);
    const name = nodes.readChildName(args);
    const closed = await removed.letGo(folder, name);
    if (closed !== null) {
      await opens.drop(closed);
      return writeWcc(out, null, await nodes.attributesIfKnown(folder, caller));
    }
    const act = (found: string, ctx: OpContext) => ops.unlink(folder, found, ctx);
    await this.#removeName(out, folder, name, caller, act, 'unlink');
  }

  async rmdir(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes, ops } = this.#parts;
    const folder = nodes.readHandle(args);
    const name = nodes.readChildName(args);
    const act = (found: string, ctx: OpContext) => ops.rmdir(folder, found, ctx);
    await this.#removeName(out, folder, name, caller, act, 'rmdir');
  }

  async rename(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes } = this.#parts;
    const from = { ino: nodes.readHandle(args), name: nodes.readChildName(args) };
    const to = { ino: nodes.readHandle(args), name: nodes.readChildName(args) };
    const [fromFolder, toFolder] = [await nodes.folder(from.ino, caller), await nodes.folder(to.ino, caller)];
    await nodes.withChild(from.ino, from.name, caller, (moved, name) =>
      nodes.withChild(to.ino, to.name, caller, async (target, newName) => {
        if (moved === null) throw new NfsError(STATUS.noent);
        expectMayRemove(fromFolder, moved, caller);
        if (target === null) expectMayAdd(toFolder, caller);
        else expectMayRemove(toFolder, target, caller);
        if (moved.kind === 'folder' && from.ino !== to.ino) expectGranted(moved, caller, MAY_WRITE); // its `..` changes
        const places = [
          { ino: from.ino, name },
          { ino: to.ino, name: newName },
        ] as const;
        const before =
          target?.ino === moved.ino ? NOTHING_BEFORE : await this.#rename(...places, moved, target, caller);
        writeWcc(out, before.from, await nodes.attributesIfKnown(from.ino, caller));
        writeWcc(out, before.to, await nodes.attributesIfKnown(to.ino, caller));
      }),
    );
  }

  async link(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes, ops, calls } = this.#parts;
    const ino = nodes.readHandle(args);
    const folder = nodes.readHandle(args);
    const name = nodes.readChildName(args);
    expectMayAdd(await nodes.folder(folder, caller), caller);
    await calls.run('link', folder, caller, (ctx) => ops.link(ino, folder, name, ctx));
    ops.forget(ino, 1);
    writeMaybeAttributes(out, await nodes.attributesIfKnown(ino, caller));
    writeWcc(out, null, await nodes.attributesIfKnown(folder, caller));
  }

  /** The result of CREATE, MKDIR, SYMLINK or MKNOD, which an earlier process carried out. */
  async added(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes } = this.#parts;
    const folder = nodes.readHandle(args);
    const name = nodes.readChildName(args);
    await nodes.withChild(folder, name, caller, async (child) => {
      if (child === null) throw new NfsError(STATUS.noent);
      await this.#writeCreated(out, child.ino, { ino: folder, before: null }, caller);
    });
  }

  /** The result of REMOVE or RMDIR, which an earlier process carried out. */
  async removed(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes } = this.#parts;
    writeWcc(out, null, await nodes.attributesIfKnown(nodes.readHandle(args), caller));
  }

  /** The result of RENAME, which an earlier process carried out. */
  async renamed(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes } = this.#parts;
    const from = nodes.readHandle(args);
    nodes.readChildName(args);
    const to = nodes.readHandle(args);
    writeWcc(out, null, await nodes.attributesIfKnown(from, caller));
    writeWcc(out, null, await nodes.attributesIfKnown(to, caller));
  }

  /** Whether CREATE may use an existing file. @throws NfsError exist */
  async #expectReusable(
    existing: Attributes,
    how: number,
    verifier: Buffer | null,
    change: AttributeChange,
    caller: RpcCaller,
  ): Promise<void> {
    const { calls, ops } = this.#parts;
    const { ino, kind } = existing;
    const isRepeated = verifier !== null && this.#verifiers.get(ino)?.equals(verifier) === true;
    if (isRepeated) return;
    if (how !== CREATE_MODE.unchecked || kind !== 'file') throw new NfsError(STATUS.exist);
    const { sizeBytes } = change;
    if (sizeBytes === undefined) return;
    const permitted = permittedChange(existing, caller, { sizeBytes });
    await calls.run('setattr', ino, caller, (ctx) => ops.setattr(ino, permitted, null, ctx));
  }

  /** MKDIR, SYMLINK and MKNOD. */
  async #add(
    out: XdrWriter,
    folder: Inode,
    name: string,
    change: AttributeChange,
    caller: RpcCaller,
    make: (ctx: OpContext) => Answer<Entry>,
    op: 'mkdir' | 'symlink' | 'mknod',
  ): Promise<void> {
    const { nodes, ops, calls } = this.#parts;
    const attributes = await nodes.folder(folder, caller);
    // An existing name goes before missing permission: open(2), mkdir(2).
    await nodes.withChild(folder, name, caller, async (existing) => {
      if (existing !== null) throw new NfsError(STATUS.exist);
    });
    expectMayAdd(attributes, caller);
    const made = () => calls.run(op, folder, caller, make);
    const { value: entry, before } = await nodes.change(folder, caller, made);
    const { ino } = entry.attributes;
    ops.forget(ino, 1);
    await this.#setRest(ino, change, caller);
    await this.#writeCreated(out, ino, { ino: folder, before }, caller);
  }

  /** The attributes of a new node beside its mode. */
  async #setRest(ino: Inode, { mode: _mode, ...change }: AttributeChange, caller: RpcCaller): Promise<void> {
    if (Object.keys(change).length === 0) return;
    const { nodes, calls, ops } = this.#parts;
    const permitted = permittedChange(await nodes.attributes(ino, caller), caller, change);
    await calls.run('setattr', ino, caller, (ctx) => ops.setattr(ino, permitted, null, ctx));
  }

  /** The result of CREATE, MKDIR, SYMLINK and MKNOD. */
  async #writeCreated(
    out: XdrWriter,
    ino: Inode,
    folder: { readonly ino: Inode; readonly before: Attributes | null },
    caller: RpcCaller,
  ): Promise<void> {
    const { nodes } = this.#parts;
    out.bool(true);
    nodes.writeHandle(out, ino);
    writeMaybeAttributes(out, await nodes.attributesIfKnown(ino, caller));
    writeWcc(out, folder.before, await nodes.attributesIfKnown(folder.ino, caller));
  }

  async #removeName(
    out: XdrWriter,
    folder: Inode,
    name: string,
    caller: RpcCaller,
    act: (found: string, ctx: OpContext) => Answer<void>,
    op: 'unlink' | 'rmdir',
  ): Promise<void> {
    const { nodes, calls, opens, doubles, removedFolders } = this.#parts;
    const attributes = await nodes.folder(folder, caller);
    await nodes.withChild(folder, name, caller, async (entry, found) => {
      if (entry === null) throw new NfsError(STATUS.noent);
      expectMayRemove(attributes, entry, caller);
      if (op === 'unlink' && entry.kind === 'folder') throw new NfsError(STATUS.isdir);
      const run = () => calls.run(op, folder, caller, (ctx) => act(found, ctx));
      const { before } = await nodes.change(folder, caller, run);
      if (op === 'rmdir') removedFolders.add(entry);
      await opens.drop(entry.ino);
      await doubles?.removed(folder, found, caller);
      writeWcc(out, before, await nodes.attributesIfKnown(folder, caller));
    });
  }

  async #rename(
    from: { readonly ino: Inode; readonly name: string },
    to: { readonly ino: Inode; readonly name: string },
    moved: Attributes,
    target: Attributes | null,
    caller: RpcCaller,
  ): Promise<{ readonly from: Attributes | null; readonly to: Attributes | null }> {
    const { nodes, removed, removedFolders, calls, ops, opens, doubles } = this.#parts;
    const isRemoval = removed.isName(to.name) && from.ino === to.ino && target === null && moved.kind !== 'folder';
    if (isRemoval) {
      const file = { name: from.name, ino: moved.ino, isFile: moved.kind === 'file' };
      await removed.remove(from.ino, file, to.name, caller);
      await doubles?.removed(from.ino, from.name, caller);
      return NOTHING_BEFORE;
    }
    const act = () =>
      calls.run('rename', from.ino, caller, (ctx) => ops.rename(from.ino, from.name, to.ino, to.name, 'replace', ctx));
    // Only one of the two folders can have its attributes taken without a gap: the one where the file appears.
    const { before } = await nodes.change(to.ino, caller, act);
    if (target?.kind === 'folder') removedFolders.add(target);
    if (target !== null) await opens.drop(target.ino);
    await doubles?.renamed(from, to, caller);
    return { from: from.ino === to.ino ? before : null, to: before };
  }

  #remember(ino: Inode, verifier: Buffer): void {
    this.#verifiers.set(ino, verifier);
    if (this.#verifiers.size <= VERIFIERS_MAX) return;
    const [oldest] = this.#verifiers.keys();
    if (oldest !== undefined) this.#verifiers.delete(oldest);
  }
}

const NOTHING_BEFORE = { from: null, to: null } as const;
