import { type ChangeKind, LISTED_MAX, type PendingChange } from '../control/status-model.ts';
import { isContentDirty } from '../store/node-table.ts';
import type { NodeRecord, StoreReader } from '../store/tables.ts';
import { pathOf } from '../sync/sync-event.ts';

/** What the service does not have yet, for `cfs status`: everything dirty that is not parked, counted; the first ones listed. */
export function pendingChanges(store: StoreReader): {
  readonly count: number;
  readonly bytes: number;
  readonly changes: readonly PendingChange[];
} {
  const changes: PendingChange[] = [];
  let count = 0;
  let bytes = 0;
  for (const [ino, { parked }] of store.all('dirty')) {
    const node = store.get('node', ino);
    if (parked !== null || node === undefined) continue;
    const sizeBytes = isContentDirty(node) ? (node.local?.sizeBytes ?? 0) : null;
    count++;
    bytes += sizeBytes ?? 0;
    if (changes.length < LISTED_MAX) {
      changes.push({ path: pathOf(store, ino), kind: changeKindOf(node), sizeBytes, dueMs: null, attempts: 0 });
    }
  }
  return { count, bytes, changes };
}

/** What a push of the node would do, the weightiest part of it. */
export function changeKindOf(node: NodeRecord | undefined): ChangeKind {
  if (node === undefined) return 'other';
  if (node.local === null) return 'delete';
  if (isContentDirty(node)) return 'upload';
  if (node.remote === null) return node.kind === 'folder' ? 'create-folder' : 'upload';
  return 'rename';
}
