import type { ContentId, Inode } from '../base/vocabulary.ts';
import type { OpContext } from './binding.ts';
import type { DirectoryWriter } from './directory-writer.ts';
import type { HandoverState, ServedRequest } from './handover-state.ts';
import type { NodeIds, OlderAttributes } from './node-ids.ts';
import type { OpName, PendingOp } from './op-boundary.ts';
import * as P from './protocol.ts';
import type { Wire } from './wire.ts';

/** FUSE_UNIQUE_RESEND (bit 63 of `unique`): the kernel sends again what a predecessor of this process has read. The reply carries the bit too. */
const RESENT = 0x8000_0000;

/** A request id without the bit of a resent request: INTERRUPT and the resent request name the same one. */
export function uniqueAt(wire: Wire, at: number): number {
  return wire.u32(at) + ((wire.u32(at + 4) & ~RESENT) >>> 0) * 0x1_0000_0000;
}

/** One request of the kernel: its caller, and the data for a later reply. */
export class Request implements OpContext, PendingOp, ServedRequest {
  readonly opcode: number;
  readonly uniqueLow: number;
  /** As received, for the reply. */
  readonly uniqueHigh: number;
  readonly unique: number;
  readonly nodeId: number;
  readonly nodeid: Inode;
  /** For a request by the node id of a replaced file: the older attributes; null for all others. */
  readonly older: OlderAttributes | null;
  readonly uid: number;
  readonly gid: number;
  readonly pid: number;
  umask = 0;
  readonly startedMs: number;
  op: OpName = 'lookup';
  /** The other folder of a rename or link; 0: none. */
  otherNodeid = 0 as Inode;
  /** The most bytes that the caller accepts: of READ, GETXATTR, LISTXATTR; the bytes of a WRITE. */
  limit = 0;
  /** Of a READ or WRITE; of an append, where the kernel takes the end to be. */
  offset = 0;
  /** The access mode of an OPEN or CREATE. */
  access: 'read' | 'write' = 'write';
  /** Whether the descriptor of an OPEN, CREATE, TMPFILE or RELEASE may write. */
  isWriter = false;
  sink: DirectoryWriter | null = null;
  /** The answer, kept until the kernel accepted it. */
  value: unknown = undefined;
  /** The node id of the lookup in the reply; 0 without one. */
  given = 0;
  /** A predecessor of this process has read the request, and perhaps answered it: nothing is taken back if the kernel does not accept the reply. */
  isInherited = false;
  /** Slots that hold the request, or the bytes of a pending WRITE: [small, large]. */
  held: readonly [number, number] | null = null;
  /** Size of the copied bytes of a pending WRITE. */
  copiedBytes = 0;
  readonly #nodeIds: NodeIds;
  readonly #handover: HandoverState | null;
  #controller: AbortController | null = null;
  #aborted: Error | null = null;

  constructor(wire: Wire, at: number, nodeIds: NodeIds, startedMs: number, handover: HandoverState | null = null) {
    this.#handover = handover;
    this.opcode = wire.u32(at + P.IN_OPCODE);
    this.uniqueLow = wire.u32(at + P.IN_UNIQUE);
    this.uniqueHigh = wire.u32(at + P.IN_UNIQUE + 4);
    this.unique = uniqueAt(wire, at + P.IN_UNIQUE);
    const nodeId = wire.u64(at + P.IN_NODEID);
    this.#nodeIds = nodeIds;
    this.nodeId = nodeId;
    this.nodeid = nodeIds.inodeOf(nodeId);
    this.older = nodeIds.olderOf(nodeId);
    this.uid = wire.u32(at + P.IN_UID);
    this.gid = wire.u32(at + P.IN_GID);
    this.pid = wire.u32(at + P.IN_PID);
    this.startedMs = startedMs;
  }

  /** A predecessor of this process may have carried it out. */
  get isRepeated(): boolean {
    return this.isInherited || (this.uniqueHigh & RESENT) !== 0;
  }

  during<T>(act: () => T): T {
    const handover = this.#handover;
    if (handover === null) return act();
    handover.begin(this);
    try {
      return act();
    } finally {
      handover.end();
    }
  }

  appends(content: ContentId): boolean {
    return this.#handover === null || this.#handover.drafts.appends(this.unique, content);
  }

  appendFailed(content: ContentId): void {
    this.#handover?.drafts.appendFailed(content);
  }

  /** The inode of another node id in the request. */
  inodeOf(nodeId: number): Inode {
    return this.#nodeIds.inodeOf(nodeId);
  }

  /** Whether the name no longer leads to the node id of the request. This may change before the reply. */
  get isByFormer(): boolean {
    return this.#nodeIds.isFormer(this.nodeId);
  }

  get signal(): AbortSignal {
    if (this.#controller === null) {
      this.#controller = new AbortController();
      if (this.#aborted !== null) this.#controller.abort(this.#aborted);
    }
    return this.#controller.signal;
  }

  abort(reason: Error): void {
    this.#aborted ??= reason;
    this.#controller?.abort(this.#aborted);
  }

  fields(): Record<string, unknown> {
    return { ino: this.nodeid, pid: this.pid };
  }
}
