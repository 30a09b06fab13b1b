import { mkdirSync } from 'node:fs';
import { hostname } from 'node:os';
import { parentPort, workerData } from 'node:worker_threads';
import { systemClock } from '../base/clock.ts';
import { FsError, UsageError } from '../base/errors.ts';
import { createLogger } from '../base/log.ts';
import { type Channel, Port } from '../base/port.ts';
import { type Inode, type ResourceUrl, ROOT_INODE } from '../base/vocabulary.ts';
import { cacheBudget } from '../config/cache-budget.ts';
import { BlockReader } from '../content/block-reader.ts';
import type { VersionSource } from '../content/version-source.ts';
import { LISTED_MAX, type ParkedChange, type PendingChange, type SyncOutcome } from '../control/status-model.ts';
import { FileSystem } from '../fs/file-system.ts';
import type { MountedFileSystem } from '../kernel/binding.ts';
import { mountLinux } from '../kernel/linux.ts';
import { ContentStore } from '../store/content-store.ts';
import { Store } from '../store/environment.ts';
import type { RemoteChanges, UploadService } from '../sync/remote-changes.ts';
import { SyncLoop } from '../sync/sync-loop.ts';
import { Freshness } from '../tree/freshness.ts';
import { Names } from '../tree/names.ts';
import { PushMarks } from '../tree/push-marks.ts';
import type { RemoteListing } from '../tree/remote-listing.ts';
import { Tree } from '../tree/tree.ts';
import { exitCode } from './exit-codes.ts';
import type { MainService, MountService, StopOutcome, WorkerStart, WorkerStatus } from './mount-seam.ts';
import { SyncEvents } from './sync-events.ts';

/**
 * The left tower's composition root: everything that answers the kernel, and the only writer of the store, in a Worker of
 * its own. It cannot spell HTTP: what it needs of the service it calls through the port.
 */

const ALIVE_EVERY_MS = 1_000;
const PLAIN_PUT_BYTES_MAX = 1024 * 1024;

class MountingWorker implements MountService {
  readonly #start: WorkerStart;
  readonly #main: MainService;
  readonly #port: Port;
  readonly #log;
  readonly #shutdown = new AbortController();

  #tower: LeftTower | null = null;
  #mounted: MountedFileSystem | null = null;
  #stopping: Promise<StopOutcome> | null = null;
  #quota: { limitBytes: number; usedBytes: number } | null = null;

  constructor(start: WorkerStart, channel: Channel) {
    this.#start = start;
    this.#log = createLogger({ level: start.request.options.logLevel, file: start.request.logFile });
    this.#port = new Port(channel);
    this.#port.offer('mount', this);
    this.#main = this.#port.remote<MainService>('main');
    setInterval(() => void this.#main.alive().catch(() => {}), ALIVE_EVERY_MS).unref();
  }

  async open(): Promise<{ readonly planted: boolean }> {
    const { request } = this.#start;
    mkdirSync(request.storeDirectory, { recursive: true, mode: 0o700 });
    this.#tower = await this.#build();
    return { planted: this.#tower.store.get('node', ROOT_INODE) !== undefined };
  }

  async plant(root: ResourceUrl): Promise<void> {
    Tree.plant(this.#built.store, systemClock, { resource: root, ...this.#start.owner });
  }

  async mount(): Promise<void> {
    const { request } = this.#start;
    const { options } = request;
    if (options.binding !== 'linux') throw new UsageError(`no binding ${options.binding} in this build`, exitCode('usage'));
    this.#mounted = await mountLinux(
      {
        directory: request.directory,
        fsname: `cfs-mount:${this.#start.accountName}`,
        subtype: 'cfs-mount',
        readOnly: options.readOnly,
        allowOther: options.allowOther,
        defaultPermissions: true,
        flags: ['nosuid', 'nodev'],
        allowNonEmpty: options.nonempty,
        maskedFeatures: options.maskFeatures,
      },
      this.#built.fileSystem,
      { log: this.#log.child({ part: 'kernel' }), clock: systemClock },
    );
    void this.#mounted.ended.then(() => this.#gone());
    this.#built.sync.start();
  }

  stop(timeoutMs: number | null): Promise<StopOutcome> {
    this.#stopping ??= this.#stop(timeoutMs);
    return this.#stopping;
  }

  async status(): Promise<WorkerStatus> {
    const { sync, contents, cacheBytes } = this.#built;
    const status = sync.status();
    const usage = contents.usage();
    const changes: PendingChange[] = [];
    let bytes = 0;
    let count = 0;
    for (const change of sync.pendingChanges()) {
      count++;
      bytes += change.sizeBytes ?? 0;
      if (changes.length < LISTED_MAX) changes.push({ ...change, path: this.#pathOf(change.ino) });
    }
    return {
      pending: { count, bytes, changes },
      parked: status.parked.map((parked) => this.#parked(parked)),
      cache: { usedBytes: usage.cacheBytes, limitBytes: cacheBytes, unsyncedBytes: usage.draftBytes },
    };
  }

  async sync(path: string | null, signal: AbortSignal): Promise<SyncOutcome> {
    const within = path === null ? null : this.#resolve(path);
    const report = await this.#built.sync.syncNow(signal, within);
    return { pushed: report.pushed, parked: report.parked.map((parked) => this.#parked(parked)) };
  }

  async refresh(path: string | null): Promise<void> {
    await this.#built.freshness.refresh(path === null ? undefined : this.#resolve(path));
  }

  async retry(path: string | null): Promise<number> {
    return this.#built.sync.retry(path === null ? undefined : this.#resolve(path));
  }

  async quota(limitBytes: number, usedBytes: number): Promise<void> {
    this.#quota = { limitBytes, usedBytes };
  }

  async signedIn(): Promise<void> {
    this.#built.sync.online();
  }

  get #built(): LeftTower {
    if (this.#tower === null) throw new Error('the store is not open');
    return this.#tower;
  }

  async #build(): Promise<LeftTower> {
    const { request, owner } = this.#start;
    const { options } = request;
    const log = this.#log;
    const clock = systemClock;
    const shutdown = this.#shutdown.signal;
    const cacheBytes = cacheBudget(options, request.storeDirectory);

    const store = await Store.open({ directory: request.storeDirectory, clock, log: log.child({ part: 'store' }) });
    const contents = new ContentStore({
      store,
      directory: request.storeDirectory,
      clock,
      log: log.child({ part: 'contents' }),
      options: { inlineMaxBytes: options.inlineMaxBytes, cacheBytes },
    });
    const names = new Names();
    const marks = new PushMarks({ store });
    const tree = new Tree({
      store,
      contents,
      names,
      marks,
      clock,
      log: log.child({ part: 'tree' }),
      options: {
        saveWindowMs: options.saveWindowMs,
        settleMs: options.settleMs,
        uid: options.uid ?? owner.uid,
        gid: options.gid ?? owner.gid,
        umask: options.umask,
      },
    });
    const freshness = new Freshness({
      tree,
      listing: this.#port.remote<RemoteListing>('listing'),
      marks,
      clock,
      log: log.child({ part: 'freshness' }),
      options: { dirTtlMs: options.dirTtlMs, openWaitMs: options.openWaitMs },
    });
    const source = this.#port.remote<VersionSource>('versions');
    const reader = new BlockReader({
      contents,
      source,
      clock,
      log: log.child({ part: 'reader' }),
      shutdown,
      readTimeoutMs: options.readTimeoutMs,
    });
    const fileSystem: FileSystem = new FileSystem({
      tree,
      freshness,
      contents,
      prefetcher: reader,
      openFile: {
        store,
        contents,
        reader,
        source,
        clock,
        log: log.child({ part: 'content' }),
        shutdown,
        onWritten: (ino) => sync.changed(ino),
      },
      clock,
      log: log.child({ part: 'fs' }),
      quota: () => this.#quota,
      options: { entryTimeoutMs: options.entryTimeoutMs, attributeTimeoutMs: options.attrTimeoutMs, readOnly: options.readOnly },
    });
    const events = new SyncEvents((event) => void this.#main.event(event).catch(() => {}));
    const sync: SyncLoop = new SyncLoop({
      store,
      contents,
      tree,
      names,
      marks,
      changes: this.#port.remote<RemoteChanges>('changes'),
      uploads: this.#port.remote<UploadService>('uploads'),
      complete: (content, extent, signal) => reader.complete(content, extent, signal),
      isOpen: (ino) => fileSystem.files.isOpen(ino),
      isBeingWritten: (ino) => fileSystem.files.isBeingWritten(ino),
      clock,
      log: log.child({ part: 'sync' }),
      onEvent: (event) => events.tell(event),
      options: {
        settleMs: options.settleMs,
        transfers: options.transfers,
        saveWindowMs: options.saveWindowMs,
        delete: options.deletion,
        plainPutMaxBytes: PLAIN_PUT_BYTES_MAX,
        host: hostname(),
      },
    });
    tree.onLocalChange((ino) => sync.changed(ino));
    return { store, contents, tree, freshness, fileSystem, sync, cacheBytes };
  }

  async #stop(timeoutMs: number | null): Promise<StopOutcome> {
    const { sync, freshness, contents, store } = this.#built;
    // "Until everything is pushed" is a wish for the time before the mount goes: it stays usable meanwhile.
    if (timeoutMs === null) await sync.drain(Number.POSITIVE_INFINITY);
    let busy = false;
    if (this.#mounted !== null) {
      try {
        await this.#mounted.unmount('orderly');
      } catch (error) {
        if (!(error instanceof FsError) || error.errno !== 'EBUSY') throw error;
        busy = true;
        await this.#mounted.unmount('lazily');
      }
      if (!busy) await this.#mounted.ended;
    }
    // An unflushed draft of a writer that was still there goes back to its last flush: never half a file as a version.
    if (timeoutMs !== null && timeoutMs > 0) await sync.drain(timeoutMs);
    await sync.stop();
    freshness.stop();
    this.#shutdown.abort(new FsError('EIO', 'the mount is going away'));
    const status = sync.status();
    contents.collect();
    await store.close();
    return { pending: status.pending, parked: status.parked.length, busy };
  }

  /** Unmounted from outside, or the connection broke. */
  #gone(): void {
    if (this.#stopping !== null) return;
    const { drainMs } = this.#start.request.options;
    void this.stop(drainMs).then((outcome) => this.#main.ended(outcome));
  }

  #parked(parked: { readonly ino: Inode; readonly kind: ParkedChange['kind']; readonly detail: string; readonly atMs: number }): ParkedChange {
    return { path: this.#pathOf(parked.ino), kind: parked.kind, reason: parked.detail, sinceMs: parked.atMs };
  }

  /** Where a node is (or, when it was deleted here, where the service has it), below the root. */
  #pathOf(ino: Inode): string {
    const names: string[] = [];
    for (let at = ino; at !== ROOT_INODE && names.length < 1024; ) {
      const node = this.#built.tree.node(at);
      if (node === undefined) break;
      names.unshift(node.local?.name ?? node.remote?.shownAs ?? '');
      at = node.local?.parent ?? node.remote?.parent ?? ROOT_INODE;
    }
    return names.join('/');
  }

  /** @throws UsageError when nothing of that name is known */
  #resolve(path: string): Inode {
    let at = ROOT_INODE;
    for (const name of path.split('/').filter((part) => part !== '' && part !== '.')) {
      const child = this.#built.tree.child(at, name);
      if (child === undefined) throw new UsageError(`no ${path} in this mount`, exitCode('usage'));
      at = child.ino;
    }
    return at;
  }
}

interface LeftTower {
  readonly store: Store;
  readonly contents: ContentStore;
  readonly tree: Tree;
  readonly freshness: Freshness;
  readonly fileSystem: FileSystem;
  readonly sync: SyncLoop;
  readonly cacheBytes: number;
}

if (parentPort !== null) new MountingWorker(workerData as WorkerStart, parentPort);
