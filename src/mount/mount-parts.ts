import { statfsSync } from 'node:fs';
import { hostname } from 'node:os';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import { ServiceHealth } from '../base/service-health.ts';
import { maintainContents } from '../bytes/content-maintenance.ts';
import { ContentStore } from '../bytes/content-store.ts';
import { WritePace } from '../bytes/write-pace.ts';
import { cacheBudget } from '../config/cache-budget.ts';
import type { Options } from '../config/options.ts';
import { BlockReader } from '../content/block-reader.ts';
import { completed } from '../content/completed.ts';
import { RacilyCleanFiles } from '../content/racily-clean-files.ts';
import { RequestRetry } from '../content/request-retry.ts';
import type { MountEvent } from '../control/event-model.ts';
import { AccountQuota } from '../fs/account-quota.ts';
import type { ComposedFileSystem } from '../fs/composed-file-system.ts';
import { FileSystem } from '../fs/file-system.ts';
import { OpenPush } from '../fs/open-push.ts';
import { PinnedSet } from '../fs/pinned-set.ts';
import type { Pins } from '../fs/pins.ts';
import type { ThumbnailCache } from '../fs/thumbnails-ahead.ts';
import { Store } from '../store/environment.ts';
import { Intents } from '../store/intents.ts';
import type { StoreReader } from '../store/tables.ts';
import { pathIn, pathOf } from '../sync/sync-event.ts';
import { SyncLoop } from '../sync/sync-loop.ts';
import { AccountPlaces } from '../tree/account-places.ts';
import { FilesInUse } from '../tree/files-in-use.ts';
import { Freshness } from '../tree/freshness.ts';
import { ListingFence } from '../tree/listing-fence.ts';
import { LOCAL_NAMES, Names } from '../tree/names.ts';
import { NodeChanges } from '../tree/node-changes.ts';
import type { ReceivedChange } from '../tree/received-changes.ts';
import { releaseNames } from '../tree/released-names.ts';
import { Tree } from '../tree/tree.ts';
import { withAdditions } from './mount-additions.ts';
import type { ServiceSide } from './service-side.ts';

/** A new file's first bytes up to this size go in one request. */
const PLAIN_PUT_BYTES_MAX = 1024 * 1024;

/** How many files that became pushable are named in the log. */
const NAMED_MAX = 20;

/** The file-system side of one mount: everything between the kernel and the service side. */
export interface MountParts {
  readonly store: Store;
  readonly contents: ContentStore;
  readonly tree: Tree;
  readonly freshness: Freshness;
  readonly health: ServiceHealth;
  readonly reader: BlockReader;
  readonly fileSystem: FileSystem;
  readonly mounted: ComposedFileSystem;
  readonly pins: Pins;
  readonly pinned: PinnedSet;
  readonly quota: AccountQuota;
  readonly sync: SyncLoop;
  readonly cacheBytes: number;
  readonly changes: NodeChanges;
}

export interface AssemblyDeps {
  readonly storeDirectory: string;
  readonly options: Options;
  /** Owner of what the service brings, unless the options say otherwise. */
  readonly owner: { readonly uid: number; readonly gid: number };
  readonly service: ServiceSide;
  /** The thumbnail cache of a desktop; absent: none. */
  readonly thumbnailCache?: ThumbnailCache;
  readonly log: Logger;
  readonly clock: Clock;
  readonly shutdown: AbortSignal;
  readonly onEvent: (event: MountEvent) => void;
  /** A mounting process whose lock of the store is void; 0: none. */
  readonly predecessor?: number;
  /** Contents are collected from then on: before it, the handles of an earlier process are not known. Absent: immediately. */
  readonly handlesKnown?: Promise<void>;
}

/**
 * Opens the store and assembles the file-system side on it, in the order in which the parts need each other. The emitter of node
 * changes and the registry of open files come first: through them the parts learn of each other. Housekeeping begins immediately;
 * the caller starts sync and pins.
 *
 * @throws UsageError when another process owns the store, or a newer version of this program wrote it
 */
export async function assembleMount(deps: AssemblyDeps): Promise<MountParts> {
  const { options, owner, service, log, clock, shutdown, storeDirectory } = deps;
  const { readTimeoutMs, openWaitMs } = options;
  const source = service.versions;
  const disk = statfsSync(storeDirectory);
  const { cacheBytes, reserveBytes } = cacheBudget(options, {
    freeBytes: disk.bavail * disk.bsize,
    totalBytes: disk.blocks * disk.bsize,
  });

  const changes = new NodeChanges();
  const inUse = new FilesInUse();
  const openFiles = () => inUse.open();
  const store = await Store.open({
    ...{ directory: storeDirectory, clock, predecessor: deps.predecessor ?? 0 },
    log: log.child({ part: 'store' }),
  });
  const pinned = new PinnedSet(store);
  const contents = new ContentStore({
    store,
    directory: storeDirectory,
    clock,
    log: log.child({ part: 'contents' }),
    isKept: (content) => pinned.keeps(content),
    onEviction: ({ reason, bytes, contents: files }) => deps.onEvent({ type: 'evicted', reason, bytes, files }),
    // If the service has it, its version is fetched.
    onDamagedDraft: (content) => void sync.makeEvictable([content]).catch(() => {}),
    pace: new WritePace({ clock }),
    options: { inlineMaxBytes: options.inlineMaxBytes, cacheBytes, reserveBytes },
  });
  const quota = new AccountQuota(store);
  const names = namesOf({ store, clock, log }, options.localOnly);
  const intents = new Intents(store);
  const fence = new ListingFence({ store, intents });
  const tree = new Tree({
    ...{ store, contents, names, intents, fence, clock, changes, openFiles },
    log: log.child({ part: 'tree' }),
    onTakenBack: (ino, copy) => {
      const copied = copy === null ? null : pathOf(store, copy);
      deps.onEvent({ type: 'taken-back', path: pathOf(store, ino), copy: copied });
    },
    onReceived: (changes) => {
      for (const change of changes) deps.onEvent(receivedEvent(store, change));
    },
    options: {
      saveWindowMs: options.saveWindowMs,
      settleMs: options.settleMs,
      emptyTrash: options.emptyTrash,
      uid: options.uid ?? owner.uid,
      gid: options.gid ?? owner.gid,
      umask: options.umask,
    },
  });
  const racilyClean = new RacilyCleanFiles({
    ...{ store, contents, source, clock },
    onOther: (ino, was) => changes.emit('remote', [{ kind: 'inode', ino, was }]),
  });
  const places = options.root === 'account' ? new AccountPlaces({ store }) : null;
  const health = new ServiceHealth({ clock });
  const freshness = new Freshness({
    ...{ tree, fence, health, clock, openFiles },
    listing: places?.noting(service.listings) ?? service.listings,
    log: log.child({ part: 'freshness' }),
    onHeld: ({ at, nodes }) => deps.onEvent({ type: 'held-back', path: pathOf(store, at), nodes }),
    revalidate: (folder, signal) => racilyClean.revalidate(folder, signal),
    options: { dirTtlMs: options.dirTtlMs, openWaitMs, readTimeoutMs },
  });
  const retry = new RequestRetry({ health, clock, log: log.child({ part: 'retry' }), shutdown, readTimeoutMs });
  const reader = new BlockReader({
    ...{ contents, source, clock, retry, health, readTimeoutMs, cacheBytes },
    log: log.child({ part: 'reader' }),
  });
  const fileSystem = new FileSystem({
    ...{ tree, freshness, contents, changes, clock },
    prefetcher: reader,
    openFile: {
      ...{ store, contents, reader, source, retry, clock, shutdown, openWaitMs, inUse },
      log: log.child({ part: 'content' }),
      onWritten: (ino) => changes.emit('written', ino),
    },
    quota: () => quota.known,
    options: {
      entryTimeoutMs: options.entryTimeoutMs,
      attributeTimeoutMs: options.attrTimeoutMs,
      readOnly: options.readOnly,
    },
  });
  const { files } = fileSystem;
  const openPush = new OpenPush({
    ...{ files, store, clock },
    log: log.child({ part: 'open-push' }),
    push: (ino) => changes.emit('written', ino),
    openPushMs: options.openPushMs,
  });
  const sync = new SyncLoop({
    ...{ store, contents, names, intents, health, clock },
    vacated: tree.vacated,
    changes: service.changes,
    uploads: service.uploads,
    complete: (content, extent, signal) => completed(reader, content, extent, signal),
    isOpen: (ino) => files.isOpen(ino),
    isBeingWritten: (ino) => openPush.isHeldBack(ino),
    isOpenForWriting: (ino) => files.isBeingWritten(ino),
    beforePush: (ino) => freshness.beforePush(ino),
    log: log.child({ part: 'sync' }),
    onEvent: deps.onEvent,
    onTreeChange: (invalidations) => changes.emit('remote', invalidations),
    onSameBytes: (ino, was, is) => files.goOnOver(ino, was, is),
    options: {
      settleMs: options.settleMs,
      transfers: options.transfers,
      saveWindowMs: options.saveWindowMs,
      deletion: options.deletion,
      plainPutMaxBytes: PLAIN_PUT_BYTES_MAX,
      host: hostname(),
    },
  });
  const additions = withAdditions({
    ...{ store, contents, tree, freshness, fileSystem, reader, source, retry, health, places, changes, pinned },
    ...{ clock, shutdown, options, owner },
    links: service.links,
    thumbnails: service.thumbnails,
    thumbnailCache: deps.thumbnailCache ?? null,
    log: log.child({ part: 'pins' }),
    onPin: ({ ino, files, bytes, isComplete, trouble }) => {
      const path = pathOf(store, ino);
      if (isComplete) deps.onEvent({ type: 'pin-complete', path, files, bytes });
      else if (trouble !== null) deps.onEvent({ type: 'pin-stuck', path, reason: trouble });
    },
    stateOf: (ino) => sync.stateOf(ino),
  });
  changes.on('written', (ino) => sync.changed(ino));
  changes.on('local', (ino) => sync.changed(ino));
  openPush.start(shutdown);
  const maintain = () => maintainContents(contents, { clock, log: log.child({ part: 'contents' }) }, shutdown);
  void (deps.handlesKnown === undefined ? maintain() : deps.handlesKnown.then(maintain));
  return {
    ...{ store, contents, tree, freshness, health, reader, fileSystem, sync, quota, cacheBytes, pinned },
    changes,
    ...additions,
  };
}

function receivedEvent(store: StoreReader, change: ReceivedChange): MountEvent {
  if (change.type === 'renamed-elsewhere')
    return { type: change.type, from: pathIn(store, change.from), to: pathIn(store, change.to) };
  const { type, change: kind, count } = change;
  if (typeof change.at === 'number') return { type, change: kind, path: pathOf(store, change.at), count };
  const { at, url } = change as Extract<ReceivedChange, { readonly count: 1 }>;
  return { type, change: kind, path: pathIn(store, at), count, ...(url !== undefined && { url }) };
}

/** Local names by the options; files that were local only before are pushed from now on. */
function namesOf(
  { store, clock, log }: { readonly store: Store; readonly clock: Clock; readonly log: Logger },
  localOnly: readonly string[],
): Names {
  const localNames = [...LOCAL_NAMES, ...localOnly];
  const released = releaseNames(store, localNames, clock.nowMs());
  if (released.length > 0) {
    const paths = released.slice(0, NAMED_MAX).map((ino) => pathOf(store, ino));
    log.info({ count: released.length, paths }, 'files that stayed local by their names are pushed from now on');
  }
  return new Names({ localNames });
}
