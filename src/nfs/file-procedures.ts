import { randomBytes } from 'node:crypto';
import { FsError } from '../base/errors.ts';
import type { HandleId, Inode } from '../base/vocabulary.ts';
import type { Answer, Attributes, ReadReply } from '../kernel/binding.ts';
import { bytesOf } from '../kernel/gathered-reply.ts';
import { after } from './answers.ts';
import { expressible, readChange, readTime, writeAttributes, writeMaybeAttributes, writeWcc } from './attributes.ts';
import type { NfsParts } from './nfs-parts.ts';
import { expectOpenable, isGranted, MAY_EXECUTE, MAY_READ, MAY_WRITE, permittedChange } from './permissions.ts';
import { FILE_SYNC, NfsError, STATUS, TRANSFER_BYTES_MAX, UNSTABLE, VERIFIER_BYTES } from './protocol.ts';
import type { RpcCaller } from './rpc-message.ts';
import { padding, XdrError, type XdrReader, type XdrWriter } from './xdr.ts';

/** The bits of ACCESS (RFC 1813, section 3.3.4). */
const ACCESS = { read: 0x01, lookup: 0x02, modify: 0x04, extend: 0x08, delete: 0x10, execute: 0x20 } as const;
const ZEROS = Buffer.alloc(4);
/** More pieces are cheaper to copy than to send, and writev(2) takes 1,024. */
const PIECES_MAX = 64;
/** The largest file: exact in a double, and what the file system allows. */
const FILE_BYTES_MAX = Number.MAX_SAFE_INTEGER;

/**
 * The bytes of a reply; those that lie in files are read. Memory of the file system is returned as it is if the answer is immediate: the reply is
 * sent before anything else can change it.
 */
function piecesOf(answer: Answer<ReadReply>): Answer<readonly Uint8Array[]> {
  if (answer instanceof Promise) return answer.then((reply) => [bytesOf(reply)]);
  if (answer instanceof Uint8Array) return [answer];
  return isMemory(answer) ? answer : [bytesOf(answer)];
}

/** Whether the reply has few pieces, none of them in a file. */
function isMemory(reply: ReadReply): reply is readonly Uint8Array[] {
  return Array.isArray(reply) && reply.length <= PIECES_MAX && reply.every((piece) => piece instanceof Uint8Array);
}

/** The procedures on one node: attributes and bytes. */
export class FileProcedures {
  readonly #parts: NfsParts;
  /** Differs after a restart, so that clients send again what no COMMIT confirmed. */
  readonly #verifier = randomBytes(VERIFIER_BYTES);

  constructor(parts: NfsParts) {
    this.#parts = parts;
  }

  getattr(args: XdrReader, caller: RpcCaller, out: XdrWriter): Answer<void> {
    const { nodes, ops } = this.#parts;
    const ino = nodes.readHandle(args);
    return after(nodes.attributes(ino, caller), (attributes) => {
      writeAttributes(out, attributes);
      // A client that opens a file or a folder again sends nothing else.
      if (!nodes.isRemovedFolder(ino)) ops.validated?.(ino);
    });
  }

  async setattr(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes, calls, ops } = this.#parts;
    const ino = nodes.readHandle(args);
    const change = readChange(args);
    const guard = args.bool() ? readTime(args) : null;
    const attributes = await nodes.attributes(ino, caller);
    const known = expressible(attributes.ctime);
    if (guard !== null && (guard.sec !== known.sec || guard.nsec !== known.nsec)) throw new NfsError(STATUS.notSync);
    const permitted = permittedChange(attributes, caller, change);
    const { before } = await nodes.change(ino, caller, () =>
      calls.run('setattr', ino, caller, (ctx) => ops.setattr(ino, permitted, null, ctx)),
    );
    writeWcc(out, before, await nodes.attributesIfKnown(ino, caller));
  }

  /** The result of SETATTR, which an earlier process carried out. */
  async changed(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes } = this.#parts;
    writeWcc(out, null, await nodes.attributes(nodes.readHandle(args), caller));
  }

  async access(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes, isReadOnly } = this.#parts;
    const attributes = await nodes.attributes(nodes.readHandle(args), caller);
    const asked = args.u32();
    const may = (wanted: number): boolean => isGranted(attributes, caller, wanted);
    const mayWrite = may(MAY_WRITE) && !(isReadOnly && ['file', 'folder'].includes(attributes.kind));
    const isFolder = attributes.kind === 'folder';
    const allowed =
      (may(MAY_READ) ? ACCESS.read : 0) |
      (mayWrite ? ACCESS.modify | ACCESS.extend | (isFolder ? ACCESS.delete : 0) : 0) |
      (may(MAY_EXECUTE) ? (isFolder ? ACCESS.lookup : ACCESS.execute) : 0);
    writeMaybeAttributes(out, attributes);
    out.u32(allowed & asked);
  }

  async readlink(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes, calls, ops } = this.#parts;
    const ino = nodes.readHandle(args);
    const attributes = await nodes.attributes(ino, caller);
    if (attributes.kind !== 'symlink') throw new FsError('EINVAL');
    const target = await calls.run('readlink', ino, caller, (ctx) => ops.readlink(ino, ctx));
    writeMaybeAttributes(out, attributes);
    out.text(target);
  }

  /** @returns the bytes that follow in the reply */
  read(args: XdrReader, caller: RpcCaller, out: XdrWriter): Answer<readonly Uint8Array[]> {
    const { nodes, opens, calls, ops } = this.#parts;
    const ino = nodes.readHandle(args);
    const offset = args.u64();
    const length = Math.min(args.u32(), TRANSFER_BYTES_MAX);
    const bytesRead = (): Answer<readonly Uint8Array[]> =>
      offset > FILE_BYTES_MAX
        ? []
        : opens.use(ino, 'read', caller, (handle) =>
            piecesOf(calls.run('read', ino, caller, (ctx) => ops.read(ino, handle, offset, length, ctx))),
          );
    const write = (pieces: readonly Uint8Array[], attributes: Attributes | null): readonly Uint8Array[] => {
      const bytes = pieces.reduce((total, piece) => total + piece.byteLength, 0);
      writeMaybeAttributes(out, attributes);
      const isEnd = attributes === null ? bytes < length : offset + bytes >= attributes.sizeBytes;
      out.u32(bytes).bool(isEnd).u32(bytes);
      return padding(bytes) === 0 ? pieces : [...pieces, ZEROS.subarray(0, padding(bytes))];
    };
    return after(this.#file(ino, caller), (file) => {
      expectOpenable(file, caller, MAY_READ);
      return after(bytesRead(), (pieces) => {
        const attributes = nodes.attributesIfKnown(ino, caller);
        if (!(attributes instanceof Promise)) return write(pieces, attributes);
        const own = pieces.map((piece) => Buffer.from(piece));
        return attributes.then((known) => write(own, known));
      });
    });
  }

  write(args: XdrReader, caller: RpcCaller, out: XdrWriter): Answer<void> {
    const { nodes, opens, calls, ops } = this.#parts;
    const ino = nodes.readHandle(args);
    const offset = args.u64();
    const length = args.u32();
    const stable = args.u32();
    if (stable > FILE_SYNC) throw new XdrError(`${stable} is no stable_how`);
    const data = args.opaque(TRANSFER_BYTES_MAX);
    if (data.byteLength < length) throw new XdrError('fewer bytes than announced');
    const bytes = data.subarray(0, length);
    const written = (handle: HandleId): Answer<Attributes | null> =>
      after(
        nodes.change(ino, caller, () =>
          calls.run('write', ino, caller, (ctx) => ops.write(ino, handle, offset, bytes, ctx, 'offset')),
        ),
        ({ before }) => {
          opens.noteUncommitted(ino, true);
          return stable === UNSTABLE ? before : this.#sync(ino, caller, handle).then(() => before);
        },
      );
    return after(this.#file(ino, caller), (file) => {
      expectOpenable(file, caller, MAY_WRITE);
      if (offset + length > FILE_BYTES_MAX) throw new FsError('EFBIG');
      return after(opens.use(ino, 'write', caller, written), (before) =>
        after(nodes.attributesIfKnown(ino, caller), (attributes) => {
          writeWcc(out, before, attributes);
          out
            .u32(length)
            .u32(stable === UNSTABLE ? UNSTABLE : FILE_SYNC)
            .fixed(this.#verifier);
        }),
      );
    });
  }

  async commit(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes, opens } = this.#parts;
    const ino = nodes.readHandle(args);
    const attributes = await this.#file(ino, caller);
    if (!this.#parts.isReadOnly) await opens.use(ino, 'write', caller, (handle) => this.#sync(ino, caller, handle));
    writeWcc(out, null, (await nodes.attributesIfKnown(ino, caller)) ?? attributes);
    out.fixed(this.#verifier);
  }

  async fsstat(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes, calls, ops } = this.#parts;
    const ino = nodes.readHandle(args);
    const stats = await calls.run('statfs', ino, caller, (ctx) => ops.statfs(ino, ctx));
    writeMaybeAttributes(out, await nodes.attributesIfKnown(ino, caller));
    for (const blocks of [stats.blocks, stats.blocksFree, stats.blocksAvailable]) out.u64(blocks * stats.blockBytes);
    out.u64(stats.files).u64(stats.filesFree).u64(stats.filesFree);
    out.u32(0); // invarsec: may change at any time
  }

  async fsinfo(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes } = this.#parts;
    writeMaybeAttributes(out, await nodes.attributesIfKnown(nodes.readHandle(args), caller));
    const PREFERRED_LISTING_BYTES = 64 * 1024;
    const [SYMLINK, HOMOGENEOUS, CAN_SET_TIME] = [0x2, 0x8, 0x10];
    out.u32(TRANSFER_BYTES_MAX).u32(TRANSFER_BYTES_MAX).u32(4096);
    out.u32(TRANSFER_BYTES_MAX).u32(TRANSFER_BYTES_MAX).u32(4096);
    out.u32(PREFERRED_LISTING_BYTES).u64(FILE_BYTES_MAX);
    out.u32(0).u32(1); // time_delta: a nanosecond
    out.u32(SYMLINK | HOMOGENEOUS | CAN_SET_TIME);
  }

  async pathconf(args: XdrReader, caller: RpcCaller, out: XdrWriter): Promise<void> {
    const { nodes } = this.#parts;
    writeMaybeAttributes(out, await nodes.attributesIfKnown(nodes.readHandle(args), caller));
    const [LINKS_MAX, NAME_MAX] = [1, 255];
    out.u32(LINKS_MAX).u32(NAME_MAX);
    // no_trunc, chown_restricted, case_insensitive, case_preserving
    for (const flag of [true, true, false, true]) out.bool(flag);
  }

  /** @throws FsError EISDIR, EINVAL */
  #file(ino: Inode, caller: RpcCaller): Answer<Attributes> {
    return after(this.#parts.nodes.attributes(ino, caller), (attributes) => {
      if (attributes.kind === 'folder') throw new FsError('EISDIR');
      if (attributes.kind !== 'file') throw new FsError('EINVAL');
      return attributes;
    });
  }

  /** Saves the bytes of a file: they survive a power cut. */
  async #sync(ino: Inode, caller: RpcCaller, handle: Parameters<NfsParts['ops']['flush']>[1]): Promise<void> {
    const { calls, ops, opens } = this.#parts;
    opens.noteUncommitted(ino, false);
    try {
      await calls.run('flush', ino, caller, (ctx) => ops.flush(ino, handle, ctx));
      await calls.run('fsync', ino, caller, (ctx) => ops.fsync(ino, handle, false, ctx));
    } catch (error) {
      opens.noteUncommitted(ino, true);
      throw error;
    }
  }
}
