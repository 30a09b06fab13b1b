import { constants } from 'node:os';
import { FsError } from '../base/errors.ts';
import type { HandleId, Inode } from '../base/vocabulary.ts';
import type {
  Answer,
  Attributes,
  AttributesReply,
  Entry,
  FileSlice,
  FileSystemOps,
  FileSystemStats,
  NegativeEntry,
  OpenDirectoryReply,
  OpenReply,
  ReadReply,
} from './binding.ts';
import type { CallerState } from './caller-signals.ts';
import { DirectoryWriter } from './directory-writer.ts';
import type { KernelInvalidator } from './invalidate.ts';
import * as N from './native.ts';
import type { OpBoundary } from './op-boundary.ts';
import * as P from './protocol.ts';
import { Opcode } from './protocol.ts';
import { Request } from './request.ts';
import { RequestReader } from './request-reader.ts';
import { Wire } from './wire.ts';

/** Replies up to this length are put together where the request stood, and written when the batch is done. */
const IN_PLACE_BYTES_MAX = N.SMALL_SLOT_BYTES - P.OUT_HEADER_BYTES;
/**
 * Waiting writes keep slots; when fewer than these are left, further ones get a copy of their bytes instead, so that what is known goes on
 * being answered. Copies are limited, too: past that the slots run out and the kernel queues (connection.c no longer polls).
 */
const SMALL_SLOTS_SPARE = 64;
const LARGE_SLOTS_SPARE = 8;
const COPIED_BYTES_MAX = 64 * 1024 * 1024;

/** What writing a reply says when nobody waits for it any more: interrupted; unmounted; aborted. */
const NOBODY_WAITS: ReadonlySet<number> = new Set([
  constants.errno.ENOENT,
  constants.errno.ENODEV,
  constants.errno.ECONNABORTED,
]);

/** Turns batches of requests into calls of FileSystemOps and their answers into replies. One per mount. */
export class LinuxSession {
  readonly #ops: FileSystemOps;
  readonly #boundary: OpBoundary;
  readonly #connection: N.AddonConnection;
  readonly #invalidator: KernelInvalidator;
  readonly #wire: Wire;
  readonly #reader: RequestReader;
  readonly #scratch: number;
  /** The requests of the batch at hand, by their place in it. */
  readonly #batch: (Request | null)[] = new Array(N.BATCH_MAX).fill(null);
  /** Requests without an answer yet, by `unique`, for INTERRUPT. */
  readonly #pending = new Map<number, Request>();
  #heldSlots = 0;
  #heldLargeSlots = 0;
  #copiedBytes = 0;
  readonly #smallSlots: number;
  readonly #largeSlots: number;
  readonly #callerState: (pid: number) => CallerState;
  readonly #agree: (body: number, out: number) => number;

  constructor(deps: {
    ops: FileSystemOps;
    boundary: OpBoundary;
    connection: N.AddonConnection;
    invalidator: KernelInvalidator;
    wire: Wire;
    smallSlots: number;
    largeSlots: number;
    callerState: (pid: number) => CallerState;
    /** Answers INIT: reads the offer at `body`, writes the agreement to `out`, returns its length. @throws FsError */
    agree: (body: number, out: number) => number;
  }) {
    this.#ops = deps.ops;
    this.#boundary = deps.boundary;
    this.#connection = deps.connection;
    this.#invalidator = deps.invalidator;
    this.#wire = deps.wire;
    this.#smallSlots = deps.smallSlots;
    this.#largeSlots = deps.largeSlots;
    this.#callerState = deps.callerState;
    this.#agree = deps.agree;
    this.#scratch = deps.connection.scratchStart;
    this.#reader = new RequestReader({
      ops: deps.ops,
      wire: deps.wire,
      attributesChanged: (ino) => deps.invalidator.inode(ino, -1, 0),
      makeWriter: (limit, wantsEntries) =>
        new DirectoryWriter({
          wire: this.#wire,
          wireOf: (region) => new Wire(region),
          start: this.#scratch + P.OUT_HEADER_BYTES,
          capacity: Math.min(limit, N.PAYLOAD_BYTES_MAX),
          wantsEntries,
        }),
    });
  }

  /** Answers the first `count` requests of the region's control area. Never throws. */
  batch(count: number): void {
    for (let i = 0; i < count; i++) {
      const item = i * N.ITEM_WORDS * 4;
      this.#batch[i] = null;
      try {
        this.#wire.setU32(item + N.ITEM_REPLY * 4, this.#serve(i, item));
      } catch (error) {
        // Not an operation's failure but a bug of the binding: the addon answers EIO.
        this.#boundary.failed('lookup', error, this.#boundary.nowMs(), { at: 'binding' });
      }
    }
  }

  /** Replies of the last batch that the kernel did not take (ENOENT: the caller was interrupted and is gone). */
  unsent(count: number): void {
    for (let i = 0; i < count; i++) {
      const request = this.#batch[i];
      if (request && this.#wire.u32((i * N.ITEM_WORDS + N.ITEM_ERRNO) * 4) !== 0)
        this.#takeBack(request, request.value);
    }
  }

  /** @returns what belongs into ITEM_REPLY */
  #serve(i: number, item: number): number {
    const wire = this.#wire;
    const at = wire.u32(item + N.ITEM_REQUEST * 4);
    switch (wire.u32(at + P.IN_OPCODE)) {
      case Opcode.FORGET:
        this.#forget(wire.u64(at + P.IN_NODEID) as Inode, wire.u64(at + P.IN_HEADER_BYTES));
        return N.TAKEN;
      case Opcode.BATCH_FORGET: {
        const count = wire.u32(at + P.IN_HEADER_BYTES);
        for (let k = 0, one = at + P.IN_HEADER_BYTES + 8; k < count; k++, one += 16) {
          this.#forget(wire.u64(one) as Inode, wire.u64(one + 8));
        }
        return N.TAKEN;
      }
      case Opcode.INTERRUPT:
        this.#interrupt(wire.u64(at + P.IN_HEADER_BYTES));
        return N.TAKEN;
    }

    const request = new Request(wire, at, this.#boundary.nowMs());
    this.#batch[i] = request;
    const out = wire.u32(item + N.ITEM_SLOT_START * 4);
    try {
      if (request.opcode === Opcode.INIT) {
        const length = P.OUT_HEADER_BYTES + this.#agree(at + P.IN_HEADER_BYTES, out + P.OUT_HEADER_BYTES);
        wire.header(out, length, 0, request.uniqueLow, request.uniqueHigh);
        return length;
      }
      const answer = this.#reader.call(request, at, wire.u32(item + N.ITEM_DATA * 4), this.#copiesWrites());
      if (answer instanceof Promise) {
        this.#wait(request, answer, item);
        return N.TAKEN;
      }
      const refusal = this.#reader.refusalOf(answer);
      if (refusal !== null) {
        wire.header(out, P.OUT_HEADER_BYTES, -refusal, request.uniqueLow, request.uniqueHigh);
        return P.OUT_HEADER_BYTES;
      }
      const length = this.#reply(request, answer, out, false);
      this.#boundary.succeeded(request.op, request.startedMs);
      return length;
    } catch (error) {
      const errno = this.#reader.refusalOf(error) ?? this.#failed(request, error);
      this.#takeBackListing(request);
      wire.header(out, P.OUT_HEADER_BYTES, -errno, request.uniqueLow, request.uniqueHigh);
      return P.OUT_HEADER_BYTES;
    }
  }

  #failed(request: Request, error: unknown): number {
    return this.#boundary.failed(request.op, error, request.startedMs, request.fields()).code;
  }

  /** Bytes of waiting writes that were copied out of their slots. */
  get copiedBytes(): number {
    return this.#copiedBytes;
  }

  #copiesWrites(): boolean {
    if (
      this.#heldSlots <= this.#smallSlots - SMALL_SLOTS_SPARE &&
      this.#heldLargeSlots <= this.#largeSlots - LARGE_SLOTS_SPARE
    )
      return false;
    return this.#copiedBytes < COPIED_BYTES_MAX;
  }

  /** The answer comes later: the thread goes on, the slot is free again unless it holds the bytes of a WRITE. */
  #wait(request: Request, promise: Promise<unknown>, item: number): void {
    const wire = this.#wire;
    request.sink?.detach();
    if (request.opcode === Opcode.WRITE) {
      if (this.#copiesWrites()) {
        request.copiedBytes = wire.u32(wire.u32(item + N.ITEM_REQUEST * 4) + P.IN_HEADER_BYTES + 16); // fuse_write_in.size
        this.#copiedBytes += request.copiedBytes;
      } else {
        request.held = [wire.u32(item + N.ITEM_SLOT * 4), wire.u32(item + N.ITEM_LARGE * 4)];
        this.#heldSlots++;
        if (request.held[1] !== 0) this.#heldLargeSlots++;
        wire.setU32(item + N.ITEM_HELD * 4, 1);
      }
    }
    this.#pending.set(request.unique, request);
    this.#invalidator.began(request.nodeid);
    if (request.otherNodeid !== 0) this.#invalidator.began(request.otherNodeid);
    this.#boundary.watch(request, promise, {
      answered: (value) => this.#answerLater(request, value),
      refused: (error) => {
        this.#takeBackListing(request);
        this.#sendError(request, error.code);
        // The file system may still be using the bytes of a WRITE that it did not finish in time.
        void promise.then(
          () => this.#releaseSlots(request),
          () => this.#releaseSlots(request),
        );
        this.#finish(request);
      },
      late: (value) => {
        if (request.opcode === Opcode.READ) allSent(value as ReadReply);
        else this.#takeBack(request, value);
      },
    });
  }

  #answerLater(request: Request, value: unknown): void {
    this.#releaseSlots(request);
    let length: number;
    try {
      length = this.#reply(request, value, this.#scratch, true);
    } catch (error) {
      this.#takeBack(request, value);
      this.#sendError(request, this.#failed(request, error));
      this.#finish(request);
      return;
    }
    if (length === N.TAKEN) return; // READ finishes by itself
    if (this.#connection.send(this.#scratch, length) < 0) this.#takeBack(request, value);
    this.#finish(request);
  }

  #sendError(request: Request, errno: number): void {
    this.#wire.header(this.#scratch, P.OUT_HEADER_BYTES, -errno, request.uniqueLow, request.uniqueHigh);
    this.#connection.send(this.#scratch, P.OUT_HEADER_BYTES);
  }

  #finish(request: Request): void {
    if (!this.#pending.delete(request.unique)) return;
    this.#invalidator.ended(request.nodeid);
    if (request.otherNodeid !== 0) this.#invalidator.ended(request.otherNodeid);
  }

  #releaseSlots(request: Request): void {
    this.#copiedBytes -= request.copiedBytes;
    request.copiedBytes = 0;
    if (request.held === null) return;
    this.#connection.release(request.held[0], request.held[1]);
    if (request.held[1] !== 0) this.#heldLargeSlots--;
    request.held = null;
    this.#heldSlots--;
  }

  /**
   * Puts the reply together at `out`: the request's own slot, or the scratch area.
   *
   * @returns its length; TAKEN when it was sent by other means
   */
  #reply(request: Request, value: unknown, out: number, later: boolean): number {
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
        length = wire.entry(body, value as Entry | NegativeEntry);
        this.#reader.noteAttributes((value as Entry | NegativeEntry).attributes);
        break;
      case Opcode.CREATE:
        request.value = value;
        length = wire.entry(body, value as Entry);
        length += wire.open(body + length, (value as Entry & { open: OpenReply }).open, request.access);
        this.#reader.noteAttributes((value as Entry).attributes);
        break;
      case Opcode.GETATTR:
      case Opcode.SETATTR: {
        const { attributes, attributeTimeoutMs } = value as AttributesReply;
        length = wire.attributesReply(body, attributes, attributeTimeoutMs);
        this.#reader.noteAttributes(attributes);
        break;
      }
      case Opcode.OPEN:
        request.value = value;
        length = wire.open(body, value as OpenReply, request.access);
        break;
      case Opcode.OPENDIR:
        request.value = value;
        length = wire.openDirectory(body, value as OpenDirectoryReply);
        break;
      case Opcode.READLINK:
        return this.#replyBytes(request, Buffer.from(value as string), out, later);
      case Opcode.READ:
        return this.#replyRead(request, value as ReadReply, out, later);
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
        return this.#replyListing(request, later);
      case Opcode.GETXATTR:
        return this.#replyXattr(request, value as Uint8Array, out, later);
      case Opcode.LISTXATTR:
        return this.#replyXattr(request, xattrList(value as readonly string[]), out, later);
      default:
        break; // the others are answered by their errno alone
    }
    length += P.OUT_HEADER_BYTES;
    wire.header(out, length, 0, request.uniqueLow, request.uniqueHigh);
    return length;
  }

  /** What GETXATTR and LISTXATTR answer: the value, or its length when the caller has no room yet (size 0). */
  #replyXattr(request: Request, value: Uint8Array, out: number, later: boolean): number {
    if (request.limit > 0) {
      if (value.length > request.limit) throw new FsError('ERANGE');
      return this.#replyBytes(request, value, out, later);
    }
    this.#wire.setU32(out + P.OUT_HEADER_BYTES, value.length);
    this.#wire.setU32(out + P.OUT_HEADER_BYTES + 4, 0);
    this.#wire.header(out, P.OUT_HEADER_BYTES + 8, 0, request.uniqueLow, request.uniqueHigh);
    return P.OUT_HEADER_BYTES + 8;
  }

  #replyBytes(request: Request, value: Uint8Array, out: number, later: boolean): number {
    const fits = later || value.length <= IN_PLACE_BYTES_MAX;
    const at = fits ? out : this.#scratch;
    this.#wire.bytes.set(value, at + P.OUT_HEADER_BYTES);
    const length = P.OUT_HEADER_BYTES + value.length;
    this.#wire.header(at, length, 0, request.uniqueLow, request.uniqueHigh);
    if (fits) return length;
    this.#connection.send(at, length);
    return N.TAKEN;
  }

  #replyListing(request: Request, later: boolean): number {
    const sink = request.sink as DirectoryWriter;
    sink.copyTo(this.#wire, this.#scratch + P.OUT_HEADER_BYTES);
    const length = P.OUT_HEADER_BYTES + sink.usedBytes;
    this.#wire.header(this.#scratch, length, 0, request.uniqueLow, request.uniqueHigh);
    if (later) return length;
    if (this.#connection.send(this.#scratch, length) < 0) this.#takeBackListing(request);
    return N.TAKEN;
  }

  /** Small reads are copied into the slot; others are gathered from where their bytes are. */
  #replyRead(request: Request, reply: ReadReply, out: number, later: boolean): number {
    const value = Array.isArray(reply) && reply.length === 1 ? (reply[0] as Uint8Array | FileSlice) : reply;
    if (value instanceof Uint8Array && value.length <= IN_PLACE_BYTES_MAX && value.length <= request.limit) {
      const length = P.OUT_HEADER_BYTES + value.length;
      this.#wire.bytes.set(value, out + P.OUT_HEADER_BYTES);
      this.#wire.header(out, length, 0, request.uniqueLow, request.uniqueHigh);
      return length;
    }
    const given: readonly (Uint8Array | FileSlice)[] = Array.isArray(value) ? value : [value as Uint8Array | FileSlice];
    const pieces: (Uint8Array | Float64Array)[] = [];
    let total = 0;
    for (const piece of given) {
      total += piece.length;
      pieces.push(piece instanceof Uint8Array ? piece : Float64Array.of(piece.fd, piece.position, piece.length));
    }
    const sent = (): void => allSent(given);
    if (total > request.limit) {
      sent();
      throw new FsError('EIO', `a read of ${request.limit} bytes was answered with ${total}`);
    }
    const result = this.#connection.sendPieces(request.uniqueLow, request.uniqueHigh, pieces, (errno) => {
      if (errno !== 0) {
        const cause = new Error(`the file behind the answer could not be read: errno ${errno}`);
        this.#boundary.failed('read', cause, request.startedMs, request.fields());
      }
      sent();
      this.#finish(request);
    });
    if (result === 1) {
      if (later) return N.TAKEN;
      // The pool reads it: until then it counts as unanswered, as far as notifications are concerned.
      this.#pending.set(request.unique, request);
      this.#invalidator.began(request.nodeid);
      return N.TAKEN;
    }
    sent();
    // Whatever else it was (no memory, no descriptor, one that is closed): the caller must not wait for ever.
    if (result < 0 && !NOBODY_WAITS.has(-result))
      throw new FsError('EIO', `the pieces of a read were refused: errno ${-result}`);
    if (later) this.#finish(request);
    return N.TAKEN;
  }

  #forget(ino: Inode, count: number): void {
    this.#reader.forgotten(ino);
    const startedMs = this.#boundary.nowMs();
    try {
      this.#ops.forget(ino, count);
      this.#boundary.succeeded('forget', startedMs);
    } catch (error) {
      this.#boundary.failed('forget', error, startedMs, { ino });
    }
  }

  /** FUSE_INTERRUPT of a request that is unknown was answered already. */
  #interrupt(unique: number): void {
    const request = this.#pending.get(unique);
    if (request === undefined) return;
    this.#boundary.interrupt(request, () => this.#callerState(request.pid));
  }

  /** The kernel will never learn of this answer: what it handed out is returned. */
  #takeBack(request: Request, value: unknown): void {
    const ctx = request;
    const quietly = (op: 'release' | 'releasedir', run: () => Answer<void>): void => {
      const failed = (error: unknown): void => {
        this.#boundary.failed(op, error, request.startedMs, request.fields());
      };
      try {
        const answer = run();
        if (answer instanceof Promise) answer.catch(failed);
      } catch (error) {
        failed(error);
      }
    };
    switch (request.opcode) {
      case Opcode.LOOKUP:
      case Opcode.MKNOD:
      case Opcode.MKDIR:
      case Opcode.SYMLINK:
      case Opcode.LINK:
      case Opcode.CREATE: {
        const attributes: Attributes | null = (value as Entry | NegativeEntry | undefined)?.attributes ?? null;
        if (attributes === null) return;
        if (request.opcode === Opcode.CREATE) {
          const handle: HandleId = (value as { open: OpenReply }).open.handle;
          quietly('release', () => this.#ops.release(attributes.ino, handle, ctx));
        }
        this.#forget(attributes.ino, 1);
        return;
      }
      case Opcode.OPEN:
        quietly('release', () => this.#ops.release(request.nodeid, (value as OpenReply).handle, ctx));
        return;
      case Opcode.OPENDIR:
        quietly('releasedir', () => this.#ops.releasedir(request.nodeid, (value as OpenDirectoryReply).handle, ctx));
        return;
      case Opcode.READDIRPLUS:
        this.#takeBackListing(request);
        return;
    }
  }

  #takeBackListing(request: Request): void {
    const { sink } = request;
    if (sink === null) return;
    for (const ino of sink.lookups.splice(0)) this.#forget(ino, 1);
  }
}

/** The bytes of a reply are no longer needed where they lie. */
function allSent(reply: ReadReply): void {
  const pieces = Array.isArray(reply) ? reply : [reply as Uint8Array | FileSlice];
  for (const piece of pieces) if (!(piece instanceof Uint8Array)) piece.sent?.();
}

/** listxattr(2)'s form: each name with its NUL. */
function xattrList(names: readonly string[]): Uint8Array {
  return Buffer.from(names.map((name) => `${name}\0`).join(''));
}
