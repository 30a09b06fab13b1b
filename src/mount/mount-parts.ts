import { statfsSync } from 'node:fs';
import { hostname } from 'node:os';
import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { Port } from '../base/port.ts';
import { maintainContents } from '../bytes/content-maintenance.ts';
import { ContentStore } from '../bytes/content-store.ts';
import { WritePace } from '../bytes/write-pace.ts';
import { cacheBudget } from '../config/cache-budget.ts';
import { BlockReader } from '../content/block-reader.ts';
import { completed } from '../content/completed.ts';
import { Patience } from '../content/patience.ts';
import { RacilyCleanFiles } from '../content/racily-clean-files.ts';
import type { VersionHistory, VersionSource } from '../content/version-source.ts';
import { AccountQuota } from '../fs/account-quota.ts';
import type { PublicLinks } from '../fs/cloud-attributes.ts';
import type { ComposedFileSystem } from '../fs/composed-file-system.ts';
import { FileSystem } from '../fs/file-system.ts';
import { OpenPush } from '../fs/open-push.ts';
import type { Pins } from '../fs/pins.ts';
import { Store } from '../store/environment.ts';
import type { RemoteChanges, UploadService } from '../sync/remote-changes.ts';
import { pathOf, type SyncEvent } from '../sync/sync-event.ts';
import { SyncLoop } from '../sync/sync-loop.ts';
import { AccountPlaces } from '../tree/account-places.ts';
import { Freshness } from '../tree/freshness.ts';
import { LOCAL_NAMES, Names } from '../tree/names.ts';
import { PushMarks } from '../tree/push-marks.ts';
import { releaseNames } from '../tree/released-names.ts';
import type { RemoteListing } from '../tree/remote-listing.ts';
import { Tree } from '../tree/tree.ts';
import { LocalFiles } from './local-files.ts';
import { withAdditions } from './mount-additions.ts';
import type { WorkerStart } from './mount-seam.ts';

/** A new file's first bytes up to this size go in one request. */
const PLAIN_PUT_BYTES_MAX = 1024 * 1024;

/** Of the files that travel from now on so many are named in the log. */
const NAMED_MAX = 20;

/** Everything between the kernel and the port, as one mount has it. */
export interface LeftTower {
  readonly store: Store;
  readonly contents: ContentStore;
  readonly tree: Tree;
  readonly freshness: Freshness;
  readonly patience: Patience;
  readonly reader: BlockReader;
  readonly fileSystem: FileSystem;
  readonly mounted: ComposedFileSystem;
  readonly pins: Pins;
  readonly quota: AccountQuota;
  readonly sync: SyncLoop;
  readonly cacheBytes: number;
  readonly localFiles: LocalFiles;
}

export interface LeftTowerDeps {
  readonly start: WorkerStart;
  /** The main thread, which knows the service. */
  readonly port: Port;
  readonly log: Logger;
  readonly clock: Clock;
  readonly shutdown: AbortSignal;
  readonly onEvent: (event: SyncEvent) => void;
}

/**
 * Opens the store and puts together what stands on it. Housekeeping begins at once; sync and pins are for the caller to start.
 *
 * @throws UsageError when another process owns the store, or a newer version of this program wrote it
 */
export async function buildLeftTower(deps: LeftTowerDeps): Promise<LeftTower> {
  const { port, log, clock, shutdown } = deps;
  const { request, owner } = deps.start;
  const { options } = request;
  const disk = statfsSync(request.storeDirectory);
  const { cacheBytes, reserveBytes } = cacheBudget(options, {
    freeBytes: disk.bavail * disk.bsize,
    totalBytes: disk.blocks * disk.bsize,
  });

  const store = await Store.open({ directory: request.storeDirectory, clock, log: log.child({ part: 'store' }) });
  // Made last: it needs all that is made before.
  let pins: Pins | null = null;
  const contents = new ContentStore({
    store,
    directory: request.storeDirectory,
    clock,
    log: log.child({ part: 'contents' }),
    isKept: (content) => pins?.keeps(content) ?? false,
    pace: new WritePace({ clock }),
    options: { inlineMaxBytes: options.inlineMaxBytes, cacheBytes, reserveBytes },
  });
  const quota = new AccountQuota(store);
  const localNames = [...LOCAL_NAMES, ...options.localOnly];
  const names = new Names({ localNames });
  const released = releaseNames(store, localNames, clock.nowMs());
  if (released.length > 0) {
    const paths = released.slice(0, NAMED_MAX).map((ino) => pathOf(store, ino));
    log.info({ count: released.length, paths }, 'files that stayed local by their names are pushed from now on');
  }
  const marks = new PushMarks({ store });
  const tree = new Tree({
    store,
    contents,
    names,
    marks,
    clock,
    log: log.child({ part: 'tree' }),
    openFiles: () => fileSystem.files.inUse(),
    onTakenBack: (ino, copy) => {
      const copied = copy === null ? null : pathOf(store, copy);
      deps.onEvent({ type: 'taken-back', path: pathOf(store, ino), copy: copied });
    },
    options: {
      saveWindowMs: options.saveWindowMs,
      settleMs: options.settleMs,
      uid: options.uid ?? owner.uid,
      gid: options.gid ?? owner.gid,
      umask: options.umask,
    },
  });
  const places = options.root === 'account' ? new AccountPlaces({ store }) : null;
  const listing = port.remote<RemoteListing>('listing');
  const freshness = new Freshness({
    tree,
    listing: places?.noting(listing) ?? listing,
    marks,
    clock,
    log: log.child({ part: 'freshness' }),
    onHeld: ({ at, nodes }) => deps.onEvent({ type: 'held-back', path: pathOf(store, at), nodes }),
    openFiles: () => fileSystem.files.files,
    revalidate: (folder, signal) => racilyClean.revalidate(folder, signal),
    options: { dirTtlMs: options.dirTtlMs, openWaitMs: options.openWaitMs, readTimeoutMs: options.readTimeoutMs },
  });
  const source = port.remote<VersionSource & VersionHistory>('versions');
  const racilyClean = new RacilyCleanFiles({
    ...{ store, contents, source, clock },
    onOther: (ino, was) => fileSystem.changedElsewhere([{ kind: 'inode', ino, was }]),
  });
  const { readTimeoutMs } = options;
  const patience = new Patience({ clock, log: log.child({ part: 'patience' }), shutdown, readTimeoutMs });
  const reader = new BlockReader({
    contents,
    source,
    clock,
    log: log.child({ part: 'reader' }),
    patience,
    readTimeoutMs,
    cacheBytes,
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
      patience,
      clock,
      log: log.child({ part: 'content' }),
      shutdown,
      openWaitMs: options.openWaitMs,
      onWritten: (ino) => sync.changed(ino),
    },
    clock,
    quota: () => quota.known,
    options: {
      entryTimeoutMs: options.entryTimeoutMs,
      attributeTimeoutMs: options.attrTimeoutMs,
      readOnly: options.readOnly,
    },
  });
  const sync: SyncLoop = new SyncLoop({
    store,
    contents,
    names,
    marks,
    changes: port.remote<RemoteChanges>('changes'),
    uploads: port.remote<UploadService>('uploads'),
    complete: (content, extent, signal) => completed(reader, content, extent, signal),
    isOpen: (ino) => fileSystem.files.isOpen(ino),
    isBeingWritten: (ino) => openPush.isHeldBack(ino),
    isOpenForWriting: (ino) => fileSystem.files.isBeingWritten(ino),
    beforePush: (ino) => freshness.beforePush(ino),
    clock,
    log: log.child({ part: 'sync' }),
    onEvent: deps.onEvent,
    onTreeChange: (changes) => fileSystem.changedElsewhere(changes),
    onSameBytes: (ino, was, is) => fileSystem.files.goOnOver(ino, was, is),
    options: {
      settleMs: options.settleMs,
      transfers: options.transfers,
      saveWindowMs: options.saveWindowMs,
      deletion: options.deletion,
      plainPutMaxBytes: PLAIN_PUT_BYTES_MAX,
      host: hostname(),
    },
  });
  const openPush = new OpenPush({
    files: fileSystem.files,
    store,
    clock,
    log: log.child({ part: 'open-push' }),
    push: (ino) => sync.changed(ino),
    openPushMs: options.openPushMs,
  });
  openPush.start(shutdown);
  const additions = withAdditions({
    ...{ store, contents, tree, freshness, fileSystem, reader, source, patience, places, clock, shutdown, options },
    links: port.remote<PublicLinks>('links'),
    log: log.child({ part: 'pins' }),
    stateOf: (ino) => sync.stateOf(ino),
  });
  pins = additions.pins;
  tree.onLocalChange((ino) => sync.changed(ino));
  const localFiles = new LocalFiles(store);
  tree.onLocalChange((ino) => localFiles.changed(ino));
  void maintainContents(contents, { clock, log: log.child({ part: 'contents' }) }, shutdown);
  return {
    store,
    contents,
    tree,
    freshness,
    patience,
    reader,
    fileSystem,
    ...additions,
    sync,
    quota,
    cacheBytes,
    localFiles,
  };
}
