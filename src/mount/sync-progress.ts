import type { Clock } from '../base/clock.ts';
import type { SyncProgress } from '../control/status-model.ts';
import type { SyncLeft } from '../sync/sync-request.ts';

/** Interval between progress reports. */
const REPORT_EVERY_MS = 250;

/**
 * Reports the progress of a push. `left` is null before it began and after it ended. `underWayBytes` counts the bytes sent by
 * running uploads, whose files `left` still counts in full.
 */
export async function withProgress<T>(
  deps: {
    readonly clock: Clock;
    readonly left: () => Promise<SyncLeft | null>;
    readonly underWayBytes: () => number;
    /** Why the service does not answer; null while it does. */
    readonly waitsFor: () => string | null;
    readonly report: (progress: SyncProgress) => void;
  },
  work: () => Promise<T>,
): Promise<T> {
  let total: SyncLeft | null = null;
  const look = async (): Promise<void> => {
    const left = await deps.left();
    if (left === null) return;
    total ??= left;
    deps.report({ ...progressOf(total, left, deps.underWayBytes()), waitsFor: deps.waitsFor() });
  };
  let isOver = false;
  let cancel = (): void => {};
  const again = (): void => {
    // A mount that is ending answers no more requests. The outcome is reported instead.
    const looked = look().catch(() => {});
    void looked.then(() => {
      if (!isOver) cancel = deps.clock.after(REPORT_EVERY_MS, again);
    });
  };
  const outcome = work();
  again();
  try {
    return await outcome;
  } finally {
    isOver = true;
    cancel();
  }
}

/** `total`: the amount at the start. The set of files does not grow, but a file may. */
export function progressOf(total: SyncLeft, left: SyncLeft, underWayBytes: number): Omit<SyncProgress, 'waitsFor'> {
  const totalBytes = Math.max(total.bytes, left.bytes);
  return {
    doneChanges: Math.max(0, total.changes - left.changes),
    totalChanges: total.changes,
    doneBytes: Math.min(totalBytes, totalBytes - left.bytes + Math.min(underWayBytes, left.bytes)),
    totalBytes,
  };
}
