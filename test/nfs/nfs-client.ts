import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { PROCEDURE } from '../../src/nfs/protocol.ts';
import { RecordReader } from '../../src/nfs/record-reader.ts';
import { XdrReader, XdrWriter } from '../../src/nfs/xdr.ts';

const NFS = 100003;
const MOUNT = 100005;
const LAST_FRAGMENT = 0x8000_0000;
const REPLY_BYTES_MAX = 4 * 1024 * 1024;
const CONNECT_AGAIN_MS = 5;
const CLOSED = 'the connection was closed';

export interface User {
  readonly uid: number;
  readonly gid: number;
  readonly gids?: readonly number[];
}

/** What GETATTR says of a node. */
export interface NfsAttributes {
  readonly type: number;
  readonly mode: number;
  readonly nlink: number;
  readonly uid: number;
  readonly gid: number;
  readonly sizeBytes: number;
  readonly fileId: number;
  readonly mtime: { readonly sec: number; readonly nsec: number };
  readonly ctime: { readonly sec: number; readonly nsec: number };
}

export interface Wcc {
  readonly before: {
    readonly sizeBytes: number;
    readonly ctime: { readonly sec: number; readonly nsec: number };
  } | null;
  readonly after: NfsAttributes | null;
}

/** A status other than NFS3_OK. */
export class NfsStatus extends Error {
  readonly status: number;

  constructor(status: number) {
    super(`nfsstat3 ${status}`);
    this.status = status;
  }
}

interface Waiting {
  readonly record: Buffer;
  resolve(reply: XdrReader): void;
  reject(error: Error): void;
}

/** An NFS version 3 client over TCP, for tests: one method for each procedure that they use. */
export class NfsClient {
  user: User;
  readonly #port: number;
  readonly #isPersistent: boolean;
  readonly #waiting = new Map<number, Waiting>();
  #socket: Socket;
  #isClosed = false;
  #xid = 1;

  private constructor(socket: Socket, port: number, user: User, isPersistent: boolean) {
    this.#port = port;
    this.#isPersistent = isPersistent;
    this.user = user;
    this.#socket = socket;
    this.#use(socket);
  }

  /** @param how.isPersistent as a kernel: connects again, and sends the calls without a reply again, with the same numbers */
  static async connect(
    port: number,
    user: User = ourselves(),
    { isPersistent = false }: { readonly isPersistent?: boolean } = {},
  ): Promise<NfsClient> {
    const socket = connect(port, '127.0.0.1');
    await once(socket, 'connect');
    return new NfsClient(socket, port, user, isPersistent);
  }

  get closed(): Promise<unknown> {
    return this.#socket.destroyed ? Promise.resolve() : once(this.#socket, 'close');
  }

  close(): void {
    this.#isClosed = true;
    this.#socket.destroy();
  }

  /** Loses the connection, and the replies that have not arrived. */
  disconnect(): void {
    this.#socket.destroy();
  }

  /** Sends a record as it is. */
  send(record: Uint8Array): void {
    const mark = Buffer.alloc(4);
    mark.writeUInt32BE(LAST_FRAGMENT + record.byteLength, 0);
    this.#socket.write(Buffer.concat([mark, record]));
  }

  /** Sends bytes without a record mark. */
  sendRaw(bytes: Uint8Array): void {
    this.#socket.write(bytes);
  }

  /** A call, without its record mark. */
  record(program: number, version: number, procedure: number, args: Uint8Array, xid: number = this.#xid++): Buffer {
    const { uid, gid, gids = [] } = this.user;
    const credential = new XdrWriter().u32(0).text('test').u32(uid).u32(gid).u32(gids.length);
    for (const each of gids) credential.u32(each);
    const head = new XdrWriter().u32(xid).u32(0).u32(2).u32(program).u32(version).u32(procedure);
    return Buffer.concat([head.u32(1).opaque(credential.done()).u32(0).u32(0).done(), args]);
  }

  /** @returns the reply after its RPC header. @throws Error for a call that was not accepted */
  async call(program: number, procedure: number, args: XdrWriter, xid: number = this.#xid++): Promise<XdrReader> {
    const reply = await this.exchange(this.record(program, 3, procedure, args.done(), xid), xid);
    const accepted = reply.acceptance();
    if (accepted !== 0) throw new Error(`accept_stat ${accepted}`);
    return reply.body;
  }

  async exchange(record: Buffer, xid: number): Promise<{ readonly body: XdrReader; acceptance(): number }> {
    const body = await new Promise<XdrReader>((resolve, reject) => {
      if (this.#isClosed || (this.#socket.destroyed && !this.#isPersistent)) reject(new Error(CLOSED));
      this.#waiting.set(xid, { record, resolve, reject });
      this.send(record);
    });
    return {
      body,
      acceptance: () => {
        if (body.u32() !== 0) return -1; // denied
        body.u32();
        body.opaque(400);
        return body.u32();
      },
    };
  }

  /** @throws NfsStatus */
  async nfs(procedure: keyof typeof PROCEDURE, args: XdrWriter, xid?: number): Promise<XdrReader> {
    const reply = await this.call(NFS, PROCEDURE[procedure], args, xid);
    const status = reply.u32();
    if (status !== 0) throw new NfsStatus(status);
    return reply;
  }

  /** MNT. @returns the root's handle. @throws NfsStatus */
  async mnt(path: string): Promise<Buffer> {
    const reply = await this.call(MOUNT, 1, new XdrWriter().text(path));
    const status = reply.u32();
    if (status !== 0) throw new NfsStatus(status);
    return reply.opaque(64);
  }

  async getattr(handle: Buffer): Promise<NfsAttributes> {
    return readAttributes(await this.nfs('getattr', new XdrWriter().opaque(handle)));
  }

  async setattr(handle: Buffer, change: Change): Promise<Wcc> {
    const args = new XdrWriter().opaque(handle);
    writeChange(args, change);
    return readWcc(await this.nfs('setattr', args.bool(false)));
  }

  async lookup(folder: Buffer, name: string): Promise<Buffer> {
    const reply = await this.nfs('lookup', new XdrWriter().opaque(folder).text(name));
    return reply.opaque(64);
  }

  async access(handle: Buffer, bits = 0x3f): Promise<number> {
    const reply = await this.nfs('access', new XdrWriter().opaque(handle).u32(bits));
    maybeAttributes(reply);
    return reply.u32();
  }

  async readlink(handle: Buffer): Promise<string> {
    const reply = await this.nfs('readlink', new XdrWriter().opaque(handle));
    maybeAttributes(reply);
    return reply.opaque(4096).toString();
  }

  async read(handle: Buffer, offset: number, length: number): Promise<{ bytes: Buffer; isEnd: boolean }> {
    const reply = await this.nfs('read', new XdrWriter().opaque(handle).u64(offset).u32(length));
    maybeAttributes(reply);
    reply.u32();
    const isEnd = reply.bool();
    return { bytes: reply.opaque(REPLY_BYTES_MAX), isEnd };
  }

  /** @param stable 0: UNSTABLE, 2: FILE_SYNC */
  async write(
    handle: Buffer,
    offset: number,
    data: Uint8Array | string,
    stable = 0,
  ): Promise<{ wcc: Wcc; count: number; committed: number; verifier: Buffer }> {
    const bytes = Buffer.from(data);
    const args = new XdrWriter().opaque(handle).u64(offset).u32(bytes.byteLength).u32(stable).opaque(bytes);
    const reply = await this.nfs('write', args);
    return { wcc: readWcc(reply), count: reply.u32(), committed: reply.u32(), verifier: reply.fixed(8) };
  }

  async commit(handle: Buffer): Promise<Buffer> {
    const reply = await this.nfs('commit', new XdrWriter().opaque(handle).u64(0).u32(0));
    readWcc(reply);
    return reply.fixed(8);
  }

  /** @param how a verifier: EXCLUSIVE */
  async create(
    folder: Buffer,
    name: string,
    how: 'unchecked' | 'guarded' | Buffer = 'guarded',
    change: Change = { mode: 0o644 },
    xid?: number,
  ): Promise<Buffer> {
    const args = new XdrWriter().opaque(folder).text(name);
    if (typeof how === 'string') writeChange(args.u32(how === 'unchecked' ? 0 : 1), change);
    else args.u32(2).fixed(how);
    return newHandle(await this.nfs('create', args, xid));
  }

  async mkdir(folder: Buffer, name: string, mode = 0o755, xid?: number): Promise<Buffer> {
    const args = new XdrWriter().opaque(folder).text(name);
    writeChange(args, { mode });
    return newHandle(await this.nfs('mkdir', args, xid));
  }

  async symlink(folder: Buffer, name: string, target: string): Promise<Buffer> {
    const args = new XdrWriter().opaque(folder).text(name);
    writeChange(args, {});
    return newHandle(await this.nfs('symlink', args.text(target)));
  }

  async remove(folder: Buffer, name: string, xid?: number): Promise<void> {
    await this.nfs('remove', new XdrWriter().opaque(folder).text(name), xid);
  }

  async rmdir(folder: Buffer, name: string): Promise<void> {
    await this.nfs('rmdir', new XdrWriter().opaque(folder).text(name));
  }

  async rename(from: Buffer, name: string, to: Buffer, newName: string): Promise<void> {
    await this.nfs('rename', new XdrWriter().opaque(from).text(name).opaque(to).text(newName));
  }

  /** All names of the folder, in pieces of `bytes`. `between` runs after each piece. */
  async names(
    folder: Buffer,
    bytes = 4096,
    between: (piece: readonly string[]) => Promise<void> = async () => {},
  ): Promise<string[]> {
    const names: string[] = [];
    let [cookie, verifier] = [0, 0];
    for (;;) {
      const args = new XdrWriter().opaque(folder).u64(cookie).u64(verifier).u32(bytes);
      const reply = await this.nfs('readdir', args);
      maybeAttributes(reply);
      verifier = reply.u64();
      const piece: string[] = [];
      while (reply.bool()) {
        reply.u64();
        piece.push(reply.opaque(255).toString());
        cookie = reply.u64();
      }
      names.push(...piece);
      if (reply.bool()) return names;
      await between(piece);
    }
  }

  /** READDIRPLUS of a whole folder. */
  async entries(folder: Buffer): Promise<ReadonlyMap<string, NfsAttributes | null>> {
    const args = new XdrWriter().opaque(folder).u64(0).u64(0).u32(65_536).u32(1_000_000);
    const reply = await this.nfs('readdirplus', args);
    maybeAttributes(reply);
    reply.u64();
    const entries = new Map<string, NfsAttributes | null>();
    while (reply.bool()) {
      reply.u64();
      const name = reply.opaque(255).toString();
      reply.u64();
      entries.set(name, maybeAttributes(reply));
      if (reply.bool()) reply.opaque(64);
    }
    return entries;
  }

  #received(record: Buffer): void {
    const reply = new XdrReader(record);
    const xid = reply.u32();
    reply.u32(); // REPLY
    this.#waiting.get(xid)?.resolve(reply);
    this.#waiting.delete(xid);
  }

  #use(socket: Socket): void {
    const reader = new RecordReader({ bytesMax: REPLY_BYTES_MAX, onRecord: (record) => this.#received(record) });
    socket.on('data', (chunk) => {
      if (!socket.destroyed) reader.push(chunk);
    });
    socket.on('error', () => undefined);
    socket.on('close', () => {
      if (this.#isPersistent && !this.#isClosed) return void setTimeout(() => this.#connectAgain(), CONNECT_AGAIN_MS);
      for (const { reject } of this.#waiting.values()) reject(new Error(CLOSED));
      this.#waiting.clear();
    });
  }

  #connectAgain(): void {
    if (this.#isClosed) return;
    this.#socket = connect(this.#port, '127.0.0.1');
    this.#use(this.#socket);
    for (const { record } of this.#waiting.values()) this.send(record);
  }
}

export interface Change {
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly sizeBytes?: number;
  readonly mtime?: 'now' | { readonly sec: number; readonly nsec: number };
}

export function ourselves(): User {
  return { uid: process.geteuid?.() ?? 0, gid: process.getegid?.() ?? 0 };
}

function writeChange(out: XdrWriter, { mode, uid, gid, sizeBytes, mtime }: Change): void {
  for (const value of [mode, uid, gid]) {
    out.bool(value !== undefined);
    if (value !== undefined) out.u32(value);
  }
  out.bool(sizeBytes !== undefined);
  if (sizeBytes !== undefined) out.u64(sizeBytes);
  out.u32(0); // atime
  if (mtime === undefined) out.u32(0);
  else if (mtime === 'now') out.u32(1);
  else out.u32(2).u32(mtime.sec).u32(mtime.nsec);
}

function newHandle(reply: XdrReader): Buffer {
  if (!reply.bool()) throw new Error('no handle');
  return reply.opaque(64);
}

export function maybeAttributes(reply: XdrReader): NfsAttributes | null {
  return reply.bool() ? readAttributes(reply) : null;
}

function readWcc(reply: XdrReader): Wcc {
  let before: Wcc['before'] = null;
  if (reply.bool()) {
    const sizeBytes = reply.u64();
    const [, ctime] = [0, 1].map(() => ({ sec: reply.u32(), nsec: reply.u32() }));
    if (ctime === undefined) throw new Error('no times');
    before = { sizeBytes, ctime };
  }
  return { before, after: maybeAttributes(reply) };
}

function readAttributes(reply: XdrReader): NfsAttributes {
  const [type, mode, nlink, uid, gid] = [reply.u32(), reply.u32(), reply.u32(), reply.u32(), reply.u32()];
  const sizeBytes = reply.u64();
  reply.u64(); // used
  reply.u64(); // rdev
  reply.u64(); // fsid
  const fileId = reply.u64();
  const [, mtime, ctime] = [0, 1, 2].map(() => ({ sec: reply.u32(), nsec: reply.u32() }));
  if (mtime === undefined || ctime === undefined) throw new Error('no times');
  return { type, mode, nlink, uid, gid, sizeBytes, fileId, mtime, ctime };
}
