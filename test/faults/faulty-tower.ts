import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Clock, systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { ResourceUrl } from '../../src/base/vocabulary.ts';
import { InProcessMount } from '../../src/kernel/in-process.ts';
import { HttpService } from '../../src/remote/http-service.ts';
import { SyncLoop } from '../../src/sync/sync-loop.ts';
import { createTransfer } from '../../src/transfer/transfer.ts';
import { LeftTower } from '../harness/left-tower.ts';
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
const CONVERGE_MS_MAX = 60_000;

/** System calls at one end, the real client and HTTP at the other, everything of ours between them, in this process. */
export class FaultyTower {
  readonly service: HttpService;
  readonly tower: LeftTower;
  readonly sync: SyncLoop;
  readonly mount: InProcessMount;
  readonly #reachable: () => void;

  private constructor(parts: { service: HttpService; tower: LeftTower; sync: SyncLoop; reachable: () => void }) {
    this.service = parts.service;
    this.tower = parts.tower;
    this.sync = parts.sync;
    this.mount = new InProcessMount(parts.tower.fileSystem);
    this.#reachable = parts.reachable;
  }

  /** @param root folder of the account that is mounted */
  static async build(
    origin: string,
    user: Omit<TestUser, 'client' | 'folder'>,
    root: ResourceUrl,
    waits: Waits,
    deletion: 'trash' | 'forever' = 'trash',
  ): Promise<FaultyTower> {
    const { readTimeoutMs, silenceMs } = waits;
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
    const transfer = createTransfer({ service, clock, log });
    let sync: SyncLoop | null = null;
    const tower = await LeftTower.build({
      clock,
      root,
      listing: transfer.listings,
      source: transfer.versions,
      onWritten: (ino) => sync?.changed(ino),
      readTimeoutMs,
    });
    const { store, contents, names, marks, reader, fileSystem } = tower;
    sync = new SyncLoop({
      store,
      contents,
      names,
      marks,
      changes: transfer.changes,
      uploads: transfer.uploads,
      complete: (content, extent, signal) => reader.complete(content, extent, signal),
      isOpen: (ino) => fileSystem.files.isOpen(ino),
      isBeingWritten: () => false,
      clock,
      log,
      onEvent: () => {},
      onTreeChange: (changes) => fileSystem.changedElsewhere(changes),
      options: {
        settleMs: 1,
        transfers: 4,
        saveWindowMs: 60_000,
        deletion,
        plainPutMaxBytes: 1024 * 1024,
        host: 'host',
      },
    });
    const loop = sync;
    tower.tree.onLocalChange((ino) => loop.changed(ino));
    loop.start();
    const reachable = () => {
      tower.freshness.reachable();
      loop.reachable();
    };
    return new FaultyTower({ service, tower, sync, reachable });
  }

  /** Until what is pending was pushed, or it is known why it is not. */
  async settled(): Promise<string> {
    const begunMs = systemClock.elapsedMs();
    for (;;) {
      const { pending, pushing, parked, postponed, offlineSinceMs, signInNeeded } = this.sync.status();
      if (pending === 0 && pushing === 0) return 'done';
      if (signInNeeded) return 'sign in';
      if (offlineSinceMs !== null) return 'offline';
      if (parked.length > 0) return `parked: ${parked[0]?.reason}`;
      if (postponed > 1) return 'tries again';
      if (systemClock.elapsedMs() - begunMs > CONVERGE_MS_MAX) return `stuck: ${JSON.stringify(this.sync.status())}`;
      await nextTurn();
    }
  }

  /** As a person would when the trouble is over: the line is there again, what is parked is tried again. */
  async recover(): Promise<void> {
    this.#reachable();
    const begunMs = systemClock.elapsedMs();
    while (this.sync.status().pending > 0 || this.sync.status().pushing > 0) {
      if (this.sync.status().parked.length > 0 || this.sync.status().signInNeeded) this.sync.retry();
      if (systemClock.elapsedMs() - begunMs > CONVERGE_MS_MAX) {
        throw new Error(`not pushed after the trouble: ${JSON.stringify(this.sync.status())}`);
      }
      await nextTurn();
    }
  }

  /** As `cfs refresh`. */
  refresh(): Promise<void> {
    return this.tower.freshness.refresh();
  }

  async close(): Promise<void> {
    await this.sync.stop();
    await this.service.close();
    await this.tower.close();
  }
}
