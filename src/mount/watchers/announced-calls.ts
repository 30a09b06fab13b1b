import type { Clock } from '../../base/clock.ts';
import { FsError } from '../../base/errors.ts';
import { type Inode, ROOT_INODE, type Timespec } from '../../base/vocabulary.ts';
import type {
  Answer,
  AttributeChange,
  Attributes,
  CallsOfHelper,
  Entry,
  FileSystemOps,
  NegativeEntry,
} from '../../kernel/binding.ts';
import type { NodeRecord } from '../../store/tables.ts';

/** A call that the announcer makes next. Each but `look` repeats a change that the tree already has. */
export type AnnouncedCall =
  /** A name that does not exist, in the root: its lookup shows by which process id the kernel knows the announcer. */
  | { readonly op: 'look'; readonly parent: Inode; readonly name: string }
  | { readonly op: 'mknod' | 'mkdir'; readonly parent: Inode; readonly name: string; readonly ino: Inode }
  | { readonly op: 'unlink' | 'rmdir'; readonly parent: Inode; readonly name: string }
  | {
      readonly op: 'rename';
      readonly parent: Inode;
      readonly name: string;
      readonly newParent: Inode;
      readonly newName: string;
      readonly ino: Inode;
    }
  /** utimensat(2) with the modification time that the file has. */
  | {
      readonly op: 'touch';
      readonly parent: Inode;
      readonly name: string;
      readonly ino: Inode;
      readonly mtime: Timespec;
    };

/** How long a ticket is valid. */
const VALID_MS = 1_000;
/** Inodes of removed names from here on: above those of the tree, below the node ids of `kernel/node-ids`. */
const FIRST_STAND_IN = 2 ** 49;
const STAND_INS_MAX = 2 ** 32;
const ABSENT: NegativeEntry = { attributes: null, entryTimeoutMs: 0 };

interface Ticket {
  readonly call: AnnouncedCall;
  readonly issuedMs: number;
  isUsed: boolean;
}

export interface AnnouncedCallsDeps {
  readonly ops: FileSystemOps;
  readonly tree: {
    child(parent: Inode, name: string): NodeRecord | undefined;
    node(ino: Inode): NodeRecord | undefined;
  };
  readonly clock: Pick<Clock, 'elapsedMs'>;
  /** Owner of removed names, so that a folder with the sticky bit lets the announcer remove them. */
  readonly owner: { readonly uid: number; readonly gid: number };
}

/**
 * The calls of the announcer, as the mount answers them. A call with a valid ticket is answered as already done, from the tree, and
 * changes nothing. No answer waits.
 *
 * To mistake a user's call for the announcer's would lose data, therefore:
 *
 * - The process is known by an id that the kernel cannot reuse: this thread is its parent, and learns of its end by reaping it.
 * - A ticket allows exactly one call: operation, folder and name, once, within a second.
 * - The tree must show the change already. A name that is used again meanwhile is never removed, and a removed one never created.
 * - A call that comes later than its ticket is refused, as long as the announcer has not replied. Every other call is a user's.
 */
export class AnnouncedCalls implements CallsOfHelper {
  readonly ops: FileSystemOps;
  readonly #deps: AnnouncedCallsDeps;
  #pid: number | null = null;
  #ticket: Ticket | null = null;
  #standIns = 0;

  constructor(deps: AnnouncedCallsDeps) {
    this.#deps = deps;
    this.ops = replaced(deps.ops, {
      lookup: (parent, name, ctx) => this.#lookup(parent, name) ?? deps.ops.lookup(parent, name, ctx),
      mknod: (parent, name, kind, mode, ctx) =>
        this.#entry(kind === 'file' ? 'mknod' : null, parent, name, () =>
          deps.ops.mknod(parent, name, kind, mode, ctx),
        ),
      mkdir: (parent, name, mode, ctx) =>
        this.#entry('mkdir', parent, name, () => deps.ops.mkdir(parent, name, mode, ctx)),
      unlink: (parent, name, ctx) => this.#removal('unlink', parent, name, () => deps.ops.unlink(parent, name, ctx)),
      rmdir: (parent, name, ctx) => this.#removal('rmdir', parent, name, () => deps.ops.rmdir(parent, name, ctx)),
      rename: (parent, name, newParent, newName, mode, ctx) =>
        this.#answer(
          (call) =>
            call.op === 'rename' &&
            isAt(call, parent, name) &&
            call.newParent === newParent &&
            call.newName === newName,
          () => this.#isRenamed(),
          () => {},
          () => deps.ops.rename(parent, name, newParent, newName, mode, ctx),
        ),
      setattr: (ino, change, handle, ctx) =>
        this.#answer(
          (call) => call.op === 'touch' && call.ino === ino && isOnlyMtime(change, call.mtime),
          () => this.#deps.tree.node(ino)?.local != null,
          () => deps.ops.getattr(ino, handle, ctx),
          () => deps.ops.setattr(ino, change, handle, ctx),
        ),
    });
  }

  /** The process of the announcer; null: none. */
  get pid(): number | null {
    return this.#pid;
  }

  /** The announcer runs, or (null) has been reaped. */
  process(pid: number | null): void {
    this.#pid = pid !== null && pid > 0 ? pid : null;
    this.#ticket = null;
  }

  /** The announcer is about to make the call. */
  issue(call: AnnouncedCall): void {
    this.#ticket = { call, issuedMs: this.#deps.clock.elapsedMs(), isUsed: false };
  }

  /** The announcer has replied. @returns whether its call arrived */
  returned(): boolean {
    const isUsed = this.#ticket?.isUsed ?? false;
    this.#ticket = null;
    return isUsed;
  }

  /** Undefined without a ticket. With one, no lookup waits or counts as a use of the folder. */
  #lookup(parent: Inode, name: string): Entry | NegativeEntry | undefined {
    const ticket = this.#ticket;
    if (ticket === null) return undefined;
    const { call } = ticket;
    const child = this.#deps.tree.child(parent, name);
    if (!ticket.isUsed && !this.#isLate(ticket)) {
      if (call.op === 'look' && isAt(call, parent, name)) ticket.isUsed = true;
      const isNew = (call.op === 'mknod' || call.op === 'mkdir') && isAt(call, parent, name);
      const isTarget = call.op === 'rename' && parent === call.newParent && name === call.newName;
      if ((isNew || isTarget) && child?.ino === call.ino) return ABSENT;
      if (child === undefined && isAt(call, parent, name)) {
        if (call.op === 'unlink' || call.op === 'rmdir') return this.#standIn(call.op === 'rmdir' ? 'folder' : 'file');
        if (call.op === 'rename') return { ...this.#entryOf(call.ino), entryTimeoutMs: 0 };
      }
    }
    return child === undefined ? ABSENT : this.#entryOf(child.ino);
  }

  #entry(op: 'mknod' | 'mkdir' | null, parent: Inode, name: string, asUser: () => Answer<Entry>): Answer<Entry> {
    const child = this.#deps.tree.child(parent, name);
    return this.#answer(
      (call) => call.op === op && isAt(call, parent, name),
      (call) => child !== undefined && 'ino' in call && child.ino === call.ino,
      () => this.#entryOf((child as NodeRecord).ino),
      asUser,
    );
  }

  #removal(op: 'unlink' | 'rmdir', parent: Inode, name: string, asUser: () => Answer<void>): Answer<void> {
    return this.#answer(
      (call) => call.op === op && isAt(call, parent, name),
      () => this.#deps.tree.child(parent, name) === undefined,
      () => {},
      asUser,
    );
  }

  #isRenamed(): boolean {
    const call = this.#ticket?.call;
    if (call?.op !== 'rename') return false;
    const { tree } = this.#deps;
    return (
      tree.child(call.parent, call.name) === undefined && tree.child(call.newParent, call.newName)?.ino === call.ino
    );
  }

  /** @param isDone whether the tree shows the change that the call repeats */
  #answer<T>(
    matches: (call: AnnouncedCall) => boolean,
    isDone: (call: AnnouncedCall) => boolean,
    done: () => Answer<T>,
    asUser: () => Answer<T>,
  ): Answer<T> {
    const ticket = this.#ticket;
    if (ticket === null || ticket.isUsed || !matches(ticket.call)) return asUser();
    if (this.#isLate(ticket) || !isDone(ticket.call))
      throw new FsError('EPERM', 'the announced change is not the current state');
    ticket.isUsed = true;
    return done();
  }

  #isLate({ issuedMs }: Ticket): boolean {
    return this.#deps.clock.elapsedMs() - issuedMs > VALID_MS;
  }

  #entryOf(ino: Inode): Entry {
    const entry = this.#deps.ops.made?.(ino, null);
    if (entry === undefined) throw new FsError('ENOENT');
    return entry;
  }

  /** A name that was removed, so that the kernel asks for its removal. Nothing else leads to it. */
  #standIn(kind: 'file' | 'folder'): Entry {
    this.#standIns = (this.#standIns + 1) % STAND_INS_MAX;
    const time = { sec: 0, nsec: 0 };
    const attributes: Attributes = {
      ...{ ino: (FIRST_STAND_IN + this.#standIns) as Inode, kind, mode: 0, nlink: 1, sizeBytes: 0, blocks512: 0 },
      ...{ ...this.#deps.owner, atime: time, mtime: time, ctime: time },
    };
    return { attributes, entryTimeoutMs: 0, attributeTimeoutMs: 0 };
  }
}

/** The call by which the announcer proves its process id. */
export function lookCall(name: string): AnnouncedCall {
  return { op: 'look', parent: ROOT_INODE, name };
}

function isAt(call: AnnouncedCall, parent: Inode, name: string): boolean {
  return call.parent === parent && call.name === name;
}

function isOnlyMtime({ mtime, ctime: _, ...others }: AttributeChange, { sec, nsec }: Timespec): boolean {
  if (mtime === undefined || mtime === 'now' || Object.keys(others).length > 0) return false;
  return mtime.sec === sec && mtime.nsec === nsec;
}

/** `ops` with some operations replaced. */
function replaced(ops: FileSystemOps, own: Partial<FileSystemOps>): FileSystemOps {
  return new Proxy(ops, {
    get(target, key) {
      const operation = Reflect.get(own, key) ?? Reflect.get(target, key);
      return typeof operation === 'function' ? operation.bind(target) : operation;
    },
  });
}
