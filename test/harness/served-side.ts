import { rmSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { silentLogger } from '../../src/base/log.ts';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { completed } from '../../src/content/completed.ts';
import { HttpService } from '../../src/remote/http/http-service.ts';
import type { SyncEvent } from '../../src/sync/sync-event.ts';
import { SyncLoop } from '../../src/sync/sync-loop.ts';
import { createTransfer } from '../../src/transfer/transfer.ts';
import { HastyClock } from '../remote/client.ts';
import type { TestUser } from '../server/raw-client.ts';
import { ManualClock } from '../tree/tree-fixture.ts';
import { FileSystemSide, type SideOptions } from './file-system-side.ts';
import { InProcessMount } from './in-process-mount.ts';

const SETTLE_MS = 2_000;
/** The most that one turn of `until` lets pass: less than any deadline of a request. */
const STEP_MS = 250;
/**
 * A step takes so long at least: server, disk and the receiver's thread live in the machine's time, and whoever does not get a processor
 * for a moment has not been silent for half a minute.
 */
const STEP_TAKES_MS = 3;
/** Of `until`, for what waits for a disk: no time passes there for us. */
const UNTIL_MS_MAX = 90_000;

/**
 * System calls at one end, HTTP to a real server at the other, all of ours between them in this process. Time passes here as
 * fast as the test asks whether something has come about; over there it is the server's own.
 */
export class ServedSide {
  /** Of everything but the line. */
  readonly clock: ManualClock;
  /** Of the line: it waits for nothing before it tries again. */
  readonly lineClock: HastyClock;
  readonly events: SyncEvent[] = [];
  readonly side: FileSystemSide;
  readonly mount: InProcessMount;
  readonly sync: SyncLoop;
  readonly #service: HttpService;
  #isGone = false;

  private constructor(
    side: FileSystemSide,
    clocks: { clock: ManualClock; lineClock: HastyClock },
    service: HttpService,
    build: SyncBuild,
  ) {
    this.clock = clocks.clock;
    this.lineClock = clocks.lineClock;
    this.side = side;
    this.#service = service;
    this.sync = build(this.events);
    this.mount = new InProcessMount(side.fileSystem);
    side.changes.on('local', (ino) => this.sync.changed(ino));
    side.changes.on('written', (ino) => this.sync.changed(ino));
    this.sync.start();
  }

  /** @param options `directory`: what an earlier one left; `host`: what conflicted copies are named after */
  static async build(user: TestUser, options: ServedTowerOptions = {}): Promise<ServedSide> {
    const { host = 'host', ...rest } = options;
    const clock = new ManualClock();
    const lineClock = new HastyClock();
    const service = new HttpService({
      baseUrl: new URL(user.refreshToken).origin,
      keys: user,
      refreshToken: user.refreshToken,
      clock: lineClock,
      log: silentLogger,
      userAgent: 'cfs-mount/0.0.0 (test)',
    });
    const { listings, versions, changes, uploads } = createTransfer({ service, clock, log: silentLogger });
    const side = await FileSystemSide.build({
      clock,
      root: user.folder('2') as ResourceUrl,
      listing: listings,
      source: versions,
      ...rest,
    });
    const { store, contents, names, intents, reader, fileSystem } = side;
    return new ServedSide(side, { clock, lineClock }, service, (events) => {
      const sync = new SyncLoop({
        store,
        contents,
        names,
        intents,
        vacated: side.tree.vacated,
        changes,
        uploads,
        complete: (content, extent, signal) => completed(reader, content, extent, signal),
        isOpen: (ino) => fileSystem.files.isOpen(ino),
        isBeingWritten: () => false,
        isOpenForWriting: () => false,
        health: side.health,
        clock,
        log: silentLogger,
        onEvent: (event) => events.push(event),
        onTreeChange: (invalidations) => side.changes.emit('remote', invalidations),
        options: {
          settleMs: SETTLE_MS,
          transfers: 4,
          saveWindowMs: 60_000,
          deletion: 'trash',
          plainPutMaxBytes: 1024 * 1024,
          host,
        },
      });
      return sync;
    });
  }

  get isSynced(): boolean {
    const { pending, pushing } = this.sync.status();
    return pending === 0 && pushing === 0;
  }

  /** Time passes until it is so. @throws Error when that does not come about */
  async until(holds: () => boolean, what: string): Promise<void> {
    const begun = performance.now();
    for (let turn = 0; performance.now() - begun < UNTIL_MS_MAX; turn++) {
      if (holds()) return;
      await new Promise((resolve) => setImmediate(resolve));
      if (turn % 8 !== 7) continue;
      await sleep(STEP_TAKES_MS);
      this.clock.advance(STEP_MS);
    }
    throw new Error(`never: ${what}; ${JSON.stringify(this.sync.status())}`);
  }

  /** Until nothing is left to be pushed. */
  converge(): Promise<void> {
    return this.until(() => this.isSynced, 'everything is pushed');
  }

  /**
   * As after SIGKILL: the disk as it is in the middle of things, lines that broke, and another process that knows nothing but
   * what is on the disk. @returns that directory
   */
  async killed(): Promise<string> {
    const directory = this.side.snapshot();
    await this.close();
    return directory;
  }

  async close(): Promise<void> {
    if (this.#isGone) return;
    this.#isGone = true;
    await this.#service.close();
    await this.sync.stop();
    await this.side.close('keep');
    rmSync(this.side.directory, { recursive: true, force: true });
  }
}

type SyncBuild = (events: SyncEvent[]) => SyncLoop;

export type ServedTowerOptions = Pick<SideOptions, 'directory' | 'contents' | 'disk'> & { readonly host?: string };
