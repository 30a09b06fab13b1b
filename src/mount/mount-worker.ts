import { setMaxListeners } from 'node:events';
import { mkdirSync } from 'node:fs';
import { hostname } from 'node:os';
import { parentPort, workerData } from 'node:worker_threads';
import { systemClock } from '../base/clock.ts';
import { collectGarbage } from '../base/collect-garbage.ts';
import { FsError, TransportError, UsageError } from '../base/errors.ts';
import { createLogger, type Logger } from '../base/log.ts';
import type { LogLevel } from '../base/log-level.ts';
import { type Channel, Port } from '../base/port.ts';
import { type ContentId, type Extent, type Inode, type ResourceUrl, ROOT_INODE } from '../base/vocabulary.ts';
import type { MountEvent } from '../control/event-model.ts';
import type { ControlMethods } from '../control/methods.ts';
import type {
  DiscardedChange,
  Evicted,
  HeldRemoval,
  Located,
  ParkedChange,
  PinnedPath,
  SyncOutcome,
  UnsyncedFile,
} from '../control/status-model.ts';
import type { ThumbnailCache } from '../fs/thumbnails-ahead.ts';
import type { MountedFileSystem, MountOptions } from '../kernel/binding.ts';
import type { Keeper } from '../kernel/keeper.ts';
import { loadKernelAddon } from '../kernel/kernel-addon.ts';
import type { Pause } from '../sync/push-pause.ts';
import { pathOf, type ParkedChange as SyncParkedChange } from '../sync/sync-event.ts';
import type { SyncLeft } from '../sync/sync-request.ts';
import { localFolders } from '../tree/local-folders.ts';
import { Tree } from '../tree/tree.ts';
import { type BoundMount, bindingOf } from './bindings.ts';
import { conflictCopies } from './conflict-copies.ts';
import { evictBelow } from './evict-below.ts';
import { exitCode } from './exit-codes.ts';
import { folderPage } from './folder-page.ts';
import { pinnedPath } from './mount-additions.ts';
import { assembleMount, type MountParts } from './mount-parts.ts';
import {
  type MainService,
  type Mounted,
  type MountService,
  STOP_ID,
  type StopOutcome,
  type WorkerMetrics,
  type WorkerStart,
  type WorkerStatus,
} from './mount-seam.ts';
import { parkReasonText } from './park-reason.ts';
import { pathOfUrl } from './path-of-url.ts';
import { namesOf, pathStates } from './path-states.ts';
import { firstLeft, partsHere, pendingChanges, type UnsyncedPart, unsyncedFiles } from './pending-changes.ts';
import { remoteServiceSide } from './service-side.ts';
import { watchersOf } from './watchers/watchers.ts';

/**
 * The composition root of the file-system side, in a Worker of its own: it answers the kernel and is the only writer of the store. It
 * has no HTTP code: it calls the service through the port.
 */

const ALIVE_EVERY_MS = 5_000;

class MountingWorker implements MountService {
  readonly #start: WorkerStart;
  readonly #main: MainService;
  readonly #port: Port;
  readonly #log: Logger;
  readonly #shutdown = new AbortController();

  #parts: MountParts | null = null;
  #mounted: MountedFileSystem | null = null;
  #mounting: Promise<Mounted> | null = null;
  #keeper: Keeper | null = null;
  #counting: BoundMount['counting'] = null;
  #handOver: BoundMount['handOver'] | null = null;
  #stopping: Promise<StopOutcome> | null = null;
  #isUnmounted = false;
  #announcements: ReturnType<typeof watchersOf> = null;
  #handlesKnown: () => void = () => {};
  /** Aborted with a limit in ms when a later `stop` sets one. */
  #hurry = new AbortController();
  /** Aborted by a `stop` with limit 0: pushing ends and the store is released. */
  #enough = new AbortController();
  /** Functions that return the remaining work, by the number of a `sync`. */
  readonly #left = new Map<number, () => SyncLeft>();

  constructor(start: WorkerStart, channel: Channel) {
    setMaxListeners(0, this.#shutdown.signal); // every wait for the service adds a listener
    this.#start = start;
    this.#log = createLogger({ level: start.request.options.logLevel, file: start.request.logFile });
    this.#port = new Port(channel);
    this.#port.offer('mount', this);
    this.#main = this.#port.remote<MainService>('main');
    setInterval(() => void this.#main.alive().catch(() => {}), ALIVE_EVERY_MS).unref();
  }

  async load(): Promise<void> {
    await import('../kernel/linux.ts');
    loadKernelAddon();
    collectGarbage();
  }

  async open(keeper: Keeper | null): Promise<{ readonly hasRoot: boolean }> {
    const { request } = this.#start;
    this.#keeper = keeper;
    mkdirSync(request.storeDirectory, { recursive: true, mode: 0o700 });
    this.#parts = await assembleMount({
      storeDirectory: request.storeDirectory,
      options: request.options,
      owner: this.#start.owner,
      service: remoteServiceSide(this.#port),
      thumbnailCache: this.#port.remote<ThumbnailCache>('thumbnailCache'),
      log: this.#log,
      clock: systemClock,
      shutdown: this.#shutdown.signal,
      onEvent: (event) => this.#report(event),
      predecessor: keeper?.predecessor ?? 0,
      ...(keeper !== null && { handlesKnown: new Promise((known) => (this.#handlesKnown = known)) }),
    });
    return { hasRoot: this.#parts.store.get('node', ROOT_INODE) !== undefined };
  }

  async createRoot(root: ResourceUrl): Promise<void> {
    Tree.createRoot(this.#built.store, systemClock, { resource: root, ...this.#start.owner });
  }

  mount(): Promise<Mounted> {
    this.#mounting = this.#mountNow();
    return this.#mounting;
  }

  async #mountNow(): Promise<Mounted> {
    const { request } = this.#start;
    const { options } = request;
    const how: MountOptions = {
      directory: request.directory,
      fsname: request.words.fsname ?? `cfs-mount:${this.#start.accountName}`,
      subtype: 'cfs-mount',
      readOnly: options.readOnly,
      allowOther: options.allowOther,
      defaultPermissions: true,
      flags: ['nosuid', 'nodev', ...request.words.flags],
      allowNonEmpty: options.nonempty,
      maskedFeatures: options.maskFeatures,
    };
    // Waits for the service time out on their own; this deadline is for operations that never answer.
    const deadlineMs = options.readTimeoutMs + 30_000;
    const { mounted: fileSystem, health } = this.#built;
    const bytesCameMs = () => health.bytesCameMs;
    const continuity = this.#keeper === null ? null : { keeper: this.#keeper, journal: this.#built.store };
    const { storeDirectory, foreground: isForeground } = request;
    this.#announcements = watchersOf(this.#built, options, this.#log);
    const deps = {
      ...{ log: this.#log.child({ part: 'kernel' }), clock: systemClock, deadlineMs, bytesCameMs },
      ...{ continuity, storeDirectory, isForeground, helper: this.#announcements?.calls ?? null },
    };
    const { mounted, descriptor, counting, handOver } = await bindingOf(options).mount(how, fileSystem, deps);
    this.#mounted = mounted;
    this.#handOver = handOver ?? null;
    this.#announcements?.start(mounted);
    this.#handlesKnown();
    this.#counting = counting;
    void mounted.ended.then(() => this.#gone());
    this.#built.sync.start();
    if (this.#built.sync.paused === null) this.#built.pins.start();
    const doesResend = counting?.features.has('resend') === true;
    return { directory: mounted.directory, device: mounted.device, descriptor, doesResend };
  }

  async handOver(): Promise<void> {
    await this.#handOver?.();
  }

  stop(timeoutMs: number | null): Promise<StopOutcome> {
    // A stop with a limit overrides an unlimited one: the service may stay away for long.
    if (this.#stopping !== null && timeoutMs !== null) this.#hurry.abort(timeoutMs);
    if (this.#stopping !== null && timeoutMs === 0) this.#enough.abort();
    this.#stopping ??= this.#stop(timeoutMs).catch((error) => {
      if (!this.#isUnmounted) {
        // Still mounted: the next stop retries with its own limit.
        this.#stopping = null;
        this.#hurry = new AbortController();
        this.#enough = new AbortController();
      }
      throw error;
    });
    return this.#stopping;
  }

  async status(urls: readonly string[]): Promise<WorkerStatus> {
    const { store, sync, contents, cacheBytes } = this.#built;
    store.onNextChange = () => void this.#main.stirred().catch(() => {});
    const { pending, parked } = await pendingChanges(store, sync.changes());
    const usage = contents.usage();
    return {
      paths: urls.map((url) => pathOfUrl(store, url)),
      pending,
      parked: parked.map((parked) => this.#parked(parked)),
      held: this.#held(),
      localFolders: localFolders(store).map((ino) => pathOf(store, ino)),
      local: await this.#built.localFiles.status(),
      pinned: this.#built.pins.states.map((state) => pinnedPath(store, state)),
      paused: sync.paused,
      cache: { usedBytes: usage.diskBytes, limitBytes: cacheBytes, unsyncedBytes: usage.draftBytes },
    };
  }

  async sync(path: string | null, id: number, signal: AbortSignal): Promise<SyncOutcome> {
    await this.#mounted?.requestsDrained();
    const within = path === null ? null : this.#resolve(path);
    const report = await this.#watched(id, (onBegin) => this.#built.sync.syncNow(signal, within, onBegin));
    return { ...report, parked: report.parked.map((parked) => this.#parked(parked)) };
  }

  async refresh(path: string | null, accept: boolean): Promise<readonly HeldRemoval[]> {
    const { freshness, tree } = this.#built;
    const node = path === null ? undefined : tree.node(await this.#lookFor(path));
    // A file is refreshed by the listing of its folder.
    const folder = node?.kind === 'folder' ? node.ino : node?.local?.parent;
    await freshness.refresh(folder, { accept });
    await this.#mounted?.notificationsFlushed();
    return this.#held();
  }

  async retry(path: string | null): Promise<number> {
    const { sync } = this.#built;
    const before = sync.status().parked.length;
    sync.retry(path === null ? undefined : this.#resolve(path));
    return before - sync.status().parked.length;
  }

  async conflicts(path: string | null): Promise<ControlMethods['conflicts']['result']> {
    return await conflictCopies(this.#built.store, this.#resolve(path ?? ''), hostname());
  }

  async pause(untilMs: number | null): Promise<void> {
    this.#built.sync.pause(untilMs);
  }

  async resume(): Promise<boolean> {
    return this.#built.sync.resume();
  }

  async paused(): Promise<Pause | null> {
    return this.#built.sync.paused;
  }

  async discard(path: string | null, isSure: boolean): Promise<readonly DiscardedChange[]> {
    const given = await this.#built.sync.discard(this.#resolve(path ?? ''), isSure ? 'discard' : 'preview');
    await this.#mounted?.notificationsFlushed();
    return given;
  }

  async left(id: number): Promise<SyncLeft | null> {
    return this.#left.get(id)?.() ?? null;
  }

  async pin(path: string, how: 'always' | 'once'): Promise<Inode> {
    const ino = await this.#lookFor(path);
    this.#built.pins.pin(ino, how);
    return ino;
  }

  async endOnce(ino: Inode): Promise<void> {
    this.#built.pins.endOnce(ino);
  }

  async evict(path: string): Promise<Evicted> {
    const { store, contents, pinned, sync } = this.#built;
    const makeEvictable = (ids: readonly ContentId[]): Promise<boolean> => sync.makeEvictable(ids);
    return await evictBelow({ store, contents, pins: pinned, makeEvictable }, this.#resolve(path));
  }

  async unpin(path: string): Promise<boolean> {
    return this.#built.pins.unpin(this.#resolve(path));
  }

  async pinned(ino: Inode): Promise<PinnedPath | null> {
    const state = this.#built.pins.stateOf(ino);
    return state === undefined ? null : pinnedPath(this.#built.store, state);
  }

  async locate(path: string): Promise<Located> {
    const { store, tree } = this.#built;
    const node = tree.node(this.#resolve(path));
    if (node === undefined) throw new UsageError(`there is no ${path} in this mount`, exitCode('missing'));
    return {
      path,
      kind: node.kind,
      sizeBytes: node.local?.sizeBytes ?? 0,
      resource: node.remote?.resource ?? null,
      isPending: store.get('dirty', node.ino) !== undefined,
    };
  }

  async paths(resources: readonly string[]): Promise<readonly (string | null)[]> {
    const { store } = this.#built;
    return resources.map((resource) => {
      const ino = store.get('resource', resource as ResourceUrl);
      const node = ino === undefined ? undefined : this.#built.tree.node(ino);
      return node?.local == null ? null : pathOf(store, node.ino);
    });
  }

  async folder(path: string, after: string | null): Promise<ControlMethods['folder']['result']> {
    return await folderPage(this.#built, this.#resolve(path), after);
  }

  states(paths: readonly string[]): ReturnType<typeof pathStates> {
    return pathStates(this.#built, paths);
  }

  async copyAttributes(path: string, from: string): Promise<void> {
    this.#built.fileSystem.copyAttributes(this.#resolve(path), this.#resolve(from));
    await this.#mounted?.notificationsFlushed();
  }

  async unsynced(after: number): Promise<{ readonly files: readonly UnsyncedFile[]; readonly next: number | null }> {
    return unsyncedFiles(this.#built.store, after);
  }

  async unsyncedParts(ino: number, extent: Extent): Promise<readonly UnsyncedPart[]> {
    const { store, contents } = this.#built;
    return partsHere(contents, store.get('node', ino as Inode)?.local?.content ?? null, extent);
  }

  async metrics(): Promise<WorkerMetrics> {
    const { sync, contents, reader, store, cacheBytes } = this.#built;
    const { pending, parked } = await pendingChanges(store, sync.changes());
    const usage = contents.usage();
    return {
      operations: [...(this.#counting?.metrics() ?? [])].map(([operation, { operations, ...rest }]) => ({
        operation,
        count: operations,
        ...rest,
      })),
      operationsWaiting: this.#counting?.state().pendingOperations ?? 0,
      reads: reader.reads,
      cache: { usedBytes: usage.diskBytes, limitBytes: cacheBytes, unsyncedBytes: usage.draftBytes },
      queue: { pending: pending.count, pendingBytes: pending.bytes, parked: parked.length, postponed: sync.postponed },
    };
  }

  async logLevel(level: LogLevel): Promise<void> {
    this.#log.level = level;
  }

  async quota(limitBytes: number, usedBytes: number): Promise<void> {
    this.#built.quota.learn({ limitBytes, usedBytes });
  }

  async reachable(): Promise<void> {
    this.#built.health.reachable();
  }

  async unreachable(): Promise<void> {
    this.#built.health.unanswered(new TransportError('the service does not answer'));
  }

  get #built(): MountParts {
    if (this.#parts === null) throw new Error('the store is not open');
    return this.#parts;
  }

  async #stop(timeoutMs: number | null): Promise<StopOutcome> {
    const { sync, freshness, contents, store, fileSystem } = this.#built;
    // The directory already appears mounted, and an unmount may be requested, before the first kernel request is answered.
    await this.#mounting?.catch(() => {});
    // "Until everything is pushed" comes before the unmount: the mount stays usable meanwhile.
    const drainMs = timeoutMs ?? (await this.#pushAll());
    const isPaused = (): boolean => sync.paused !== null;
    let busy = false;
    if (this.#mounted !== null) {
      await this.#announcements?.stop();
      try {
        await this.#mounted.unmount('orderly');
      } catch (error) {
        if (!(error instanceof FsError) || error.errno !== 'EBUSY') throw error;
        busy = true;
        await this.#mounted.unmount('lazily');
      }
      if (!busy && (await this.#mounted.ended) === 'unmounted') fileSystem.unmounted();
    }
    this.#isUnmounted = true;
    // An unflushed draft of an open writer goes back to its last flush, so that no half file becomes a version.
    // A failed push must not prevent closing the store, which has all changes.
    if (drainMs > 0 && !isPaused()) {
      const drained = this.#watched(STOP_ID, (onBegin) => sync.drain(drainMs, onBegin, this.#enough.signal));
      await drained.catch((err) => this.#log.error({ err }, 'not pushed at the end'));
    }
    this.#built.pins.stop();
    await sync.stop();
    freshness.stop();
    this.#shutdown.abort(new FsError('EIO', 'the mount is going away'));
    const status = sync.status();
    const { pending } = await pendingChanges(store, sync.changes());
    const left = firstLeft(pending.changes, status.parked);
    try {
      contents.collect();
    } catch (err) {
      this.#log.warn({ err }, 'contents not collected at the end');
    }
    // Nothing is mounted any more. A failure now (a read-only or missing disk) must not keep the process alive: the next start
    // would wait permanently. The store is complete.
    const outcome = { pending: status.pending, parked: status.parked.length, left, busy };
    for (const end of [() => contents.close(), () => this.#main.puttingDown(outcome), () => store.close()]) {
      try {
        await end();
      } catch (err) {
        this.#log.error({ err }, 'stop failed');
      }
    }
    return outcome;
  }

  /** Pushes until nothing is left or a limit is set. @returns the time to continue after the unmount, ms */
  async #pushAll(): Promise<number> {
    const { signal } = this.#hurry;
    const { sync } = this.#built;
    try {
      await this.#watched(STOP_ID, (onBegin) => sync.syncNow(signal, null, onBegin));
      return 0;
    } catch (error) {
      if (sync.paused !== null) return 0;
      if (!signal.aborted) throw error;
      return Number(signal.reason);
    }
  }

  /** Runs a sync; `left(id)` returns its remaining work meanwhile. */
  async #watched<T>(id: number, push: (onBegin: (left: () => SyncLeft) => void) => Promise<T>): Promise<T> {
    try {
      return await push((left) => this.#left.set(id, left));
    } finally {
      this.#left.delete(id);
    }
  }

  /** Unmounted from outside, or the connection broke. */
  #gone(): void {
    const { drainMs } = this.#start.request.options;
    if (this.#stopping !== null) {
      this.#hurry.abort(drainMs);
      return;
    }
    void this.#main.draining().catch(() => {});
    void this.stop(drainMs).then((outcome) => this.#main.ended(outcome));
  }

  #held(): readonly HeldRemoval[] {
    const { store, freshness } = this.#built;
    return freshness.heldRemovals.map(({ at, nodes }) => ({ path: pathOf(store, at), nodes }));
  }

  #parked({ path, kind, reason, detail, atMs }: SyncParkedChange): ParkedChange {
    return { path, kind, reason: parkReasonText(reason, detail), sinceMs: atMs };
  }

  #report(event: MountEvent): void {
    if (event.type === 'paused') this.#built.pins.stop();
    if (event.type === 'resumed') this.#built.pins.start();
    void this.#main.event(event).catch(() => {});
  }

  /** @throws UsageError if the path is unknown */
  #resolve(path: string): Inode {
    let at = ROOT_INODE;
    for (const name of namesOf(path)) at = this.#childOf(at, name, path);
    return at;
  }

  /**
   * Like `#resolve`, also for names that are not cached yet or are new on the service: lists the folder of an unknown name first.
   *
   * @throws UsageError if the path does not exist · the errors of `Freshness.refresh`
   */
  async #lookFor(path: string): Promise<Inode> {
    const { tree, freshness } = this.#built;
    let at = ROOT_INODE;
    for (const name of namesOf(path)) {
      if (tree.child(at, name) === undefined && tree.node(at)?.kind === 'folder') await freshness.refresh(at);
      at = this.#childOf(at, name, path);
    }
    return at;
  }

  #childOf(folder: Inode, name: string, path: string): Inode {
    const child = this.#built.tree.child(folder, name);
    if (child === undefined) throw new UsageError(`there is no ${path} in this mount`, exitCode('missing'));
    return child.ino;
  }
}

if (parentPort !== null) new MountingWorker(workerData as WorkerStart, parentPort);
