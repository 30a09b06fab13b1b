import type { Clock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import type { Logger } from '../base/log.ts';
import type { LogLevel } from '../base/log-level.ts';
import type { Inode } from '../base/vocabulary.ts';
import type { MountEvent } from '../control/event-model.ts';
import type { CallContext, ControlHandlers } from '../control/methods.ts';
import type { MountMetrics } from '../control/mount-metrics.ts';
import type { PinnedPath, RateLimits, Status, SyncProgress } from '../control/status-model.ts';
import { pausedError } from '../sync/push-pause.ts';
import type { Transfer } from '../transfer/transfer.ts';
import type { Activity } from './activity.ts';
import type { EventStream } from './event-stream.ts';
import { type MountCommands, STOP_ID, type StopOutcome } from './mount-seam.ts';
import { watchMount } from './mount-watch.ts';
import type { UpgradeOffer } from './upgrade.ts';

const PIN_PROGRESS_MS = 200;

export interface ControlHandlersDeps {
  /** The mount point. */
  readonly directory: string;
  readonly mount: MountCommands;
  readonly events: EventStream;
  readonly publish: (event: MountEvent) => void;
  readonly status: () => Promise<Status>;
  readonly activity: Activity;
  readonly metrics: () => Promise<MountMetrics>;
  readonly upgrade: (offer: UpgradeOffer) => Promise<void>;
  /** Unmounts and drains for up to so long; null: until nothing is left. */
  readonly stop: (timeoutMs: number | null) => Promise<StopOutcome>;
  /** Reports the progress of a `sync` or a stop by its number. */
  readonly withProgress: <T>(id: number, tell: (progress: SyncProgress) => void, work: () => Promise<T>) => Promise<T>;
  readonly limits: Pick<Transfer, 'upLimit' | 'downLimit'>;
  readonly clock: Clock;
  readonly log: Logger;
}

/** The calls of the control socket in a running mount. */
export function controlHandlers(deps: ControlHandlersDeps): ControlHandlers {
  const { mount, events, publish, status, activity, clock, log } = deps;
  let lastSync = STOP_ID;
  const waiting = async (): Promise<number> => (await mount.metrics()).queue.pending;
  return {
    status,
    sync: async ({ path, wait }, { signal, progress }) => {
      const id = ++lastSync;
      if (wait) return deps.withProgress(id, progress, () => mount.sync(path, id, signal));
      // The caller does not wait for the outcome, so a missing file and a pause are reported now.
      if (path !== null) await mount.locate(path);
      const paused = await mount.paused();
      if (paused !== null) throw pausedError(paused);
      mount.sync(path, id, new AbortController().signal).catch((err: unknown) => log.warn({ err }, 'sync failed'));
      return { pushed: 0, parked: [], open: 0 };
    },
    umount: ({ timeoutMs }, { progress }) => deps.withProgress(STOP_ID, progress, () => deps.stop(timeoutMs)),
    refresh: async ({ path, accept }) => ({ held: await mount.refresh(path, accept === true) }),
    retry: async ({ path }) => ({ retried: await mount.retry(path) }),
    conflicts: ({ path }) => mount.conflicts(path),
    pause: async ({ untilMs }) => {
      await mount.pause(untilMs);
      return { waiting: await waiting() };
    },
    resume: async () => {
      const wasPaused = await mount.resume();
      return { wasPaused, waiting: await waiting() };
    },
    discard: async ({ path, isSure }) => ({ given: await mount.discard(path, isSure) }),
    pin: ({ path, once }, call) => pin(deps, path ?? '', once === true ? 'once' : 'always', call),
    evict: async ({ path }) => {
      const evicted = await mount.evict(path ?? '');
      const { files, bytes } = evicted;
      if (files > 0) publish({ type: 'evicted', reason: 'asked', files, bytes });
      return evicted;
    },
    unpin: async ({ path }) => {
      const wasPinned = await mount.unpin(path ?? '');
      if (wasPinned) publish({ type: 'unpinned', path: path ?? '' });
      return { wasPinned };
    },
    locate: ({ path }) => mount.locate(path ?? ''),
    paths: async ({ resources }) => ({ paths: await mount.paths(resources) }),
    states: async ({ paths }) => ({ directory: deps.directory, states: await mount.states(paths) }),
    folder: ({ path, after }) => mount.folder(path, after),
    copyAttributes: async ({ path, from }) => {
      await mount.copyAttributes(path, from);
      return null;
    },
    unsynced: ({ after }) => mount.unsynced(after),
    unsyncedParts: async ({ ino, start, end }) => ({
      parts: (await mount.unsyncedParts(ino, { start, end })).map(({ length, bytes }) => ({
        length,
        base64: bytes === null ? null : Buffer.from(bytes).toString('base64'),
      })),
    }),
    watch: (params, call) => watchMount({ events, status, activity, clock }, params, call),
    limit: (wanted) => limit(deps, wanted),
    upgrade: async (offer) => {
      await deps.upgrade(offer as UpgradeOffer);
      return null;
    },
    metrics: deps.metrics,
    logLevel: async ({ level }) => {
      if (level !== null) {
        log.level = level;
        await mount.logLevel(level);
      }
      return { level: log.level as LogLevel };
    },
  };
}

function limit({ limits, publish }: ControlHandlersDeps, { up, down }: Partial<RateLimits>): RateLimits {
  const { upLimit, downLimit } = limits;
  if (up !== undefined) upLimit.bytesPerSecond = up;
  if (down !== undefined) downLimit.bytesPerSecond = down;
  const now = { up: upLimit.bytesPerSecond, down: downLimit.bytesPerSecond };
  if (up !== undefined || down !== undefined) publish({ type: 'limited', ...now });
  return now;
}

async function pin(
  deps: ControlHandlersDeps,
  path: string,
  how: 'always' | 'once',
  call: CallContext<PinnedPath>,
): Promise<PinnedPath> {
  const ino = await deps.mount.pin(path, how);
  if (how === 'always') deps.publish({ type: 'pinned', path });
  try {
    return await fetchPinned(deps, ino, path, call);
  } finally {
    if (how === 'once') await deps.mount.endOnce(ino);
  }
}

async function fetchPinned(
  { mount, clock }: ControlHandlersDeps,
  ino: Inode,
  path: string,
  { progress, signal }: CallContext<PinnedPath>,
): Promise<PinnedPath> {
  for (;;) {
    const pinned = await mount.pinned(ino);
    if (pinned === null) throw new UsageError(`${path} is no longer pinned`);
    if (pinned.isComplete || pinned.trouble !== null) return pinned;
    const paused = await mount.paused();
    if (paused !== null) return { ...pinned, trouble: pausedError(paused).message };
    progress(pinned);
    await clock.sleep(PIN_PROGRESS_MS, signal);
  }
}
