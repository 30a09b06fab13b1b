import { setTimeout as sleep } from 'node:timers/promises';
import { type MockInstance, vi } from 'vitest';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { SignInError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { ServiceHealth } from '../../src/base/service-health.ts';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { RequestRetry } from '../../src/content/request-retry.ts';
import { CloudAttributes } from '../../src/fs/cloud-attributes.ts';
import { ComposedFileSystem } from '../../src/fs/composed-file-system.ts';
import { FileHistory } from '../../src/fs/file-history.ts';
import { VersionsDirectory } from '../../src/fs/versions-directory.ts';
import { AccountTree } from '../../src/remote/http/account-tree.ts';
import { HttpService } from '../../src/remote/http/http-service.ts';
import { SyncLoop } from '../../src/sync/sync-loop.ts';
import { createTransfer } from '../../src/transfer/transfer.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';
import type { TestUser } from '../server/raw-client.ts';

/** Time that goes faster, and jitter that is small: retries and patience take milliseconds, in the same proportions. */
const HASTE = 2;
const hastyClock: Clock = {
  nowMs: systemClock.nowMs,
  elapsedMs: () => systemClock.elapsedMs() * HASTE,
  sleep: (ms, signal) => systemClock.sleep(ms / HASTE, signal),
  after: (ms, callback) => systemClock.after(ms / HASTE, callback),
  random: () => 0.02,
};
/** How long somebody waits for the service, and how long silence on a line may last: in life both are 30 s, and whoever reads gives up first. */
export interface Waits {
  readonly readTimeoutMs: number;
  readonly silenceMs: number;
}

/** For what ends by waiting in vain. */
export const SHORT_WAITS: Waits = { readTimeoutMs: HASTE * 1_000, silenceMs: 1_500 };
/** For what is asked again for as long as somebody waits, and refused each time: one answer comes in time on any machine. */
export const SOME_WAITS: Waits = { readTimeoutMs: HASTE * 8_000, silenceMs: 60_000 };
/** For what ends otherwise, however busy the machine. */
export const LONG_WAITS: Waits = { readTimeoutMs: HASTE * 60_000, silenceMs: 60_000 };
const CONVERGE_MS_MAX = 120_000;
/** Between two looks at the sync: who looks without a pause takes the processor from what is looked at. */
const LOOK_MS = 2;

/** System calls at one end, the real client and HTTP at the other, everything of ours between them, in this process. */
export class FaultySide {
  readonly service: HttpService;
  readonly side: FileSystemSide;
  readonly sync: SyncLoop;
  readonly mount: InProcessMount;
  /** The requests without an answer: the pause after one takes ten milliseconds, which a look at `health` can miss. */
  readonly #unanswered: MockInstance<ServiceHealth['unanswered']>;

  private constructor(parts: {
    service: HttpService;
    side: FileSystemSide;
    sync: SyncLoop;
    mounted: ComposedFileSystem;
  }) {
    this.service = parts.service;
    this.side = parts.side;
    this.sync = parts.sync;
    this.mount = new InProcessMount(parts.mounted);
    this.#unanswered = vi.spyOn(this.side.health, 'unanswered');
  }

  static async build(options: SideOptions): Promise<FaultySide> {
    const { origin, user, root } = options;
    const { readTimeoutMs, silenceMs } = options.waits;
    const clock = hastyClock;
    const log = silentLogger;
    const service = new HttpService({
      baseUrl: origin,
      keys: user,
      refreshToken: user.refreshToken,
      userAgent: 'cfs-test/1',
      clock,
      log,
      deadlines: {
        answerMs: silenceMs,
        answerAfterBodyMs: silenceMs,
        bodyMs: silenceMs,
        documentMs: silenceMs * 4,
      },
    });
    const account = new AccountTree({ service, baseUrl: origin, shownName: (name) => name });
    const transfer = createTransfer({
      ...{ service, clock, log, ...(options.shows === 'account' && { reading: account }) },
      ...(options.isDownLimited && { limits: { upBytesPerSecond: null, downBytesPerSecond: 1e12 } }),
    });
    const side = await FileSystemSide.build({
      clock,
      root,
      listing: transfer.listings,
      source: transfer.versions,
      readTimeoutMs,
    });
    const { store, contents, names, intents, reader, fileSystem, changes } = side;
    const sync = new SyncLoop({
      store,
      contents,
      names,
      intents,
      vacated: side.tree.vacated,
      changes: transfer.changes,
      uploads: transfer.uploads,
      complete: (content, extent, signal) => reader.complete(content, extent, signal),
      isOpen: (ino) => fileSystem.files.isOpen(ino),
      isBeingWritten: () => false,
      isOpenForWriting: () => false,
      health: side.health,
      clock,
      log,
      onEvent: () => {},
      onTreeChange: (invalidations) => changes.emit('remote', invalidations),
      options: {
        settleMs: 1,
        transfers: 4,
        saveWindowMs: 60_000,
        deletion: options.deletion ?? 'trash',
        plainPutMaxBytes: 1024 * 1024,
        host: 'host',
      },
    });
    changes.on('local', (ino) => sync.changed(ino));
    changes.on('written', (ino) => sync.changed(ino));
    sync.start();
    const { tree, freshness } = side;
    const shutdown = new AbortController().signal;
    const retry = new RequestRetry({ health: side.health, clock, log, shutdown, readTimeoutMs });
    const source = transfer.versions;
    const history = new FileHistory({ source, retry, clock });
    const mounted = new ComposedFileSystem({
      files: fileSystem,
      versions: new VersionsDirectory({ tree, freshness, history, store, contents, reader }),
      attributes: new CloudAttributes({
        ...{ tree, contents, source, retry },
        links: transfer.links,
        thumbnails: transfer.thumbnails,
        desktop: null,
        stateOf: (ino) => sync.stateOf(ino),
        pins: { kindOf: () => 'none' },
      }),
      tree,
      places: null,
      showVersions: false,
      refused: null,
      trash: null,
    });
    return new FaultySide({ service, side, sync, mounted });
  }

  /** Until what is pending was pushed, or it is known why it is not. */
  async settled(): Promise<string> {
    const begunMs = systemClock.elapsedMs();
    for (;;) {
      const { pending, pushing, parked, postponed } = this.sync.status();
      const failure = this.#unanswered.mock.lastCall?.[0];
      if (failure instanceof SignInError) return 'sign in';
      if (failure !== undefined) return 'offline';
      if (pending === 0 && pushing === 0) return 'done';
      if (parked.length > 0) return `parked: ${parked[0]?.reason}`;
      if (postponed > 1) return 'tries again';
      if (systemClock.elapsedMs() - begunMs > CONVERGE_MS_MAX) return `stuck: ${JSON.stringify(this.sync.status())}`;
      await sleep(LOOK_MS);
    }
  }

  /** As a person would when the trouble is over: the line is there again, what is parked is tried again. */
  async recover(): Promise<void> {
    this.side.health.reachable();
    const begunMs = systemClock.elapsedMs();
    while (this.sync.status().pending > 0 || this.sync.status().pushing > 0) {
      if (this.sync.status().parked.length > 0 || this.side.health.failure instanceof SignInError) this.sync.retry();
      if (systemClock.elapsedMs() - begunMs > CONVERGE_MS_MAX) {
        throw new Error(`not pushed after the trouble: ${JSON.stringify(this.sync.status())}`);
      }
      await sleep(LOOK_MS);
    }
  }

  /** As `cfs refresh`. */
  refresh(): Promise<void> {
    return this.side.freshness.refresh();
  }

  async close(): Promise<void> {
    await this.sync.stop();
    await this.service.close();
    await this.side.close();
  }
}

interface SideOptions {
  readonly origin: string;
  readonly user: Omit<TestUser, 'client' | 'folder'>;
  /** What is mounted: a folder, or the sync folders with all that an account has besides. */
  readonly root: ResourceUrl;
  readonly shows: 'folder' | 'account';
  readonly waits: Waits;
  /** What becomes of what is deleted; the trash has it, unless told. */
  readonly deletion?: 'trash' | 'forever' | undefined;
  readonly isDownLimited?: boolean;
}
