import type { Inode } from '../base/vocabulary.ts';
import type { OpContext } from './binding.ts';
import type { DirectoryWriter } from './directory-writer.ts';
import type { NodeIds, OlderAttributes } from './node-ids.ts';
import type { OpName, PendingOp } from './op-boundary.ts';
import * as P from './protocol.ts';
import type { Wire } from './wire.ts';

/** One request of the kernel: who asks, and what is needed to answer later. */
export class Request implements OpContext, PendingOp {
  readonly opcode: number;
  readonly uniqueLow: number;
  readonly uniqueHigh: number;
  readonly nodeid: Inode;
  /** Asked by a number from before the file was replaced: what it is for those who have it open so; null for all others. */
  readonly older: OlderAttributes | null;
  readonly uid: number;
  readonly gid: number;
  readonly pid: number;
  umask = 0;
  readonly startedMs: number;
  op: OpName = 'lookup';
  /** The other folder of a rename or link; 0: none. */
  otherNodeid = 0 as Inode;
  /** Bytes the caller takes at most: of READ, GETXATTR, LISTXATTR. */
  limit = 0;
  /** What an OPEN or CREATE is for. */
  access: 'read' | 'write' = 'write';
  sink: DirectoryWriter | null = null;
  /** What was answered, kept until the kernel took it. */
  value: unknown = undefined;
  /** By which number the answer gave out a lookup; 0: it gave none. */
  given = 0;
  /** Slots that hold the bytes of a WRITE that is not answered yet: [small, large]. */
  held: readonly [number, number] | null = null;
  /** Of a WRITE that is not answered yet and has a copy of its bytes. */
  copiedBytes = 0;
  readonly #nodeIds: NodeIds;
  readonly #number: number;
  #controller: AbortController | null = null;
  #aborted: Error | null = null;

  constructor(wire: Wire, at: number, nodeIds: NodeIds, startedMs: number) {
    this.opcode = wire.u32(at + P.IN_OPCODE);
    this.uniqueLow = wire.u32(at + P.IN_UNIQUE);
    this.uniqueHigh = wire.u32(at + P.IN_UNIQUE + 4);
    const nodeId = wire.u64(at + P.IN_NODEID);
    this.#nodeIds = nodeIds;
    this.#number = nodeId;
    this.nodeid = nodeIds.inodeOf(nodeId);
    this.older = nodeIds.olderOf(nodeId);
    this.uid = wire.u32(at + P.IN_UID);
    this.gid = wire.u32(at + P.IN_GID);
    this.pid = wire.u32(at + P.IN_PID);
    this.startedMs = startedMs;
  }

  get unique(): number {
    return this.uniqueLow + this.uniqueHigh * 0x1_0000_0000;
  }

  /** The inode that another number in it means. */
  inodeOf(nodeId: number): Inode {
    return this.#nodeIds.inodeOf(nodeId);
  }

  /** Whether it asks by a number that the name does not lead to any more. That may come to be so before it is answered. */
  get isByFormer(): boolean {
    return this.#nodeIds.isFormer(this.#number);
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
