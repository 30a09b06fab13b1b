import { closeSync, openSync, writeSync } from 'node:fs';
import { silentLogger } from '../../src/base/log.ts';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { checkIntents } from '../../src/bytes/consistency-check.ts';
import type { VersionSource } from '../../src/content/version-source.ts';
import { OpenPush } from '../../src/fs/open-push.ts';
import { type Disk, systemDisk } from '../../src/store/disk.ts';
import { SyncLoop } from '../../src/sync/sync-loop.ts';
import type { SyncOptions } from '../../src/sync/sync-options.ts';
import type { RemoteListing } from '../../src/tree/remote-listing.ts';
import { MODEL_ROOT, ModelService } from '../sync/model-service.ts';
import { ManualClock } from '../tree/tree-fixture.ts';
import { checkEachRecord } from './checked-records.ts';
import { FileSystemSide, type SideOptions } from './file-system-side.ts';
import { InProcessMount } from './in-process-mount.ts';

export const SETTLE_MS = 2_000;
const OPEN_PUSH_MS = 5 * 60_000;
const TURNS_MAX = 2_000;

/** System calls at one end, the model of the service at the other, everything of ours between them; time as the test says. */
export class SyncedSide {
  readonly clock: ManualClock;
  readonly service: ModelService;
  readonly side: FileSystemSide;
  readonly sync: SyncLoop;
  readonly mount: InProcessMount;
  readonly #disk: CountingDisk;
  readonly #findings: readonly string[];

  private constructor(
    clock: ManualClock,
    service: ModelService,
    side: FileSystemSide,
    sync: SyncLoop,
    countingDisk: CountingDisk,
  ) {
    this.#disk = countingDisk;
    this.clock = clock;
    this.service = service;
    this.side = side;
    this.sync = sync;
    this.mount = new InProcessMount(side.fileSystem);
    this.#findings = checkEachRecord(side.store, checkIntents);
  }

  /**
   * @param left of which side it takes the store over, with the service and the time that one had
   * @param directory in place of that one's, a copy of it
   */
  static async build({
    heldSyncs = () => 0,
    left,
    deletion = 'trash',
    ...options
  }: Pick<SideOptions, 'contents' | 'directory' | 'disk' | 'pace' | 'segmentBytes' | 'listing' | 'emptyTrash'> & {
    /** How many wait for the disk because the test wants it so. */
    readonly heldSyncs?: () => number;
    readonly left?: SyncedSide;
    readonly deletion?: SyncOptions['deletion'];
  } = {}): Promise<SyncedSide> {
    const clock = left?.clock ?? new ManualClock();
    const service = left?.service ?? new ModelService();
    if (left === undefined) service.auto = () => ({ type: 'answer' });
    const countingDisk = new CountingDisk(options.disk ?? systemDisk, heldSyncs);
    const side = await FileSystemSide.build({
      clock,
      root: MODEL_ROOT,
      listing: listingOf(service),
      source: sourceOf(service),
      ...(left && { directory: left.side.directory }),
      ...options,
      disk: countingDisk.disk,
    });
    const { store, contents, names, intents, reader, fileSystem, changes } = side;
    const sync = new SyncLoop({
      store,
      contents,
      names,
      intents,
      vacated: side.tree.vacated,
      changes: service,
      uploads: service,
      complete: (content, extent, signal) => reader.complete(content, extent, signal),
      isOpen: (ino) => fileSystem.files.isOpen(ino),
      isBeingWritten: (ino) => openPush.isHeldBack(ino),
      isOpenForWriting: (ino) => fileSystem.files.isBeingWritten(ino),
      beforePush: (ino) => side.freshness.beforePush(ino),
      health: side.health,
      clock,
      log: silentLogger,
      onEvent: () => {},
      onTreeChange: (invalidations) => changes.emit('remote', invalidations),
      onSameBytes: (ino, was, is) => fileSystem.files.goOnOver(ino, was, is),
      options: {
        settleMs: SETTLE_MS,
        transfers: 4,
        saveWindowMs: 60_000,
        deletion,
        plainPutMaxBytes: 1024 * 1024,
        host: 'host',
      },
    });
    side.onDamagedDraft = (content) => void sync.makeEvictable([content]);
    const openPush = new OpenPush({
      files: fileSystem.files,
      store,
      clock,
      log: silentLogger,
      push: (ino) => sync.changed(ino),
      openPushMs: OPEN_PUSH_MS,
    });
    openPush.start(new AbortController().signal);
    changes.on('local', (ino) => sync.changed(ino));
    changes.on('written', (ino) => sync.changed(ino));
    sync.start();
    return new SyncedSide(clock, service, side, sync, countingDisk);
  }

  /**
   * Time passes, and everything that needs no more of it happens. What waits for the disk does not need any.
   * @throws Error if a record was unsound (`checkIntents`)
   */
  async pass(ms: number): Promise<void> {
    this.clock.advance(ms);
    for (let calm = 0, turn = 0, seen = -1; calm < 8 && turn < TURNS_MAX; turn++) {
      await new Promise((resolve) => setImmediate(resolve));
      if (this.#disk.isBusy) {
        [calm, turn] = [0, 0];
        continue;
      }
      const now = this.service.requests.length * 1_000 + this.sync.status().pushing;
      calm = now === seen ? calm + 1 : 0;
      seen = now;
    }
    if (this.#findings.length > 0) throw new Error(this.#findings.join('\n'));
  }

  /** Until nothing is left to be pushed. @throws Error when that does not come */
  async converge(): Promise<void> {
    for (let round = 0; round < 400; round++) {
      await this.pass(SETTLE_MS);
      if (this.sync.status().pending === 0) return;
    }
    throw new Error(`not pushed: ${JSON.stringify([...this.side.store.all('dirty')])}`);
  }

  /** `'keep'` leaves the store's directory for another side. */
  async close(what: 'remove' | 'keep' = 'remove'): Promise<void> {
    await this.sync.stop();
    await this.side.close(what);
  }
}

/** Knows whether somebody waits for it. */
class CountingDisk {
  readonly disk: Disk;
  readonly #held: () => number;
  #waiting = 0;

  constructor(disk: Disk, held: () => number) {
    this.#held = held;
    const counted = async (work: () => Promise<void>): Promise<void> => {
      this.#waiting += 1;
      try {
        await work();
      } finally {
        this.#waiting -= 1;
      }
    };
    this.disk = {
      ...disk,
      sync: (fd) => counted(() => disk.sync(fd)),
      syncDirectory: (path) => counted(() => disk.syncDirectory(path)),
    };
  }

  get isBusy(): boolean {
    return this.#waiting > this.#held();
  }
}

export function listingOf(service: ModelService): RemoteListing {
  return {
    listPage: async (folder: ResourceUrl) => ({ entries: service.listing(folder), hasMore: false, serverTimeMs: null }),
    resource: async (url: ResourceUrl) => service.look(url),
  };
}

export function sourceOf(service: ModelService): VersionSource {
  return {
    newestVersion: async (file) => {
      const [version, ...older] = service.history(file).filter(({ complete }) => complete);
      return version === undefined ? null : { ...version, isFirst: older.length === 0 && service.keptVersions > 0 };
    },
    versionOfLength: async (file, sizeBytes) =>
      service.history(file).find((version) => version.complete && version.sizeBytes === sizeBytes) ?? null,
    readVersion: async (version, extent, _sizeBytes, target) => {
      const bytes = service.bytesOfVersion(version)?.subarray(extent.start, extent.end);
      if (bytes === undefined) throw new Error(`no ${version}`);
      if (target.kind === 'memory') return { extent, bytes };
      const file = openSync(target.path, 'r+');
      writeSync(file, bytes, 0, bytes.byteLength, extent.start);
      closeSync(file);
      return { extent, bytes: null };
    },
  };
}
