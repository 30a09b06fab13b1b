import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { Inode } from '../base/vocabulary.ts';
import type { FileSystemOps, Invalidator, MountOptions } from '../kernel/binding.ts';
import { OpBoundary } from '../kernel/op-boundary.ts';
import { OpCalls } from '../kernel/op-calls.ts';
import { AppleDoubles } from './apple-doubles.ts';
import type { ContinuedMount } from './continued-mount.ts';
import { FileHandles } from './file-handles.ts';
import { FolderTimes } from './folder-times.ts';
import { HeldOpens } from './held-opens.ts';
import { MountProgram } from './mount-program.ts';
import type { NfsParts } from './nfs-parts.ts';
import { NfsProgram } from './nfs-program.ts';
import { Nodes } from './nodes.ts';
import { RecordedCalls } from './recorded-calls.ts';
import { RemovedFolders } from './removed-folders.ts';
import { RemovedWhileOpen } from './removed-while-open.ts';
import { RpcServer } from './rpc-server.ts';
import type { Export } from './system-mount.ts';

const DEADLINE_MS = 30_000;

export interface NfsServerDeps {
  readonly log: Logger;
  readonly clock: Clock;
  readonly deadlineMs?: number;
  readonly bytesCameMs?: () => number;
  /** The client's system: names and `._*` files are treated as that system expects it. */
  readonly platform?: NodeJS.Platform;
  /** The mount of an earlier process. */
  readonly continued?: ContinuedMount | null;
  /** A listening socket that this process inherited. */
  readonly descriptor?: number;
  readonly onConnected?: () => void;
  /** The file that records calls for a successor; null: there will be none. */
  readonly callsFile?: string | null;
}

/** A file system, served over NFS version 3 on a port of 127.0.0.1 to one client. */
export class NfsServer {
  readonly exported: Export;
  readonly opens: HeldOpens;
  /** Nothing can be sent to an NFS client: its attributes expire, and it compares the new ones. */
  readonly invalidator: Invalidator = {
    inode: (ino) => void this.opens.dropReader(ino),
    entry: (folder) => this.#times.entriesChanged(folder),
    firstEntries: (folder) => this.#times.entriesChanged(folder),
    deleted: (folder, _child, name) => {
      this.#times.entriesChanged(folder);
      // Not within the notification: the tree is in the middle of applying a listing.
      setImmediate(() => this.#removedElsewhere(folder, name));
    },
  };
  readonly #rpc: RpcServer;
  readonly #nfs: NfsProgram;
  readonly #mount: MountProgram;
  readonly #handles: FileHandles;
  readonly #times: FolderTimes;
  readonly #removed: RemovedWhileOpen;
  readonly #doubles: AppleDoubles | null;
  readonly #boundary: OpBoundary;
  readonly #ops: FileSystemOps;
  readonly #log: Logger;
  readonly #recorded: RecordedCalls | null;
  #isClosed = false;

  static async start(
    ops: FileSystemOps,
    options: Pick<MountOptions, 'readOnly' | 'allowOther'>,
    deps: NfsServerDeps,
  ): Promise<NfsServer> {
    const { log, clock, bytesCameMs } = deps;
    const boundary = new OpBoundary({ log, clock, deadlineMs: deps.deadlineMs ?? DEADLINE_MS, bytesCameMs });
    const calls = new OpCalls({ ops, boundary });
    const removed = new RemovedWhileOpen({ ops, calls });
    const removedFolders = new RemovedFolders();
    const continued = deps.continued ?? null;
    const handles = new FileHandles(continued?.key);
    const isApple = (deps.platform ?? process.platform) === 'darwin';
    const times = new FolderTimes({ clock, changesMtime: isApple, isContinued: continued !== null });
    const nodes = new Nodes({ ops, calls, handles, removed, removedFolders, times, isApple });
    const opens = new HeldOpens({ ops, calls, clock });
    const doubles = isApple ? new AppleDoubles({ ops, calls, nodes, opens }) : null;
    const parts = { ops, calls, nodes, opens, removed, removedFolders, doubles, isReadOnly: options.readOnly };
    const owner = process.geteuid?.() ?? 0;
    const isServed = (uid: number): boolean => options.allowOther || uid === owner || uid === 0;
    const { callsFile = null } = deps;
    const recorded = callsFile === null ? null : RecordedCalls.open(callsFile, continued !== null);
    const nfs = new NfsProgram(parts, { clock, isServed, recorded });
    const mount = new MountProgram(handles, continued?.path);
    const rpc = await RpcServer.listen({
      programs: [nfs, mount],
      log,
      clock,
      descriptor: deps.descriptor,
      onConnected: deps.onConnected,
    });
    const exported = { path: continued?.path ?? mount.open(rpc.port), port: rpc.port };
    const server = new NfsServer(parts, { exported, rpc, nfs, mount, handles, times, boundary, log, recorded });
    if (continued !== null) server.admit();
    return server;
  }

  private constructor(
    { ops, opens, removed, doubles }: NfsParts,
    own: {
      readonly exported: Export;
      readonly rpc: RpcServer;
      readonly nfs: NfsProgram;
      readonly mount: MountProgram;
      readonly handles: FileHandles;
      readonly times: FolderTimes;
      readonly boundary: OpBoundary;
      readonly log: Logger;
      readonly recorded: RecordedCalls | null;
    },
  ) {
    this.exported = own.exported;
    this.#ops = ops;
    this.opens = opens;
    this.#removed = removed;
    this.#doubles = doubles;
    this.#rpc = own.rpc;
    this.#nfs = own.nfs;
    this.#mount = own.mount;
    this.#handles = own.handles;
    this.#times = own.times;
    this.#boundary = own.boundary;
    this.#log = own.log;
    this.#recorded = own.recorded;
  }

  /** The descriptor of the listening socket; -1: unknown. */
  get descriptor(): number {
    return this.#rpc.descriptor;
  }

  /** What a successor needs. */
  get state(): ContinuedMount {
    return { path: this.exported.path, key: this.#handles.key };
  }

  /** Our own mount command has succeeded: requests are served from now on. */
  admit(): void {
    this.#mount.close();
    this.#nfs.admit();
  }

  /** Closes all connections and files. Idempotent. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#mount.close();
    this.#handles.revoke();
    await this.#rpc.close();
    await this.opens.close();
    await this.#removed.close();
    await this.#nfs.close();
    this.#boundary.close();
    this.#recorded?.close();
    try {
      this.#ops.destroy?.();
    } catch (error) {
      this.#log.error({ err: error }, 'closing the file system failed');
    }
  }

  #removedElsewhere(folder: Inode, name: string): void {
    if (!this.#isClosed) void this.#doubles?.removedElsewhere(folder, name);
  }
}
