import { constants } from 'node:os';
import { FsError } from '../base/errors.ts';
import type { Inode } from '../base/vocabulary.ts';
import type {
  Attributes,
  AttributesReply,
  Entry,
  FileSlice,
  FileSystemStats,
  NegativeEntry,
  OpenDirectoryReply,
  OpenReply,
  ReadReply,
} from './binding.ts';
import type { DirectoryWriter } from './directory-writer.ts';
import { bytesOf } from './gathered-reply.ts';
import * as N from './kernel-addon.ts';
import type { NodeIds } from './node-ids.ts';
import * as P from './protocol.ts';
import { Opcode } from './protocol.ts';
import type { Request } from './request.ts';
import type { Wire } from './wire.ts';

/** Replies up to this length are encoded in the request's slot, and written after the batch. */
const IN_PLACE_BYTES_MAX = N.SMALL_SLOT_BYTES - P.OUT_HEADER_BYTES;

/** Errors of a reply without a waiting caller: interrupted; unmounted; aborted; abandoned by another thread. */
const WITHOUT_CALLER: ReadonlySet<number> = new Set([
  constants.errno.ENOENT,
  constants.errno.ENODEV,
  constants.errno.ECONNABORTED,
  constants.errno.ENOTCONN,
]);

export interface ReplyWriterDeps {
  readonly wire: Wire;
  readonly nodeIds: NodeIds;
  readonly connection: Pick<N.AddonConnection, 'send' | 'sendPieces' | 'scratchStart'>;
  /** Called with all attributes that are sent to the kernel. */
  readonly attributesSent: (attributes: Attributes | null) => void;
  /** A program gets a descriptor. `drops`: the kernel drops its pages of the inode. */
  readonly opened: (ino: Inode, isWriter: boolean, drops: boolean) => void;
  /** The pool replies to a READ: it counts as pending until `sent`. */
  readonly poolAnswers: (request: Request) => void;
  /** A READ got its reply later, or from the pool. `errno`: why its bytes could not be read (replied as EIO); 0 for success. */
  readonly sent: (request: Request, errno: number) => void;
  /** A listing was not delivered to the kernel. */
  readonly undelivered: (request: Request) => void;
}

/** Encodes replies: in the request's own slot, in the scratch area, or gathered from where their bytes are. */
export class ReplyWriter {
  readonly #deps: ReplyWriterDeps;
  readonly #wire: Wire;
  readonly #connection: ReplyWriterDeps['connection'];
  readonly #scratch: number;

  constructor(deps: ReplyWriterDeps) {
    this.#deps = deps;
    this.#wire = deps.wire;
    this.#connection = deps.connection;
    this.#scratch = deps.connection.scratchStart;
  }

  /**
   * @param out where to encode: the request's own slot, or the scratch area
   * @param later whether the request has left its slot
   * @returns its length; TAKEN when it was sent another way
   * @throws FsError for an answer that does not fit the request
   */
  write(request: Request, value: unknown, out: number, later: boolean): number {
    const wire = this.#wire;
    const body = out + P.OUT_HEADER_BYTES;
    let length = 0;
    switch (request.opcode) {
      case Opcode.LOOKUP:
      case Opcode.MKNOD:
      case Opcode.MKDIR:
      case Opcode.SYMLINK:
      case Opcode.LINK:
        request.value = value;
        length = this.#entry(request, body, value as Entry | NegativeEntry);
        this.#deps.attributesSent((value as Entry | NegativeEntry).attributes);
        break;
      case Opcode.CREATE:
      case Opcode.TMPFILE: {
        request.value = value;
        const { open, ...entry } = value as Entry & { open: OpenReply };
        length = this.#entry(request, body, entry);
        length += wire.open(body + length, this.#open(entry.attributes.ino, open, false), request.access);
        this.#deps.opened(entry.attributes.ino, request.isWriter, false); // it has no pages
        this.#deps.attributesSent(entry.attributes);
        break;
      }
      case Opcode.GETATTR:
      case Opcode.SETATTR: {
        const { attributes, attributeTimeoutMs } = value as AttributesReply;
        length = wire.attributesReply(body, attributes, attributeTimeoutMs);
        this.#deps.attributesSent(attributes);
        break;
      }
      case Opcode.OPEN:
        request.value = value;
        length = this.#opened(request, body, value as OpenReply);
        break;
      case Opcode.OPENDIR:
        request.value = value;
        length = wire.openDirectory(body, value as OpenDirectoryReply);
        break;
      case Opcode.READLINK:
        return this.#bytes(request, Buffer.from(value as string), out, later);
      case Opcode.READ:
        return this.#read(request, value as ReadReply, out, later);
      case Opcode.WRITE:
        wire.setU32(body, value as number);
        wire.setU32(body + 4, 0);
        length = 8;
        break;
      case Opcode.STATFS:
        length = wire.stats(body, value as FileSystemStats);
        break;
      case Opcode.LSEEK:
        wire.setU64(body, value as number);
        length = 8;
        break;
      case Opcode.READDIR:
      case Opcode.READDIRPLUS:
        return this.#listing(request, later);
      case Opcode.GETXATTR:
        return this.#xattr(request, value as Uint8Array, out, later);
      case Opcode.LISTXATTR:
        return this.#xattr(request, xattrList(value as readonly string[]), out, later);
      default:
        break; // the others reply with their errno alone
    }
    length += P.OUT_HEADER_BYTES;
    wire.header(out, length, 0, request.uniqueLow, request.uniqueHigh);
    return length;
  }

  #opened(request: Request, body: number, value: OpenReply): number {
    const open = this.#open(request.nodeid, value, request.isByFormer);
    this.#deps.opened(request.nodeid, request.isWriter, !open.keepCache && !open.directIo);
    return this.#wire.open(body, open, request.access);
  }

  /**
   * An open by a former node id bypasses the page cache: the pages belong to readers of the older file, and no notification about the new
   * one reaches them.
   */
  #open(ino: Inode, open: OpenReply, isByFormer: boolean): OpenReply {
    if (isByFormer) return { ...open, keepCache: false, directIo: true };
    return this.#deps.nodeIds.mayKeep(ino) ? open : { ...open, keepCache: false };
  }

  #entry(request: Request, at: number, entry: Entry | NegativeEntry): number {
    if (entry.attributes === null) return this.#wire.entry(at, entry);
    request.given = this.#deps.nodeIds.lookedUp(entry.attributes.ino);
    return this.#wire.entry(at, entry, request.given);
  }

  /** The reply to GETXATTR and LISTXATTR: the value, or its length if the caller has no room yet (size 0). */
  #xattr(request: Request, value: Uint8Array, out: number, later: boolean): number {
    if (request.limit > 0) {
      if (value.length > request.limit) throw new FsError('ERANGE');
      return this.#bytes(request, value, out, later);
    }
    this.#wire.setU32(out + P.OUT_HEADER_BYTES, value.length);
    this.#wire.setU32(out + P.OUT_HEADER_BYTES + 4, 0);
    this.#wire.header(out, P.OUT_HEADER_BYTES + 8, 0, request.uniqueLow, request.uniqueHigh);
    return P.OUT_HEADER_BYTES + 8;
  }

  #bytes(request: Request, value: Uint8Array, out: number, later: boolean): number {
    const fits = later || value.length <= IN_PLACE_BYTES_MAX;
    const at = fits ? out : this.#scratch;
    this.#wire.bytes.set(value, at + P.OUT_HEADER_BYTES);
    const length = P.OUT_HEADER_BYTES + value.length;
    this.#wire.header(at, length, 0, request.uniqueLow, request.uniqueHigh);
    if (fits) return length;
    this.#connection.send(at, length);
    return N.TAKEN;
  }

  #listing(request: Request, later: boolean): number {
    const sink = request.sink as DirectoryWriter;
    sink.copyTo(this.#wire, this.#scratch + P.OUT_HEADER_BYTES);
    const length = P.OUT_HEADER_BYTES + sink.usedBytes;
    this.#wire.header(this.#scratch, length, 0, request.uniqueLow, request.uniqueHigh);
    if (later) return length;
    if (this.#connection.send(this.#scratch, length) < 0) this.#deps.undelivered(request);
    return N.TAKEN;
  }

  /**
   * Copies small reads into the slot, and gathers others from where their bytes are. A reply of more pieces than the addon gathers (a file
   * that was written in scattered small pieces) is assembled first.
   */
  #read(request: Request, reply: ReadReply, out: number, later: boolean): number {
    const value = Array.isArray(reply) && reply.length === 1 ? (reply[0] as Uint8Array | FileSlice) : reply;
    if (value instanceof Uint8Array && value.length <= IN_PLACE_BYTES_MAX && value.length <= request.limit) {
      const length = P.OUT_HEADER_BYTES + value.length;
      this.#wire.bytes.set(value, out + P.OUT_HEADER_BYTES);
      this.#wire.header(out, length, 0, request.uniqueLow, request.uniqueHigh);
      return length;
    }
    const given: readonly (Uint8Array | FileSlice)[] = Array.isArray(value) ? value : [value as Uint8Array | FileSlice];
    let total = 0;
    for (const piece of given) total += piece.length;
    if (total > request.limit) {
      allSent(given);
      throw new FsError('EIO', `a read of ${request.limit} bytes returned ${total} bytes`);
    }
    if (given.length > N.PIECES_MAX) return this.#read(request, bytesOf(given), out, later);
    const pieces = given.map((piece) =>
      piece instanceof Uint8Array ? piece : Float64Array.of(piece.fd, piece.position, piece.length),
    );
    const result = this.#connection.sendPieces(request.uniqueLow, request.uniqueHigh, pieces, (errno) => {
      allSent(given);
      this.#deps.sent(request, errno);
    });
    if (result === 1) {
      if (!later) this.#deps.poolAnswers(request);
      return N.TAKEN;
    }
    allSent(given);
    // On any other failure (no memory, no descriptor, a closed one) reply with an error: the caller must not hang.
    if (result < 0 && !WITHOUT_CALLER.has(-result))
      throw new FsError('EIO', `the reply to a read could not be sent: errno ${-result}`);
    if (later) this.#deps.sent(request, 0);
    return N.TAKEN;
  }
}

/** Releases the sources of a reply's bytes. */
export function allSent(reply: ReadReply): void {
  const pieces = Array.isArray(reply) ? reply : [reply as Uint8Array | FileSlice];
  for (const piece of pieces) if (!(piece instanceof Uint8Array)) piece.sent?.();
}

/** The format of listxattr(2): each name with its NUL. */
function xattrList(names: readonly string[]): Uint8Array {
  return Buffer.from(names.map((name) => `${name}\0`).join(''));
}
