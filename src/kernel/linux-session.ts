import { FsError } from '../base/errors.ts';
import type { CallsOfHelper, FileSystemOps, ReadReply } from './binding.ts';
import type { CallerState } from './caller-signals.ts';
import { DirectoryWriter } from './directory-writer.ts';
import type { HandoverState } from './handover-state.ts';
import type { KernelInvalidator } from './invalidate.ts';
import * as N from './kernel-addon.ts';
import type { NodeIds } from './node-ids.ts';
import type { OpBoundary } from './op-boundary.ts';
import * as P from './protocol.ts';
import { Opcode } from './protocol.ts';
import { allSent, ReplyWriter } from './reply-writer.ts';
import { Request, uniqueAt } from './request.ts';
import { RequestReader } from './request-reader.ts';
import { UndeliveredReplies } from './undelivered-replies.ts';
import { Wire } from './wire.ts';

/**
 * Waiting writes hold slots. When fewer than these are free, further writes get a copy of their bytes instead, so that operations on
 * known files are still served. Copies are limited, too: beyond that the slots run out and the kernel queues (connection.c stops polling).
 */
const SMALL_SLOTS_SPARE = 64;
const LARGE_SLOTS_SPARE = 8;
const COPIED_BYTES_MAX = 64 * 1024 * 1024;

/** Decodes batches of requests, calls FileSystemOps, and encodes the replies. One per mount. */
export class LinuxSession {
  readonly #boundary: OpBoundary;
  readonly #connection: N.AddonConnection;
  readonly #invalidator: KernelInvalidator;
  readonly #wire: Wire;
  readonly #nodeIds: NodeIds;
  readonly #reader: RequestReader;
  readonly #replies: ReplyWriter;
  readonly #undelivered: UndeliveredReplies;
  readonly #scratch: number;
  /** The requests of the current batch, by index. */
  readonly #batch: (Request | null)[] = new Array(N.BATCH_MAX).fill(null);
  /** Requests without a reply yet, by `unique`, for INTERRUPT. */
  readonly #pending = new Map<number, Request>();
  #heldSlots = 0;
  #heldLargeSlots = 0;
  #copiedBytes = 0;
  readonly #smallSlots: number;
  readonly #largeSlots: number;
  readonly #callerState: (pid: number) => CallerState;
  readonly #agree: (body: number, out: number) => number;
  readonly #handover: HandoverState | null;

  constructor(deps: {
    ops: FileSystemOps;
    helper?: CallsOfHelper | null;
    boundary: OpBoundary;
    connection: N.AddonConnection;
    invalidator: KernelInvalidator;
    wire: Wire;
    nodeIds: NodeIds;
    smallSlots: number;
    largeSlots: number;
    callerState: (pid: number) => CallerState;
    /** Replies to INIT: reads the offer at `body`, writes the agreement to `out`, returns its length. @throws FsError */
    agree: (body: number, out: number) => number;
    /** What a successor of this process needs; null without a keeper. */
    handover?: HandoverState | null;
  }) {
    this.#handover = deps.handover ?? null;
    this.#boundary = deps.boundary;
    this.#connection = deps.connection;
    this.#invalidator = deps.invalidator;
    this.#wire = deps.wire;
    this.#nodeIds = deps.nodeIds;
    this.#smallSlots = deps.smallSlots;
    this.#largeSlots = deps.largeSlots;
    this.#callerState = deps.callerState;
    this.#agree = deps.agree;
    this.#scratch = deps.connection.scratchStart;
    this.#reader = new RequestReader({
      ops: deps.ops,
      helper: deps.helper ?? null,
      wire: deps.wire,
      attributesChanged: (ino) => deps.invalidator.inode(ino, -1, 0),
      bytesChanged: (ino) => deps.invalidator.inode(ino, 0, 0),
      makeWriter: (limit, wantsEntries) =>
        new DirectoryWriter({
          wire: this.#wire,
          wireOf: (region) => new Wire(region),
          nodeIds: this.#nodeIds,
          start: this.#scratch + P.OUT_HEADER_BYTES,
          capacity: Math.min(limit, N.PAYLOAD_BYTES_MAX),
          wantsEntries,
        }),
    });
    this.#undelivered = new UndeliveredReplies({
      ops: deps.ops,
      boundary: deps.boundary,
      nodeIds: deps.nodeIds,
      forgotten: (ino) => this.#reader.forgotten(ino),
    });
    this.#replies = new ReplyWriter({
      wire: deps.wire,
      nodeIds: deps.nodeIds,
      connection: deps.connection,
      attributesSent: (attributes) => this.#reader.noteAttributes(attributes),
      opened: (ino, isWriter, drops) => deps.invalidator.opened(ino, isWriter, drops),
      poolAnswers: (request) => this.#began(request),
      sent: (request, errno) => this.#readSent(request, errno),
      undelivered: (request) => this.#takeBack(request, undefined),
    });
  }

  /** Serves the first `count` requests of the region's control area. Never throws. */
  batch(count: number): void {
    for (let i = 0; i < count; i++) {
      const item = i * N.ITEM_WORDS * 4;
      this.#batch[i] = null;
      try {
        this.#wire.setU32(item + N.ITEM_REPLY * 4, this.#serve(i, item));
      } catch (error) {
        // Not a failed operation but a bug of the binding: the addon replies EIO.
        this.#boundary.failed('lookup', error, this.#boundary.nowMs(), { at: 'binding' });
      }
    }
  }

  /** Replies of the last batch that the kernel did not accept (ENOENT: the caller was interrupted and is gone). */
  unsent(count: number): void {
    for (let i = 0; i < count; i++) {
      const request = this.#batch[i];
      if (request && this.#wire.u32((i * N.ITEM_WORDS + N.ITEM_ERRNO) * 4) !== 0)
        this.#takeBack(request, request.value);
    }
  }

  /** @returns the value of ITEM_REPLY */
  #serve(i: number, item: number): number {
    const wire = this.#wire;
    const at = wire.u32(item + N.ITEM_REQUEST * 4);
    switch (wire.u32(at + P.IN_OPCODE)) {
      case Opcode.FORGET:
        this.#forget(wire.u64(at + P.IN_NODEID), wire.u64(at + P.IN_HEADER_BYTES));
        return N.TAKEN;
      case Opcode.BATCH_FORGET: {
        const count = wire.u32(at + P.IN_HEADER_BYTES);
        for (let k = 0, one = at + P.IN_HEADER_BYTES + 8; k < count; k++, one += 16) {
          this.#forget(wire.u64(one), wire.u64(one + 8));
        }
        return N.TAKEN;
      }
      case Opcode.INTERRUPT:
        this.#interrupt(uniqueAt(wire, at + P.IN_HEADER_BYTES));
        return N.TAKEN;
    }

    const request = new Request(wire, at, this.#nodeIds, this.#boundary.nowMs(), this.#handover);
    request.isInherited = wire.u32(item + N.ITEM_INHERITED * 4) !== 0;
    this.#batch[i] = request;
    const out = wire.u32(item + N.ITEM_OUT * 4);
    try {
      if (request.opcode === Opcode.INIT) {
        const length = P.OUT_HEADER_BYTES + this.#agree(at + P.IN_HEADER_BYTES, out + P.OUT_HEADER_BYTES);
        wire.header(out, length, 0, request.uniqueLow, request.uniqueHigh);
        return length;
      }
      const data = wire.u32(item + N.ITEM_DATA * 4);
      const answer = this.#afterPages(
        request,
        this.#handover === null
          ? this.#reader.call(request, at, data, this.#copiesWrites())
          : this.#recorded(this.#handover, request, at, data),
      );
      if (answer instanceof Promise) {
        this.#wait(request, answer, item);
        return N.TAKEN;
      }
      const refusal = this.#reader.refusalOf(answer);
      if (refusal !== null) {
        wire.header(out, P.OUT_HEADER_BYTES, -refusal, request.uniqueLow, request.uniqueHigh);
        return P.OUT_HEADER_BYTES;
      }
      const length = this.#replies.write(request, answer, out, false);
      // The pool answers.
      if (this.#keepsRequests && length === N.TAKEN && this.#pending.has(request.unique)) this.#hold(request, item);
      this.#boundary.succeeded(request.op, request.startedMs);
      return length;
    } catch (error) {
      const errno = this.#reader.refusalOf(error) ?? this.#failed(request, error);
      this.#undelivered.listing(request);
      wire.header(out, P.OUT_HEADER_BYTES, -errno, request.uniqueLow, request.uniqueHigh);
      return P.OUT_HEADER_BYTES;
    }
  }

  /** @returns the answer, as soon as it may be replied (`DroppedPages`) */
  #afterPages(request: Request, answer: unknown): unknown {
    const invalidator = this.#invalidator;
    const { opcode, nodeid, offset, limit } = request;
    if (opcode === Opcode.RELEASE && request.isWriter) invalidator.closedByWriter(nodeid);
    if (opcode === Opcode.READ && invalidator.hasDropped) invalidator.read(nodeid, offset, limit);
    if (opcode !== Opcode.WRITE) return answer;
    if (answer instanceof Promise) return answer.then((value) => this.#afterWrite(request, value));
    return invalidator.hasDropped ? this.#afterWrite(request, answer) : answer;
  }

  #afterWrite({ nodeid, offset, limit }: Request, value: unknown): unknown {
    const dropped = this.#invalidator.written(nodeid, offset, limit);
    return dropped === null ? value : dropped.then(() => value);
  }

  #recorded(handover: HandoverState, request: Request, at: number, data: number): unknown {
    handover.begin(request);
    try {
      if (request.isRepeated) return this.#again(handover, request, at, data);
      return this.#reader.call(request, at, data, this.#copiesWrites());
    } finally {
      handover.end();
    }
  }

  /** A request that an earlier process has read and not answered. It may have carried it out. */
  #again(handover: HandoverState, request: Request, at: number, data: number): unknown {
    const opened = handover.undelivered(request);
    if (opened !== null) {
      const reply = this.#reader.reopened(request, opened.ino, opened.handle);
      if (reply !== null) return reply;
      this.#undelivered.handle(request, opened.handle);
    }
    const ino = handover.madeBy(request);
    if (ino !== null) return this.#reader.made(request, at, ino);
    if (handover.isPoison(request)) throw new FsError('EIO', 'earlier processes of this mount died of this request');
    return this.#reader.call(request, at, data, this.#copiesWrites());
  }

  /** The kernel did not accept the reply. */
  #takeBack(request: Request, value: unknown): void {
    if (!request.isInherited) this.#undelivered.answer(request, value);
  }

  #forget(nodeId: number, count: number): void {
    this.#undelivered.forget(this.#nodeIds.forgotten(nodeId, count), count);
  }

  #failed(request: Request, error: unknown): number {
    return this.#boundary.failed(request.op, error, request.startedMs, request.fields()).code;
  }

  /** Bytes of waiting writes that were copied out of their slots. */
  get copiedBytes(): number {
    return this.#copiedBytes;
  }

  get #keepsRequests(): boolean {
    return this.#handover?.keepsRequests === true;
  }

  #copiesWrites(): boolean {
    if (this.#keepsRequests) return false;
    if (
      this.#heldSlots <= this.#smallSlots - SMALL_SLOTS_SPARE &&
      this.#heldLargeSlots <= this.#largeSlots - LARGE_SLOTS_SPARE
    )
      return false;
    return this.#copiedBytes < COPIED_BYTES_MAX;
  }

  /** The slots of the request stay as they are until its end. */
  #hold(request: Request, item: number): void {
    const wire = this.#wire;
    request.held = [wire.u32(item + N.ITEM_SLOT * 4), wire.u32(item + N.ITEM_LARGE * 4)];
    this.#heldSlots++;
    if (request.held[1] !== 0) this.#heldLargeSlots++;
    wire.setU32(item + N.ITEM_HELD * 4, 1);
  }

  /** The reply comes later: the thread continues, the slot is free again unless it holds the bytes of a WRITE, or a successor needs it. */
  #wait(request: Request, promise: Promise<unknown>, item: number): void {
    const wire = this.#wire;
    request.sink?.detach();
    if (request.opcode === Opcode.WRITE && this.#copiesWrites()) {
      request.copiedBytes = wire.u32(wire.u32(item + N.ITEM_REQUEST * 4) + P.IN_HEADER_BYTES + 16); // fuse_write_in.size
      this.#copiedBytes += request.copiedBytes;
    } else if (request.opcode === Opcode.WRITE || this.#keepsRequests) {
      this.#hold(request, item);
    }
    this.#began(request);
    this.#boundary.watch(request, promise, {
      answered: (value) => this.#answerLater(request, value),
      refused: (error) => {
        this.#undelivered.listing(request);
        this.#sendError(request, error.code);
        if (request.held !== null) this.#connection.answered(request.held[0]);
        // The file system may still use the bytes of a WRITE that timed out.
        void promise.then(
          () => this.#releaseSlots(request),
          () => this.#releaseSlots(request),
        );
        this.#ended(request);
      },
      late: (value) => {
        if (request.opcode === Opcode.READ) allSent(value as ReadReply);
        else this.#undelivered.answer(request, value);
      },
    });
    // The INTERRUPT of its caller may have gone to the earlier process.
    if (request.isInherited) this.#boundary.interrupt(request, () => this.#callerState(request.pid));
  }

  #answerLater(request: Request, value: unknown): void {
    let length: number;
    try {
      length = this.#replies.write(request, value, this.#scratch, true);
    } catch (error) {
      this.#undelivered.answer(request, value);
      this.#sendError(request, this.#failed(request, error));
      this.#finish(request);
      return;
    }
    if (length === N.TAKEN) return; // READ finishes itself
    if (this.#connection.send(this.#scratch, length) < 0) this.#takeBack(request, value);
    this.#finish(request);
  }

  #sendError(request: Request, errno: number): void {
    this.#wire.header(this.#scratch, P.OUT_HEADER_BYTES, -errno, request.uniqueLow, request.uniqueHigh);
    this.#connection.send(this.#scratch, P.OUT_HEADER_BYTES);
  }

  /** The request has no reply yet: notifications about its inodes must wait. */
  #began(request: Request): void {
    this.#pending.set(request.unique, request);
    this.#invalidator.began(request.nodeid);
    if (request.otherNodeid !== 0) this.#invalidator.began(request.otherNodeid);
  }

  #readSent(request: Request, errno: number): void {
    if (errno !== 0) {
      const cause = new Error(`cached bytes could not be read for the reply: errno ${errno}`);
      this.#boundary.failed('read', cause, request.startedMs, request.fields());
    }
    this.#finish(request);
  }

  #finish(request: Request): void {
    this.#releaseSlots(request);
    this.#ended(request);
  }

  #ended(request: Request): void {
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

  /** FUSE_INTERRUPT; an unknown request already has its reply. */
  #interrupt(unique: number): void {
    const request = this.#pending.get(unique);
    if (request === undefined) return;
    this.#boundary.interrupt(request, () => this.#callerState(request.pid));
  }
}
