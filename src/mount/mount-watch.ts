import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../base/clock.ts';
import type { CallContext, ControlMethods } from '../control/methods.ts';
import type { Status } from '../control/status-model.ts';
import type { TransferState } from '../transfer/transfer-queue.ts';
import type { Activity } from './activity.ts';
import type { EventStream } from './event-stream.ts';

type Watch = ControlMethods['watch'];

/** The status is compared with the one sent last when something happened, but not more often than this. */
const LOOK_MS_MIN = 1_000;
/** Without that: for what happens outside of the store and the events, such as the storage of the account. */
const LOOK_MS_MAX = 30_000;
/** Maximum share of the time for statuses: one with 100,000 pending changes takes long. */
const LOOK_SHARE_MAX = 1 / 50;

/** Serves one `watch` call: the history, then what happens, until the client or the mount is gone. */
export async function watchMount(
  deps: {
    readonly events: EventStream;
    readonly status: () => Promise<Status>;
    readonly activity: Activity;
    readonly clock: Clock;
  },
  { since, follow, status: wantsStatus }: Watch['params'],
  { signal, progress }: CallContext<Watch['progress']>,
): Promise<Watch['result']> {
  const { events, activity, clock } = deps;
  for (const record of events.since(since)) progress({ type: 'event', ...record });
  if (!follow) return { seq: events.lastSeq };
  const unsubscribe = events.subscribe((record) => progress({ type: 'event', ...record }));
  try {
    let shown: Partial<Status> = {};
    while (wantsStatus && !signal.aborted) {
      const seen = activity.count;
      const startedMs = clock.elapsedMs();
      const now = await deps.status();
      const tookMs = clock.elapsedMs() - startedMs;
      if (!isDeepStrictEqual(now.transfers, shown.transfers)) progress({ type: 'transfers', transfers: now.transfers });
      const changed = changedFields(shown, now);
      if (Object.keys(changed).length > 0) progress({ type: 'status', changed });
      shown = now;
      await clock.sleep(Math.max(LOOK_MS_MIN, tookMs / LOOK_SHARE_MAX), signal);
      // A transfer under way changes the status with each packet.
      if (now.transfers.length === 0) await activity.since(seen, LOOK_MS_MAX, signal);
    }
    await aborted(signal);
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    unsubscribe();
  }
  return { seq: events.lastSeq };
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** Without `transfers`, which have a message of their own. */
function changedFields(before: Partial<Status>, now: Status): Partial<Status> {
  const entries = Object.entries(now).filter(
    ([field, value]) => field !== 'transfers' && !isDeepStrictEqual(value, before[field as keyof Status]),
  );
  return Object.fromEntries(entries);
}

/** The name of a transfer in the output: the path of its file, or its URL if the tree does not know the file. */
export function shownTransfer(transfer: TransferState, path: string | null): Status['transfers'][number] {
  return {
    path: path ?? transfer.url,
    direction: transfer.kind === 'upload' ? 'up' : 'down',
    doneBytes: transfer.bytesDone,
    totalBytes: transfer.bytesTotal,
    bytesPerSecond: transfer.bytesPerSecond,
    leftMs:
      transfer.bytesPerSecond > 0
        ? Math.round(((transfer.bytesTotal - transfer.bytesDone) / transfer.bytesPerSecond) * 1000)
        : null,
  };
}
