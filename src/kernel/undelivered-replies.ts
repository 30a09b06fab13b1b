import type { HandleId, Inode } from '../base/vocabulary.ts';
import type { Answer, Entry, FileSystemOps, NegativeEntry, OpenDirectoryReply, OpenReply } from './binding.ts';
import type { NodeIds } from './node-ids.ts';
import type { OpBoundary } from './op-boundary.ts';
import { Opcode } from './protocol.ts';
import type { Request } from './request.ts';

/** Undoes the lookups and handles of a reply that did not reach the kernel. */
export class UndeliveredReplies {
  readonly #ops: FileSystemOps;
  readonly #boundary: OpBoundary;
  readonly #nodeIds: NodeIds;
  readonly #forgotten: (ino: Inode) => void;

  constructor(deps: {
    ops: FileSystemOps;
    boundary: OpBoundary;
    nodeIds: NodeIds;
    /** Called with every inode that the kernel forgets, or never received. */
    forgotten: (ino: Inode) => void;
  }) {
    this.#ops = deps.ops;
    this.#boundary = deps.boundary;
    this.#nodeIds = deps.nodeIds;
    this.#forgotten = deps.forgotten;
  }

  /** Undoes the answer to any kind of request. */
  answer(request: Request, value: unknown): void {
    switch (request.opcode) {
      case Opcode.LOOKUP:
      case Opcode.MKNOD:
      case Opcode.MKDIR:
      case Opcode.SYMLINK:
      case Opcode.LINK:
      case Opcode.CREATE:
      case Opcode.TMPFILE: {
        const attributes = (value as Entry | NegativeEntry | undefined)?.attributes ?? null;
        if (attributes === null) return;
        if (request.opcode === Opcode.CREATE || request.opcode === Opcode.TMPFILE) {
          const handle: HandleId = (value as { open: OpenReply }).open.handle;
          this.#quietly('release', request, () => this.#ops.release(attributes.ino, handle, request));
        }
        if (request.given !== 0) this.#nodeIds.undelivered(request.given);
        this.forget(attributes.ino, 1);
        return;
      }
      case Opcode.OPEN: {
        const { handle } = value as OpenReply;
        this.#quietly('release', request, () => this.#ops.release(request.nodeid, handle, request));
        return;
      }
      case Opcode.OPENDIR: {
        const { handle } = value as OpenDirectoryReply;
        this.#quietly('releasedir', request, () => this.#ops.releasedir(request.nodeid, handle, request));
        return;
      }
      case Opcode.READDIRPLUS:
        this.listing(request);
        return;
    }
  }

  /** Closes a handle that an earlier process opened for the request. */
  handle(request: Request, handle: HandleId): void {
    const { nodeid: ino } = request;
    if (request.opcode === Opcode.OPENDIR)
      this.#quietly('releasedir', request, () => this.#ops.releasedir(ino, handle, request));
    else this.#quietly('release', request, () => this.#ops.release(ino, handle, request));
  }

  /** Undoes the lookups of the entries in a listing. */
  listing({ sink }: Request): void {
    if (sink === null) return;
    for (const nodeId of sink.lookups.splice(0)) this.forget(this.#nodeIds.undelivered(nodeId), 1);
  }

  /** Returns lookups; also called for the kernel's own FORGET. */
  forget(ino: Inode, count: number): void {
    this.#forgotten(ino);
    const startedMs = this.#boundary.nowMs();
    try {
      this.#ops.forget(ino, count);
      this.#boundary.succeeded('forget', startedMs);
    } catch (error) {
      this.#boundary.failed('forget', error, startedMs, { ino });
    }
  }

  #quietly(op: 'release' | 'releasedir', request: Request, run: () => Answer<void>): void {
    const failed = (error: unknown): void => {
      this.#boundary.failed(op, error, request.startedMs, request.fields());
    };
    try {
      const answer = run();
      if (answer instanceof Promise) answer.catch(failed);
    } catch (error) {
      failed(error);
    }
  }
}
