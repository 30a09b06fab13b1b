import type { HandleId, Inode } from '../base/vocabulary.ts';
import type { Answer, Attributes, FileSystemOps, OpContext, ReadReply } from './binding.ts';
import { bytesOf } from './gathered-reply.ts';
import type { OpBoundary, OpName, PendingOp } from './op-boundary.ts';

/** The user on whose behalf an operation runs. */
export interface OpCaller {
  readonly uid: number;
  readonly gid: number;
}

const GIVES_LOOKUP: ReadonlySet<OpName> = new Set<OpName>(['lookup', 'mknod', 'mkdir', 'symlink', 'link', 'create']);

interface LateAnswer {
  readonly attributes?: Attributes | null;
  readonly open?: { readonly handle: HandleId };
  readonly handle?: HandleId;
}

/** Runs operations of a file system for a binding without kernel requests. Every failure is an `FsError`. */
export class OpCalls {
  readonly #ops: FileSystemOps;
  readonly #boundary: OpBoundary;

  constructor(deps: { readonly ops: FileSystemOps; readonly boundary: OpBoundary }) {
    this.#ops = deps.ops;
    this.#boundary = deps.boundary;
  }

  /** @throws FsError, also as a rejection */
  run<T>(op: OpName, ino: Inode, caller: OpCaller, call: (ctx: OpContext) => Answer<T>): Answer<T> {
    const request = new Request(op, ino, caller, this.#boundary.nowMs());
    let answer: Answer<T>;
    try {
      answer = call(request);
    } catch (error) {
      throw this.#boundary.failed(op, error, request.startedMs, request.fields());
    }
    if (!(answer instanceof Promise)) {
      this.#boundary.succeeded(op, request.startedMs);
      return answer;
    }
    const waited = answer;
    return new Promise<T>((resolve, reject) => {
      // A late answer may carry a lookup or a handle without a receiver.
      const late = (value: T): void => this.#undo(op, ino, caller, value);
      this.#boundary.watch(request, waited, { answered: resolve, refused: reject, late });
    });
  }

  /** Undoes an answer that came after the refusal. */
  #undo(op: OpName, ino: Inode, caller: OpCaller, value: unknown): void {
    const quietly = (answer: Answer<void>): void => void Promise.resolve(answer).catch(() => undefined);
    if (op === 'read') return void bytesOf(value as ReadReply); // ends its leases
    const { attributes, open, handle } = (value ?? {}) as LateAnswer;
    const ctx = new Request(op, ino, caller, this.#boundary.nowMs());
    if (GIVES_LOOKUP.has(op) && attributes != null) {
      if (open !== undefined) quietly(this.#ops.release(attributes.ino, open.handle, ctx));
      this.#ops.forget(attributes.ino, 1);
    } else if (op === 'open' && handle !== undefined) quietly(this.#ops.release(ino, handle, ctx));
    else if (op === 'opendir' && handle !== undefined) quietly(this.#ops.releasedir(ino, handle, ctx));
  }
}

/** One pending operation, with as much of its caller as is known. */
class Request implements OpContext, PendingOp {
  readonly op: OpName;
  readonly uid: number;
  readonly gid: number;
  readonly pid = 0;
  /** The kernel has applied it. */
  readonly umask = 0;
  readonly startedMs: number;
  readonly #ino: Inode;
  #controller: AbortController | null = null;

  constructor(op: OpName, ino: Inode, caller: OpCaller, startedMs: number) {
    this.op = op;
    this.uid = caller.uid;
    this.gid = caller.gid;
    this.startedMs = startedMs;
    this.#ino = ino;
  }

  /** Created on first use: most operations do not wait. */
  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    return this.#controller.signal;
  }

  abort(reason: Error): void {
    this.#controller ??= new AbortController();
    this.#controller.abort(reason);
  }

  fields(): Record<string, unknown> {
    return { ino: this.#ino };
  }
}
