import { constants } from 'node:fs';
import type { Clock } from '../base/clock.ts';
import type { HandleId, Inode } from '../base/vocabulary.ts';
import type { Answer, FileSystemOps } from '../kernel/binding.ts';
import type { OpCalls } from '../kernel/op-calls.ts';
import { openFlags } from '../kernel/open-flags.ts';
import { after } from './answers.ts';
import type { RpcCaller } from './rpc-message.ts';

/** NFS has no close(2). An open without a READ, WRITE or COMMIT for this long ends. */
const IDLE_MS_MAX = 2_000;
/** The same for a file with writes that no COMMIT followed: its writer has probably not closed it. */
const UNCOMMITTED_MS_MAX = 30_000;
const SWEEP_MS = 1_000;
const OPENS_MAX = 512;

type Access = 'read' | 'write';

interface Open {
  readonly ino: Inode;
  readonly access: Access;
  readonly handle: HandleId;
  readonly caller: RpcCaller;
  users: number;
  usedMs: number;
  /** Has writes that no COMMIT followed. */
  isUncommitted: boolean;
  isDropped: boolean;
}

/** The open files of callers that never open and never close: one handle for reads and one for writes of an inode, closed when idle. */
export class HeldOpens {
  readonly #ops: FileSystemOps;
  readonly #calls: OpCalls;
  readonly #clock: Clock;
  readonly #opens = { read: new Map<Inode, Open>(), write: new Map<Inode, Open>() };
  #cancel: (() => void) | null = null;
  #isClosed = false;

  constructor(deps: { readonly ops: FileSystemOps; readonly calls: OpCalls; readonly clock: Clock }) {
    this.#ops = deps.ops;
    this.#calls = deps.calls;
    this.#clock = deps.clock;
  }

  /** The number of open handles. */
  get size(): number {
    return this.#opens.read.size + this.#opens.write.size;
  }

  /** Runs `act` with an open handle of the file. */
  use<T>(ino: Inode, access: Access, caller: RpcCaller, act: (handle: HandleId) => Answer<T>): Answer<T> {
    return after(this.#acquire(ino, access, caller), (open) => {
      let answer: Answer<T>;
      try {
        answer = act(open.handle);
      } catch (error) {
        this.#letGo(open);
        throw error;
      }
      if (answer instanceof Promise) return answer.finally(() => this.#letGo(open));
      this.#letGo(open);
      return answer;
    });
  }

  /** Takes over a handle for writing that `create` returned. */
  adopt(ino: Inode, handle: HandleId, caller: RpcCaller): void {
    const open = this.#add(ino, 'write', handle, caller);
    this.#letGo(open);
  }

  /** A WRITE left bytes that need a COMMIT, or a COMMIT followed them. */
  noteUncommitted(ino: Inode, isUncommitted: boolean): void {
    const open = this.#opens.write.get(ino);
    if (open !== undefined) open.isUncommitted = isUncommitted;
  }

  /** Closes what no program can be writing: the file may be pushed. */
  async settle(): Promise<void> {
    const idle = [...this.#opens.write.values()].filter((open) => open.users === 0 && !open.isUncommitted);
    await Promise.all(idle.map((open) => this.#close(open)));
  }

  /** The bytes were replaced: the next READ opens the new version. */
  async dropReader(ino: Inode): Promise<void> {
    await this.#drop(this.#opens.read.get(ino));
  }

  /** The file lost its last name. */
  async drop(ino: Inode): Promise<void> {
    await Promise.all([this.#drop(this.#opens.read.get(ino)), this.#drop(this.#opens.write.get(ino))]);
  }

  /** Closes all files. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancel?.();
    await Promise.all([...this.#all()].map((open) => this.#drop(open)));
  }

  #acquire(ino: Inode, access: Access, caller: RpcCaller): Answer<Open> {
    const known = this.#known(ino, access);
    if (known !== null) return known;
    const flags = openFlags(access === 'read' ? constants.O_RDONLY : constants.O_RDWR);
    const reply = this.#calls.run('open', ino, caller, (ctx) => this.#ops.open(ino, flags, ctx));
    if (!(reply instanceof Promise)) return this.#add(ino, access, reply.handle, caller);
    return reply.then(({ handle }) => {
      const other = this.#known(ino, access);
      if (other === null) return this.#add(ino, access, handle, caller);
      void this.#release(ino, handle, caller); // another call opened it meanwhile
      return other;
    });
  }

  #known(ino: Inode, access: Access): Open | null {
    const known = this.#opens[access].get(ino);
    if (known === undefined) return null;
    known.users++;
    return known;
  }

  #add(ino: Inode, access: Access, handle: HandleId, caller: RpcCaller): Open {
    const usedMs = this.#clock.elapsedMs();
    const open: Open = { ino, access, handle, caller, users: 1, usedMs, isUncommitted: false, isDropped: false };
    if (this.size >= OPENS_MAX) this.#evict();
    this.#opens[access].set(ino, open);
    this.#sweepLater();
    return open;
  }

  #letGo(open: Open): void {
    open.usedMs = this.#clock.elapsedMs();
    if (--open.users === 0 && (open.isDropped || this.#isClosed)) void this.#close(open);
  }

  /** Closes the open that was made first, of those without a call. */
  #evict(): void {
    for (const open of this.#all()) {
      if (open.users > 0) continue;
      void this.#close(open);
      return;
    }
  }

  async #drop(open: Open | undefined): Promise<void> {
    if (open === undefined) return;
    open.isDropped = true;
    this.#forget(open);
    if (open.users === 0) await this.#close(open);
  }

  /** A failure is not lost: FLUSH and RELEASE only repeat what the client learnt from WRITE or COMMIT. */
  async #close(open: Open): Promise<void> {
    this.#forget(open);
    const { ino, access, handle, caller } = open;
    if (access === 'write') {
      try {
        await this.#calls.run('flush', ino, caller, (ctx) => this.#ops.flush(ino, handle, ctx));
      } catch {
        // Logged by the calls.
      }
    }
    await this.#release(ino, handle, caller);
  }

  async #release(ino: Inode, handle: HandleId, caller: RpcCaller): Promise<void> {
    try {
      await this.#calls.run('release', ino, caller, (ctx) => this.#ops.release(ino, handle, ctx));
    } catch {
      // Logged by the calls.
    }
  }

  #forget(open: Open): void {
    const opens = this.#opens[open.access];
    if (opens.get(open.ino) === open) opens.delete(open.ino);
  }

  #sweepLater(): void {
    if (this.#isClosed) return;
    this.#cancel ??= this.#clock.after(SWEEP_MS, () => this.#sweep());
  }

  #sweep(): void {
    this.#cancel = null;
    const nowMs = this.#clock.elapsedMs();
    for (const open of [...this.#all()]) {
      const idleMsMax = open.isUncommitted ? UNCOMMITTED_MS_MAX : IDLE_MS_MAX;
      if (open.users === 0 && nowMs - open.usedMs >= idleMsMax) void this.#close(open);
    }
    if (this.size > 0) this.#sweepLater();
  }

  *#all(): Iterable<Open> {
    yield* this.#opens.read.values();
    yield* this.#opens.write.values();
  }
}
