import { constants } from 'node:os';
import { FsError } from '../base/errors.ts';
import type { HandleId, Inode, SpecialKind } from '../base/vocabulary.ts';
import type {
  AllocateMode,
  Answer,
  AttributeChange,
  Attributes,
  AttributesReply,
  CallsOfHelper,
  FileSystemOps,
  OpenFlags,
  RenameMode,
} from './binding.ts';
import type { DirectoryWriter } from './directory-writer.ts';
import type { OpName } from './op-boundary.ts';
import { isAppending, mayWrite, openFlags } from './open-flags.ts';
import * as P from './protocol.ts';
import { Opcode } from './protocol.ts';
import type { Request } from './request.ts';
import type { Wire } from './wire.ts';

/** A reply of the binding itself: not a failed operation, so neither logged nor counted. */
class Refusal {
  readonly errno: number;
  constructor(errno: number) {
    this.errno = errno;
  }
}

/** ENOSYS makes the kernel stop sending the request, and do without or fall back (ACCESS, POLL, IOCTL, COPY_FILE_RANGE, BMAP, STATX …). */
const NOT_OFFERED = new Refusal(constants.errno.ENOSYS);
const NOT_SUPPORTED = new Refusal(constants.errno.EOPNOTSUPP);
const NOT_PERMITTED = new Refusal(constants.errno.EPERM);
const INVALID = new Refusal(constants.errno.EINVAL);
const TOO_LONG = new Refusal(constants.errno.ENAMETOOLONG);

const ALLOCATE_MODES: ReadonlyMap<number, AllocateMode> = new Map([
  [0, 'allocate'],
  [0x01, 'keep-size'], // FALLOC_FL_KEEP_SIZE
  [0x03, 'punch-hole'], // FALLOC_FL_PUNCH_HOLE, always with KEEP_SIZE
  [0x10, 'zero-range'], // FALLOC_FL_ZERO_RANGE
  [0x11, 'zero-range-keep-size'],
]);

/** The kinds that mknod(2) creates, by the file type of its mode; devices are excluded. */
const MADE_BY_MKNOD: ReadonlyMap<number, 'file' | SpecialKind> = new Map([
  [0, 'file'],
  [P.S_IFREG, 'file'],
  [P.S_IFIFO, 'fifo'],
  [P.S_IFSOCK, 'socket'],
]);

const SETUID_SETGID = 0o6000;

/** Operations that change an inode as other handles see it. */
const CHANGES: ReadonlySet<number> = new Set([
  Opcode.SETATTR,
  Opcode.WRITE,
  Opcode.FALLOCATE,
  Opcode.SETXATTR,
  Opcode.REMOVEXATTR,
]);

/** The operations that are not carried out twice (`HandoverState`). */
const MADE: ReadonlyMap<number, OpName> = new Map([
  [Opcode.CREATE, 'create'],
  [Opcode.MKNOD, 'mknod'],
  [Opcode.MKDIR, 'mkdir'],
  [Opcode.SYMLINK, 'symlink'],
  [Opcode.LINK, 'link'],
  [Opcode.UNLINK, 'unlink'],
  [Opcode.RMDIR, 'rmdir'],
  [Opcode.RENAME, 'rename'],
  [Opcode.RENAME2, 'rename'],
  [Opcode.SETXATTR, 'setxattr'],
  [Opcode.REMOVEXATTR, 'removexattr'],
]);
const OPENS: ReadonlyMap<number, OpName> = new Map([
  [Opcode.OPENDIR, 'opendir'],
  [Opcode.CREATE, 'create'],
  [Opcode.TMPFILE, 'tmpfile'],
]);
const MAKES_ENTRY: ReadonlySet<number> = new Set([Opcode.MKNOD, Opcode.MKDIR, Opcode.SYMLINK, Opcode.LINK]);

/** Decodes one request and calls its operation. */
export class RequestReader {
  readonly #ops: FileSystemOps;
  readonly #helper: CallsOfHelper | null;
  readonly #wire: Wire;
  readonly #makeWriter: (limit: number, wantsEntries: boolean) => DirectoryWriter;
  readonly #attributesChanged: (ino: Inode) => void;
  readonly #bytesChanged: (ino: Inode) => void;
  /**
   * Files that the kernel knows to have a setuid or setgid bit, with their mode. Under HANDLE_KILLPRIV_V2 the file system clears these bits,
   * and nearly every write requests it: the set makes that free for all other files.
   */
  readonly #privileged = new Map<Inode, number>();

  constructor(deps: {
    ops: FileSystemOps;
    /** Absent: every request goes to `ops`. */
    helper?: CallsOfHelper | null;
    wire: Wire;
    makeWriter: (limit: number, wantsEntries: boolean) => DirectoryWriter;
    /** The kernel must revalidate the attributes. */
    attributesChanged: (ino: Inode) => void;
    /** The kernel must revalidate attributes and bytes. */
    bytesChanged: (ino: Inode) => void;
  }) {
    this.#ops = deps.ops;
    this.#helper = deps.helper ?? null;
    this.#wire = deps.wire;
    this.#makeWriter = deps.makeWriter;
    this.#attributesChanged = deps.attributesChanged;
    this.#bytesChanged = deps.bytesChanged;
  }

  /** The errno of the binding's own reply, thrown or returned; null for any other answer or failure. */
  refusalOf(thrown: unknown): number | null {
    return thrown instanceof Refusal ? thrown.errno : null;
  }

  /** Called with all attributes that are sent to the kernel. */
  noteAttributes(attributes: Attributes | null): void {
    if (attributes === null || attributes.kind !== 'file') return;
    if ((attributes.mode & SETUID_SETGID) !== 0) this.#privileged.set(attributes.ino, attributes.mode);
    else if (this.#privileged.size > 0) this.#privileged.delete(attributes.ino);
  }

  forgotten(ino: Inode): void {
    if (this.#privileged.size > 0) this.#privileged.delete(ino);
  }

  /**
   * @param at where the request starts
   * @param data where the part after its first 80 bytes starts
   * @param copyWrites whether the bytes of a WRITE must outlive the slot
   */
  call(request: Request, at: number, data: number, copyWrites: boolean): Answer<unknown> {
    if (!request.isByFormer) return this.#call(request, at, data, copyWrites);
    if (request.opcode === Opcode.GETATTR && request.older !== null) {
      request.op = 'getattr';
      // The kernel's own request names the handle (fuse_update_attributes); stat(2) of a descriptor does not.
      const isRead = (this.#wire.u32(at + P.IN_HEADER_BYTES) & P.GETATTR_FH) !== 0;
      const attributes = request.older(isRead ? 'read' : 'program');
      if (attributes !== null) return { attributes, attributeTimeoutMs: 0 };
    }
    const answer = this.#call(request, at, data, copyWrites);
    if (request.opcode !== Opcode.GETATTR && !CHANGES.has(request.opcode)) return answer;
    return answer instanceof Promise
      ? answer.then((value) => this.#answeredByFormer(request, value))
      : this.#answeredByFormer(request, answer);
  }

  /** The kernel does not know that a former node id and the current one are one file. */
  #answeredByFormer(request: Request, value: unknown): unknown {
    if (value instanceof Refusal) return value;
    const { opcode } = request;
    if (opcode !== Opcode.GETATTR) this.#bytesChanged(request.nodeid);
    if (opcode !== Opcode.GETATTR && opcode !== Opcode.SETATTR) return value;
    // No caching: later notifications name the current node id.
    const attributes = request.older?.() ?? (value as AttributesReply).attributes;
    return { attributes, attributeTimeoutMs: 0 };
  }

  /**
   * The reply to a repeated request whose change an earlier process has made.
   *
   * @param ino the newest inode of that change
   */
  made(request: Request, at: number, ino: Inode): unknown {
    const op = MADE.get(request.opcode);
    if (op === undefined) throw new FsError('EIO', 'a repeated request without a recorded operation');
    request.op = op;
    if (request.opcode === Opcode.CREATE)
      return this.#ops.made?.(ino, openFlags(this.#wire.u32(at + P.IN_HEADER_BYTES)));
    return MAKES_ENTRY.has(request.opcode) ? this.#ops.made?.(ino, null) : undefined;
  }

  /**
   * The reply to a repeated request by which an earlier process opened `handle`.
   *
   * @returns null if the handle is lost
   */
  reopened(request: Request, ino: Inode, handle: HandleId): unknown {
    const open = this.#ops.reopened?.(ino, handle) ?? null;
    if (open === null) return null;
    const { opcode } = request;
    request.op = OPENS.get(opcode) ?? 'open';
    return opcode === Opcode.OPEN || opcode === Opcode.OPENDIR ? open : { ...this.#ops.made?.(ino, null), open };
  }

  #opsFor({ pid }: Request): FileSystemOps {
    return this.#helper !== null && this.#helper.pid === pid ? this.#helper.ops : this.#ops;
  }

  #call(request: Request, at: number, data: number, copyWrites: boolean): Answer<unknown> {
    const ops = this.#opsFor(request);
    const wire = this.#wire;
    const ino = request.nodeid;
    const body = at + P.IN_HEADER_BYTES;
    const end = at + wire.u32(at + P.IN_LENGTH);
    switch (request.opcode) {
      case Opcode.LOOKUP:
        request.op = 'lookup';
        return ops.lookup(ino, wire.name(body, end), request);
      case Opcode.GETATTR: {
        request.op = 'getattr';
        const handle = (wire.u32(body) & P.GETATTR_FH) !== 0 ? (wire.u64(body + 8) as HandleId) : null;
        return ops.getattr(ino, handle, request);
      }
      case Opcode.SETATTR:
        request.op = 'setattr';
        return this.#setattr(request, body);
      case Opcode.READLINK:
        request.op = 'readlink';
        return ops.readlink(ino, request);
      case Opcode.SYMLINK: {
        request.op = 'symlink';
        const name = wire.name(body, end);
        const targetAt = wire.endOfText(body, end) + 1;
        return ops.symlink(ino, name, wire.text(targetAt, wire.endOfText(targetAt, end)), request);
      }
      case Opcode.MKNOD: {
        request.op = 'mknod';
        const mode = wire.u32(body);
        request.umask = wire.u32(body + 8);
        const kind = MADE_BY_MKNOD.get(mode & P.S_IFMT);
        if (kind === undefined) throw NOT_PERMITTED;
        return ops.mknod(ino, wire.name(body + 16, end), kind, mode & 0o7777, request);
      }
      case Opcode.MKDIR:
        request.op = 'mkdir';
        request.umask = wire.u32(body + 4);
        return ops.mkdir(ino, wire.name(body + 8, end), wire.u32(body) & 0o7777, request);
      case Opcode.UNLINK:
        request.op = 'unlink';
        return ops.unlink(ino, wire.name(body, end), request);
      case Opcode.RMDIR:
        request.op = 'rmdir';
        return ops.rmdir(ino, wire.name(body, end), request);
      case Opcode.RENAME:
        return this.#rename(request, request.inodeOf(wire.u64(body)), 0, body + 8, end);
      case Opcode.RENAME2:
        return this.#rename(request, request.inodeOf(wire.u64(body)), wire.u32(body + 8), body + 16, end);
      case Opcode.LINK:
        request.op = 'link';
        request.otherNodeid = request.inodeOf(wire.u64(body));
        return ops.link(request.otherNodeid, ino, wire.name(body + 8, end), request);
      case Opcode.OPEN:
        request.op = 'open';
        return this.#open(request, openFlags(wire.u32(body)), (wire.u32(body + 4) & P.OPEN_KILL_SUIDGID) !== 0);
      case Opcode.CREATE:
        request.op = 'create';
        request.umask = wire.u32(body + 8);
        request.isWriter = mayWrite(wire.u32(body));
        return ops.create(
          ino,
          wire.name(body + 16, end),
          wire.u32(body + 4) & 0o7777,
          openFlags(wire.u32(body)),
          request,
        );
      case Opcode.TMPFILE:
        // struct fuse_create_in, and a placeholder name (`/`).
        request.op = 'tmpfile';
        request.isWriter = mayWrite(wire.u32(body));
        request.umask = wire.u32(body + 8);
        return ops.tmpfile(ino, wire.u32(body + 4) & 0o7777, openFlags(wire.u32(body)), request);
      case Opcode.READ:
        request.op = 'read';
        request.limit = wire.u32(body + 16);
        request.offset = wire.place64(body + 8);
        return ops.read(ino, wire.u64(body) as HandleId, request.offset, request.limit, request);
      case Opcode.WRITE: {
        request.op = 'write';
        const handle = wire.u64(body) as HandleId;
        const offset = wire.offset64(body + 8);
        const length = wire.u32(body + 16);
        request.offset = offset;
        request.limit = length;
        const view = wire.bytes.subarray(data, data + length);
        const bytes = copyWrites ? Buffer.from(view) : view;
        const flags = wire.u32(body + 20);
        // The current flags, which fcntl(2) may have changed since open(2).
        const isAppend = (flags & P.WRITE_CACHE) === 0 && isAppending(wire.u32(body + 32));
        const place = isAppend ? 'end' : 'offset';
        return (flags & P.WRITE_KILL_SUIDGID) !== 0 && this.#privileged.has(ino)
          ? this.#afterKill(request, true, () => ops.write(ino, handle, offset, bytes, request, place))
          : ops.write(ino, handle, offset, bytes, request, place);
      }
      case Opcode.STATFS:
        request.op = 'statfs';
        return ops.statfs(ino, request);
      case Opcode.RELEASE:
        request.op = 'release';
        request.isWriter = mayWrite(wire.u32(body + 8));
        return ops.release(ino, wire.u64(body) as HandleId, request);
      case Opcode.FLUSH:
        request.op = 'flush';
        return ops.flush(ino, wire.u64(body) as HandleId, request);
      case Opcode.FSYNC:
        request.op = 'fsync';
        return ops.fsync(ino, wire.u64(body) as HandleId, (wire.u32(body + 8) & P.FSYNC_FDATASYNC) !== 0, request);
      case Opcode.OPENDIR:
        request.op = 'opendir';
        return ops.opendir(ino, request);
      case Opcode.READDIR:
      case Opcode.READDIRPLUS:
        request.op = 'readdir';
        request.sink = this.#makeWriter(wire.u32(body + 16), request.opcode === Opcode.READDIRPLUS);
        return ops.readdir(ino, wire.u64(body) as HandleId, wire.place64(body + 8), request.sink, request);
      case Opcode.RELEASEDIR:
        request.op = 'releasedir';
        return ops.releasedir(ino, wire.u64(body) as HandleId, request);
      case Opcode.FSYNCDIR:
        request.op = 'fsyncdir';
        return ops.fsyncdir(ino, wire.u64(body) as HandleId, (wire.u32(body + 8) & P.FSYNC_FDATASYNC) !== 0, request);
      case Opcode.GETXATTR: {
        request.op = 'getxattr';
        request.limit = wire.u32(body);
        const name = this.#xattrText(body + 8, end);
        // The kernel requests security.capability with the first write of every file. The error is returned, because throwing takes ten µs.
        return isNeverKept(name) ? NOT_SUPPORTED : ops.getxattr(ino, name, request);
      }
      case Opcode.SETXATTR: {
        // Without SETXATTR_EXT: size, flags, name, value.
        request.op = 'setxattr';
        const length = wire.u32(body);
        const flags = wire.u32(body + 4);
        const name = this.#xattrName(body + 8, end);
        const valueAt = wire.endOfText(body + 8, end) + 1;
        const value = Buffer.from(wire.bytes.subarray(valueAt, Math.min(valueAt + length, end)));
        if (flags === (P.XATTR_CREATE | P.XATTR_REPLACE)) return refusedForBoth(ops.getxattr(ino, name, request));
        const mode = flags === P.XATTR_CREATE ? 'create' : flags === P.XATTR_REPLACE ? 'replace' : 'set';
        return ops.setxattr(ino, name, value, mode, request);
      }
      case Opcode.LISTXATTR:
        request.op = 'listxattr';
        request.limit = wire.u32(body);
        return ops.listxattr(ino, request);
      case Opcode.REMOVEXATTR:
        request.op = 'removexattr';
        return ops.removexattr(ino, this.#xattrName(body, end), request);
      case Opcode.FALLOCATE: {
        request.op = 'fallocate';
        const mode = ALLOCATE_MODES.get(wire.u32(body + 24));
        if (mode === undefined) throw NOT_SUPPORTED;
        const offset = wire.offset64(body + 8);
        return ops.fallocate(ino, wire.u64(body) as HandleId, mode, offset, wire.offset64(body + 16), request);
      }
      case Opcode.LSEEK: {
        request.op = 'lseek';
        const whence = wire.u32(body + 16);
        if (whence !== P.SEEK_DATA && whence !== P.SEEK_HOLE) throw INVALID;
        const offset = wire.place64(body + 8);
        return ops.lseek(ino, wire.u64(body) as HandleId, offset, whence === P.SEEK_DATA ? 'data' : 'hole', request);
      }
      default:
        throw NOT_OFFERED;
    }
  }

  #open(request: Request, flags: OpenFlags, kills: boolean): Answer<unknown> {
    if (flags.access === 'read') request.access = 'read';
    request.isWriter = mayWrite(flags.raw);
    return this.#afterKill(request, kills, () => this.#ops.open(request.nodeid, flags, request));
  }

  #rename(request: Request, newParent: Inode, flags: number, namesAt: number, end: number): Answer<void> {
    request.op = 'rename';
    request.otherNodeid = newParent;
    const name = this.#wire.name(namesAt, end);
    const newName = this.#wire.name(this.#wire.endOfText(namesAt, end) + 1, end);
    let mode: RenameMode = 'replace';
    if (flags === P.RENAME_NOREPLACE) mode = 'no-replace';
    else if (flags === P.RENAME_EXCHANGE) mode = 'exchange';
    else if (flags !== 0) throw INVALID;
    return this.#opsFor(request).rename(request.nodeid, name, newParent, newName, mode, request);
  }

  /** struct fuse_setattr_in */
  #setattr(request: Request, body: number): Answer<unknown> {
    const wire = this.#wire;
    const valid = wire.u32(body);
    const has = (bit: number): boolean => (valid & bit) !== 0;
    const handle = has(P.FATTR_FH) ? (wire.u64(body + 8) as HandleId) : null;
    const ownerChanges = has(P.FATTR_UID) || has(P.FATTR_GID);
    let mode = has(P.FATTR_MODE) ? wire.u32(body + 68) & 0o7777 : undefined;
    if (mode === undefined && (ownerChanges || has(P.FATTR_KILL_SUIDGID)))
      mode = this.#modeWithoutPrivilege(request.nodeid);
    const change: AttributeChange = {
      ...(mode !== undefined && { mode }),
      ...(has(P.FATTR_UID) && { uid: wire.u32(body + 76) }),
      ...(has(P.FATTR_GID) && { gid: wire.u32(body + 80) }),
      ...(has(P.FATTR_SIZE) && { sizeBytes: wire.offset64(body + 16) }),
      ...(has(P.FATTR_ATIME) && { atime: has(P.FATTR_ATIME_NOW) ? 'now' : wire.timespec(body + 32, body + 56) }),
      ...(has(P.FATTR_MTIME) && { mtime: has(P.FATTR_MTIME_NOW) ? 'now' : wire.timespec(body + 40, body + 60) }),
      ...(has(P.FATTR_CTIME) && { ctime: wire.timespec(body + 48, body + 64) }),
    };
    // The kernel also sends empty changes: for bits that a write without privilege would clear, but that are not set.
    if (Object.keys(change).length === 0) return this.#ops.getattr(request.nodeid, handle, request);
    return this.#opsFor(request).setattr(request.nodeid, change, handle, request);
  }

  /** The mode after a write or chown (setattr_should_drop_suidgid); undefined if nothing changes. */
  #modeWithoutPrivilege(ino: Inode): number | undefined {
    const mode = this.#privileged.get(ino);
    if (mode === undefined) return undefined;
    // Without group execution the setgid bit means mandatory locking, not privilege.
    return mode & ~(0o4000 | ((mode & 0o010) !== 0 ? 0o2000 : 0));
  }

  /** Clears setuid and setgid first if the kernel leaves that to the file system, then runs the operation. */
  #afterKill<T>(request: Request, kills: boolean, run: () => Answer<T>): Answer<T> {
    const mode = kills ? this.#modeWithoutPrivilege(request.nodeid) : undefined;
    if (mode === undefined) return run();
    const cleared = this.#ops.setattr(request.nodeid, { mode }, null, request);
    this.#privileged.delete(request.nodeid);
    // The kernel expects a write to change size and times, but would show its cached mode.
    this.#attributesChanged(request.nodeid);
    return cleared instanceof Promise ? cleared.then(run) : run();
  }

  /**
   * `security.*` and ACLs are never stored but requested constantly: refused here. With EOPNOTSUPP, because it makes `ls -l` stop
   * requesting security.selinux (ENODATA: 10,000 requests for 10,000 names), and libacl fall back to the mode.
   */
  #xattrName(start: number, end: number): string {
    const name = this.#xattrText(start, end);
    if (isNeverKept(name)) throw NOT_SUPPORTED;
    return name;
  }

  #xattrText(start: number, end: number): string {
    const textEnd = this.#wire.endOfText(start, end);
    if (textEnd - start > P.NAME_BYTES_MAX) throw TOO_LONG;
    return this.#wire.text(start, textEnd);
  }
}

function isNeverKept(name: string): boolean {
  return name.startsWith('security.') || name.startsWith('system.posix_acl_');
}

/** setxattr(2) with both XATTR_CREATE and XATTR_REPLACE: as on ext4, the error depends on whether the attribute exists. */
function refusedForBoth(value: Answer<unknown>): Answer<never> {
  const refused = (): never => {
    throw new FsError('EEXIST');
  };
  return value instanceof Promise ? value.then(refused) : refused();
}
