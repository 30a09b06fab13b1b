import { hostname } from 'node:os';
import { UsageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { LogLevel } from '../base/log-level.ts';
import { type ContentId, type Extent, type Inode, type ResourceUrl, ROOT_INODE } from '../base/vocabulary.ts';
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
import type { MountedFileSystem } from '../kernel/binding.ts';
import type { Pause } from '../sync/push-pause.ts';
import { pathOf, type ParkedChange as SyncParkedChange } from '../sync/sync-event.ts';
import type { SyncLeft } from '../sync/sync-request.ts';
import { localFolders } from '../tree/local-folders.ts';
import type { BoundMount } from './bindings.ts';
import { conflictCopies } from './conflict-copies.ts';
import { evictBelow } from './evict-below.ts';
import { exitCode } from './exit-codes.ts';
import { folderPage } from './folder-page.ts';
import { localFilesOf } from './local-files.ts';
import { pinnedPath } from './mount-additions.ts';
import type { MountParts } from './mount-parts.ts';
import type { MountCommands, WorkerMetrics, WorkerStatus } from './mount-seam.ts';
import { parkReasonText } from './park-reason.ts';
import { pathOfUrl } from './path-of-url.ts';
import { namesOf, pathStates } from './path-states.ts';
import { partsHere, pendingChanges, type UnsyncedPart, unsyncedFiles } from './pending-changes.ts';
import type { RunningSyncs } from './running-syncs.ts';

export interface WorkerCommandsDeps {
  readonly parts: MountParts;
  /** Null before the kernel has been answered. */
  readonly mounted: () => MountedFileSystem | null;
  readonly counting: () => BoundMount['counting'];
  readonly syncs: RunningSyncs;
  /** The store has changed since the last `status`. */
  readonly onStirred: () => void;
  readonly log: Logger;
}

/** The commands on an open store, in the Worker: here paths become nodes. */
export class WorkerCommands implements MountCommands {
  readonly #parts: MountParts;
  readonly #mounted: WorkerCommandsDeps['mounted'];
  readonly #counting: WorkerCommandsDeps['counting'];
  readonly #syncs: RunningSyncs;
  readonly #onStirred: () => void;
  readonly #log: Logger;

  constructor({ parts, mounted, counting, syncs, onStirred, log }: WorkerCommandsDeps) {
    this.#parts = parts;
    this.#mounted = mounted;
    this.#counting = counting;
    this.#syncs = syncs;
    this.#onStirred = onStirred;
    this.#log = log;
  }

  async status(urls: readonly string[]): Promise<WorkerStatus> {
    const { store, sync, contents, cacheBytes } = this.#parts;
    store.onNextChange = this.#onStirred;
    const { pending, parked } = await pendingChanges(store, sync.changes());
    const usage = contents.usage();
    return {
      paths: urls.map((url) => pathOfUrl(store, url)),
      pending,
      parked: parked.map((parked) => this.#parked(parked)),
      held: this.#held(),
      localFolders: localFolders(store).map((ino) => pathOf(store, ino)),
      local: await localFilesOf(store),
      pinned: this.#parts.pins.states.map((state) => pinnedPath(store, state)),
      paused: sync.paused,
      cache: { usedBytes: usage.diskBytes, limitBytes: cacheBytes, unsyncedBytes: usage.draftBytes },
    };
  }

  async sync(path: string | null, id: number, signal: AbortSignal): Promise<SyncOutcome> {
    await this.#mounted()?.requestsDrained();
    const within = path === null ? null : this.#resolve(path);
    const report = await this.#syncs.run(id, (onBegin) => this.#parts.sync.syncNow(signal, within, onBegin));
    return { ...report, parked: report.parked.map((parked) => this.#parked(parked)) };
  }

  async refresh(path: string | null, accept: boolean): Promise<readonly HeldRemoval[]> {
    const { freshness, tree } = this.#parts;
    const node = path === null ? undefined : tree.node(await this.#lookFor(path));
    // A file is refreshed by the listing of its folder.
    const folder = node?.kind === 'folder' ? node.ino : node?.local?.parent;
    await freshness.refresh(folder, { accept });
    await this.#mounted()?.notificationsFlushed();
    return this.#held();
  }

  async retry(path: string | null): Promise<number> {
    const { sync } = this.#parts;
    const before = sync.status().parked.length;
    sync.retry(path === null ? undefined : this.#resolve(path));
    return before - sync.status().parked.length;
  }

  async conflicts(path: string | null): Promise<ControlMethods['conflicts']['result']> {
    return await conflictCopies(this.#parts.store, this.#resolve(path ?? ''), hostname());
  }

  async pause(untilMs: number | null): Promise<void> {
    this.#parts.sync.pause(untilMs);
  }

  async resume(): Promise<boolean> {
    return this.#parts.sync.resume();
  }

  async paused(): Promise<Pause | null> {
    return this.#parts.sync.paused;
  }

  async discard(path: string | null, isSure: boolean): Promise<readonly DiscardedChange[]> {
    const given = await this.#parts.sync.discard(this.#resolve(path ?? ''), isSure ? 'discard' : 'preview');
    await this.#mounted()?.notificationsFlushed();
    return given;
  }

  async left(id: number): Promise<SyncLeft | null> {
    return this.#syncs.left(id);
  }

  async pin(path: string, how: 'always' | 'once'): Promise<Inode> {
    const ino = await this.#lookFor(path);
    this.#parts.pins.pin(ino, how);
    return ino;
  }

  async endOnce(ino: Inode): Promise<void> {
    this.#parts.pins.endOnce(ino);
  }

  async evict(path: string): Promise<Evicted> {
    const { store, contents, pinned, sync } = this.#parts;
    const makeEvictable = (ids: readonly ContentId[]): Promise<boolean> => sync.makeEvictable(ids);
    return await evictBelow({ store, contents, pins: pinned, makeEvictable }, this.#resolve(path));
  }

  async unpin(path: string): Promise<boolean> {
    return this.#parts.pins.unpin(this.#resolve(path));
  }

  async pinned(ino: Inode): Promise<PinnedPath | null> {
    const state = this.#parts.pins.stateOf(ino);
    return state === undefined ? null : pinnedPath(this.#parts.store, state);
  }

  async locate(path: string): Promise<Located> {
    const { store, tree } = this.#parts;
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
    const { store } = this.#parts;
    return resources.map((resource) => {
      const ino = store.get('resource', resource as ResourceUrl);
      const node = ino === undefined ? undefined : this.#parts.tree.node(ino);
      return node?.local == null ? null : pathOf(store, node.ino);
    });
  }

  async folder(path: string, after: string | null): Promise<ControlMethods['folder']['result']> {
    return await folderPage(this.#parts, this.#resolve(path), after);
  }

  states(paths: readonly string[]): ReturnType<typeof pathStates> {
    return pathStates(this.#parts, paths);
  }

  async copyAttributes(path: string, from: string): Promise<void> {
    this.#parts.fileSystem.copyAttributes(this.#resolve(path), this.#resolve(from));
    await this.#mounted()?.notificationsFlushed();
  }

  async unsynced(after: number): Promise<{ readonly files: readonly UnsyncedFile[]; readonly next: number | null }> {
    return unsyncedFiles(this.#parts.store, after);
  }

  async unsyncedParts(ino: number, extent: Extent): Promise<readonly UnsyncedPart[]> {
    const { store, contents } = this.#parts;
    return partsHere(contents, store.get('node', ino as Inode)?.local?.content ?? null, extent);
  }

  async metrics(): Promise<WorkerMetrics> {
    const { sync, contents, reader, store, cacheBytes } = this.#parts;
    const { pending, parked } = await pendingChanges(store, sync.changes());
    const usage = contents.usage();
    return {
      operations: [...(this.#counting()?.metrics() ?? [])].map(([operation, { operations, ...rest }]) => ({
        operation,
        count: operations,
        ...rest,
      })),
      operationsWaiting: this.#counting()?.state().pendingOperations ?? 0,
      reads: reader.reads,
      cache: { usedBytes: usage.diskBytes, limitBytes: cacheBytes, unsyncedBytes: usage.draftBytes },
      queue: { pending: pending.count, pendingBytes: pending.bytes, parked: parked.length, postponed: sync.postponed },
    };
  }

  async logLevel(level: LogLevel): Promise<void> {
    this.#log.level = level;
  }

  #held(): readonly HeldRemoval[] {
    const { store, freshness } = this.#parts;
    return freshness.heldRemovals.map(({ at, nodes }) => ({ path: pathOf(store, at), nodes }));
  }

  #parked({ path, kind, reason, detail, atMs }: SyncParkedChange): ParkedChange {
    return { path, kind, reason: parkReasonText(reason, detail), sinceMs: atMs };
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
    const { tree, freshness } = this.#parts;
    let at = ROOT_INODE;
    for (const name of namesOf(path)) {
      if (tree.child(at, name) === undefined && tree.node(at)?.kind === 'folder') await freshness.refresh(at);
      at = this.#childOf(at, name, path);
    }
    return at;
  }

  #childOf(folder: Inode, name: string, path: string): Inode {
    const child = this.#parts.tree.child(folder, name);
    if (child === undefined) throw new UsageError(`there is no ${path} in this mount`, exitCode('missing'));
    return child.ino;
  }
}
