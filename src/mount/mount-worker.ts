import { setMaxListeners } from 'node:events';
import { mkdirSync } from 'node:fs';
import { parentPort } from 'node:worker_threads';
import { systemClock } from '../base/clock.ts';
import { collectGarbage } from '../base/collect-garbage.ts';
import { FsError, TransportError } from '../base/errors.ts';
import { createLogger, type Logger } from '../base/log.ts';
import { type Channel, Port } from '../base/port.ts';
import { type ResourceUrl, ROOT_INODE } from '../base/vocabulary.ts';
import type { MountEvent } from '../control/event-model.ts';
import type { ThumbnailCache } from '../fs/thumbnails-ahead.ts';
import type { MountedFileSystem, MountOptions } from '../kernel/binding.ts';
import type { Keeper } from '../kernel/keeper.ts';
import { loadKernelAddon } from '../kernel/kernel-addon.ts';
import { Tree } from '../tree/tree.ts';
import { type BoundMount, bindingOf } from './bindings.ts';
import { assembleMount, type MountParts } from './mount-parts.ts';
import {
  type MainService,
  type Mounted,
  type MountService,
  STOP_ID,
  type StopOutcome,
  type WorkerStart,
} from './mount-seam.ts';
import { firstLeft, pendingChanges } from './pending-changes.ts';
import { RunningSyncs } from './running-syncs.ts';
import { remoteServiceSide } from './service-side.ts';
import { watchersOf } from './watchers/watchers.ts';
import { WorkerCommands } from './worker-commands.ts';

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
  #hasBegun = false;
  #keeper: Keeper | null = null;
  #counting: BoundMount['counting'] = null;
  #stopping: Promise<StopOutcome> | null = null;
  #isUnmounted = false;
  #announcements: ReturnType<typeof watchersOf> = null;
  #handlesKnown: () => void = () => {};
  /** Aborted with a limit in ms when a later `stop` sets one. */
  #hurry = new AbortController();
  /** Aborted by a `stop` with limit 0: pushing ends and the store is released. */
  #enough = new AbortController();
  readonly #syncs = new RunningSyncs();

  constructor(start: WorkerStart, channel: Channel) {
    setMaxListeners(0, this.#shutdown.signal); // every wait for the service adds a listener
    this.#start = start;
    this.#log = createLogger({ level: start.request.options.logLevel, file: start.request.logFile });
    this.#port = new Port(channel);
    this.#port.offer('mount', this);
    this.#main = this.#port.remote<MainService>('main');
    setInterval(() => void this.#main.alive().catch(() => {}), ALIVE_EVERY_MS).unref();
  }

  async loaded(): Promise<void> {}

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
    const commands = new WorkerCommands({
      parts: this.#parts,
      mounted: () => this.#mounted,
      counting: () => this.#counting,
      syncs: this.#syncs,
      onStirred: () => void this.#main.stirred().catch(() => {}),
      log: this.#log,
    });
    this.#port.offer('commands', commands);
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
    const { mounted, descriptor, counting } = await bindingOf(options).mount(how, fileSystem, deps);
    this.#mounted = mounted;
    this.#announcements?.start(mounted);
    this.#counting = counting;
    void mounted.ended.then(() => this.#gone());
    const doesResend = counting?.features.has('resend') === true;
    return { directory: mounted.directory, device: mounted.device, descriptor, doesResend };
  }

  get #isContinued(): boolean {
    return this.#keeper !== null && this.#keeper.generation > 0;
  }

  async begin(): Promise<void> {
    // To load a few hundred unpushed changes takes 50 ms, in which no program is answered.
    if (this.#isContinued) await this.#mounted?.requestsDrained();
    this.#begin();
  }

  #begin(): void {
    if (this.#hasBegun || this.#mounted === null) return;
    this.#hasBegun = true;
    this.#handlesKnown();
    const { sync, pins } = this.#built;
    sync.start(this.#isContinued);
    if (sync.paused === null) pins.start();
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

  async quota(limitBytes: number, usedBytes: number): Promise<void> {
    this.#built.quota.learn({ limitBytes, usedBytes });
  }

  // While the store is being opened, no operation waits for the service. An error would cost V8 a search for all line ends of the bundle.
  async reachable(): Promise<void> {
    this.#parts?.health.reachable();
  }

  async unreachable(): Promise<void> {
    this.#parts?.health.unanswered(new TransportError('the service does not answer'));
  }

  get #built(): MountParts {
    if (this.#parts === null) throw new Error('the store is not open');
    return this.#parts;
  }

  async #stop(timeoutMs: number | null): Promise<StopOutcome> {
    const { sync, freshness, contents, store, fileSystem } = this.#built;
    // The directory already appears mounted, and an unmount may be requested, before the first kernel request is answered.
    await this.#mounting?.catch(() => {});
    this.#begin(); // the sync pushes what is left
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
      const drained = this.#syncs.run(STOP_ID, (onBegin) => sync.drain(drainMs, onBegin, this.#enough.signal));
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
      await this.#syncs.run(STOP_ID, (onBegin) => sync.syncNow(signal, null, onBegin));
      return 0;
    } catch (error) {
      if (sync.paused !== null) return 0;
      if (!signal.aborted) throw error;
      return Number(signal.reason);
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

  #report(event: MountEvent): void {
    if (event.type === 'paused') this.#built.pins.stop();
    if (event.type === 'resumed') this.#built.pins.start();
    void this.#main.event(event).catch(() => {});
  }
}

if (parentPort !== null) {
  const channel = parentPort;
  channel.once('message', (start: WorkerStart) => new MountingWorker(start, channel));
}
