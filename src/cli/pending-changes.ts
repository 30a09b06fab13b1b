import { LISTED_MAX, type PendingChange } from '../control/status-model.ts';
import type { StoreReader } from '../store/tables.ts';
import { pathOf, type PendingChange as SyncPendingChange } from '../sync/sync-event.ts';

/** What the service does not have yet, for `cfs status`: everything counted, the first ones listed. */
export function pendingChanges(
  store: StoreReader,
  pending: Iterable<SyncPendingChange>,
): { readonly count: number; readonly bytes: number; readonly changes: readonly PendingChange[] } {
  const changes: PendingChange[] = [];
  let count = 0;
  let bytes = 0;
  for (const { ino, ...change } of pending) {
    count++;
    bytes += change.sizeBytes ?? 0;
    if (changes.length < LISTED_MAX) changes.push({ path: pathOf(store, ino), ...change });
  }
  return { count, bytes, changes };
}
