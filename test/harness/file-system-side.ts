import { setMaxListeners } from 'node:events';
import { closeSync, cpSync, mkdtempSync, openSync, readSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { type Logger, silentLogger } from '../../src/base/log.ts';
import { ServiceHealth } from '../../src/base/service-health.ts';
import type { ContentId, Inode, ResourceUrl } from '../../src/base/vocabulary.ts';
import { ContentStore } from '../../src/bytes/content-store.ts';
import type { WritePace } from '../../src/bytes/write-pace.ts';
import { BlockReader } from '../../src/content/block-reader.ts';
import { RacilyCleanFiles } from '../../src/content/racily-clean-files.ts';
import { RequestRetry } from '../../src/content/request-retry.ts';
import type { VersionSource } from '../../src/content/version-source.ts';
import { FileSystem } from '../../src/fs/file-system.ts';
import { PinnedSet } from '../../src/fs/pinned-set.ts';
import type { Disk } from '../../src/store/disk.ts';
import { Store } from '../../src/store/environment.ts';
import { Intents } from '../../src/store/intents.ts';
import { FilesInUse } from '../../src/tree/files-in-use.ts';
import { Freshness } from '../../src/tree/freshness.ts';
import { ListingFence } from '../../src/tree/listing-fence.ts';
import { Names } from '../../src/tree/names.ts';
import { NodeChanges } from '../../src/tree/node-changes.ts';
import type { RemoteListing } from '../../src/tree/remote-listing.ts';
import { Tree } from '../../src/tree/tree.ts';

export const ROOT_RESOURCE = 'http://127.0.0.1/folder/:sc:1:2' as ResourceUrl;

/** A service that has an empty folder and nothing else. */
export const emptyListing: RemoteListing = {
  listPage: async () => ({ entries: [], hasMore: false, serverTimeMs: null }),
  resource: async () => null,
};

/** A service that has no bytes. */
export const noVersions: VersionSource = {
  newestVersion: async () => null,
  versionOfLength: async () => null,
  readVersion: async () => {
    throw new Error('nothing is there to be read');
  },
};

const SEGMENT_BYTES = 256 * 1024;
const CACHE_BYTES = 1024 ** 3;

/** Everything that answers the kernel, in this process, over a store in a temporary directory. */
export class FileSystemSide {
  readonly directory: string;
  readonly health: ServiceHealth;
  readonly store: Store;
  readonly contents: ContentStore;
  readonly names = new Names();
  readonly intents: Intents;
  readonly fence: ListingFence;
  readonly tree: Tree;
  readonly freshness: Freshness;
  readonly reader: BlockReader;
  readonly fileSystem: FileSystem;
  /** Inodes that the sync would have been told of, in order. */
  readonly written: Inode[] = [];
  /** What the parts, and the sync of a test, tell each other. */
  readonly changes = new NodeChanges();
  readonly pinned: PinnedSet;
  readonly inUse = new FilesInUse();
  /** Set by the sync of a test. */
  onDamagedDraft: (content: ContentId) => void = () => {};
  readonly #shutdown = new AbortController();

  private constructor(options: SideOptions, directory: string, store: Store) {
    const clock = options.clock ?? systemClock;
    const log = options.log ?? silentLogger;
    setMaxListeners(0, this.#shutdown.signal);
    this.directory = directory;
    this.health = new ServiceHealth({ clock });
    this.store = store;
    this.pinned = new PinnedSet(store);
    this.changes.on('written', (ino) => this.written.push(ino));
    this.contents = new ContentStore({
      store,
      directory,
      clock,
      log,
      options: { inlineMaxBytes: 16 * 1024, cacheBytes: CACHE_BYTES, ...options.contents },
      isKept: (content) => this.pinned.keeps(content),
      onDamagedDraft: (content) => this.onDamagedDraft(content),
      ...(options.disk && { disk: options.disk }),
      ...(options.pace && { pace: options.pace }),
    });
    const { contents } = this;
    const intents = new Intents(store);
    const fence = new ListingFence({ store, intents });
    this.intents = intents;
    this.fence = fence;
    this.tree = new Tree({
      store,
      contents,
      names: this.names,
      intents,
      fence,
      clock,
      log,
      changes: this.changes,
      openFiles: () => this.inUse.open(),
      options: { saveWindowMs: 60_000, settleMs: 2_000, ...(options.emptyTrash && { emptyTrash: options.emptyTrash }) },
    });
    Tree.createRoot(store, clock, {
      resource: options.root ?? ROOT_RESOURCE,
      uid: process.getuid?.() ?? 0,
      gid: process.getgid?.() ?? 0,
    });
    const { readTimeoutMs = 30_000, openWaitMs = 500 } = options;
    const { cacheBytes = CACHE_BYTES } = options.contents ?? {};
    this.freshness = new Freshness({
      tree: this.tree,
      listing: options.listing ?? emptyListing,
      fence,
      health: this.health,
      clock,
      log,
      revalidate: (folder, signal) => racilyClean.revalidate(folder, signal),
      options: { dirTtlMs: 30_000, openWaitMs, readTimeoutMs },
    });
    const source = options.source ?? noVersions;
    const racilyClean = new RacilyCleanFiles({
      ...{ store, contents, source, clock },
      onOther: (ino, was) => this.changes.emit('remote', [{ kind: 'inode', ino, was }]),
    });
    const shutdown = this.#shutdown.signal;
    const { health } = this;
    const retry = new RequestRetry({ health, clock, log, shutdown, readTimeoutMs });
    this.reader = new BlockReader({ contents, source, clock, log, retry, health, readTimeoutMs, cacheBytes });
    this.fileSystem = new FileSystem({
      tree: this.tree,
      freshness: this.freshness,
      contents,
      prefetcher: this.reader,
      openFile: {
        store,
        contents,
        reader: this.reader,
        source,
        retry,
        clock,
        log,
        shutdown,
        openWaitMs,
        inUse: this.inUse,
        onWritten: (ino) => this.changes.emit('written', ino),
      },
      changes: this.changes,
      clock,
      quota: () => null,
      options: { entryTimeoutMs: 1_000, attributeTimeoutMs: 1_000, readOnly: false },
    });
  }

  static async build(options: SideOptions = {}): Promise<FileSystemSide> {
    const directory = options.directory ?? mkdtempSync(join(tmpdir(), 'cfs-side-'));
    const clock = options.clock ?? systemClock;
    const store = await Store.open({
      directory,
      clock,
      log: silentLogger,
      ...(options.disk && { disk: options.disk }),
      segmentBytes: options.segmentBytes ?? SEGMENT_BYTES,
    });
    return new FileSystemSide(options, directory, store);
  }

  /** What SIGKILL would leave at this moment, in a directory of its own. */
  snapshot(): string {
    const directory = mkdtempSync(join(tmpdir(), 'cfs-side-'));
    const index = join('index', 'data.mdb');
    // In one turn: nothing of ours runs meanwhile but the commits of LMDB, which has a thread for them. What is copied while it commits is
    // nothing that a death leaves: whoever opened it would meet pages that are not there, and SIGBUS.
    let metas: Buffer;
    do {
      metas = beginningOf(join(this.directory, index));
      cpSync(this.directory, directory, { recursive: true });
    } while (
      !metas.equals(beginningOf(join(directory, index))) ||
      !metas.equals(beginningOf(join(this.directory, index)))
    );
    return directory;
  }

  /** Puts everything down; `'keep'` leaves the directory for another side. */
  async close(what: 'remove' | 'keep' = 'remove'): Promise<void> {
    this.freshness.stop();
    this.#shutdown.abort(new Error('the file-system side is closed'));
    this.contents.close();
    await this.store.close();
    if (what === 'remove') rmSync(this.directory, { recursive: true, force: true });
  }
}

/** The two meta pages of LMDB, the later of which a commit writes last. */
function beginningOf(index: string): Buffer {
  const metas = Buffer.alloc(2 * 4096);
  const fd = openSync(index, 'r');
  readSync(fd, metas, 0, metas.byteLength, 0);
  closeSync(fd);
  return metas;
}

export interface SideOptions {
  /** An existing one: the side goes on with what it holds. */
  readonly directory?: string;
  readonly clock?: Clock;
  readonly log?: Logger;
  /** What the root folder is on the service. */
  readonly root?: ResourceUrl;
  readonly listing?: RemoteListing;
  readonly source?: VersionSource;
  /** How long who reads waits for the service; as long as a busy machine takes, unless told. */
  readonly readTimeoutMs?: number;
  /** How long who opens a file waits to learn of a newer version; half a second, unless told. */
  readonly openWaitMs?: number;
  /** What the store's files lie on. */
  readonly disk?: Disk;
  /** Notices when that disk makes writers wait; without: nobody does. */
  readonly pace?: WritePace;
  /** Size of a file of the journal; small, unless told: thousands of file-system sides would write gigabytes. */
  readonly segmentBytes?: number;
  readonly emptyTrash?: 'service';
  readonly contents?: {
    readonly inlineMaxBytes?: number;
    readonly cacheBytes?: number;
    readonly reserveBytes?: number;
  };
}
