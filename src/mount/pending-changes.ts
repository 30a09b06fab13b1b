import { setImmediate as nextTurn } from 'node:timers/promises';
import { FsError, StorageError } from '../base/errors.ts';
import type { ContentId, Extent, Inode } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import { LISTED_MAX, type PendingChange, type UnsyncedFile } from '../control/status-model.ts';
import { staysHere } from '../store/node-table.ts';
import { soundNodes } from '../store/sound-nodes.ts';
import type { NodeRecord, StoreReader } from '../store/tables.ts';
import { changeKindOf, type ParkedChange, pathOf, type WaitingChange } from '../sync/sync-event.ts';

/** Rows that are read in one turn of the event loop. During a turn no call is answered. */
const ROWS_PER_TURN = 500;

export interface PendingChanges {
  /** Everything counted, the first ones listed. */
  readonly pending: { readonly count: number; readonly bytes: number; readonly changes: readonly PendingChange[] };
  readonly parked: readonly ParkedChange[];
}

/** The changes that the service does not have yet, for `cfs status`, read in short turns. */
export async function pendingChanges(store: StoreReader, waiting: Iterable<WaitingChange>): Promise<PendingChanges> {
  const changes: PendingChange[] = [];
  const parked: ParkedChange[] = [];
  let rows = 0;
  let count = 0;
  let bytes = 0;
  for (const each of waiting) {
    if (++rows % ROWS_PER_TURN === 0) await nextTurn();
    if (each.parked !== undefined) {
      parked.push(each.parked);
      continue;
    }
    const { ino, ...change } = each.pending;
    count++;
    bytes += change.sizeBytes ?? 0;
    if (changes.length < LISTED_MAX) changes.push({ path: pathOf(store, ino), ...change });
  }
  return { pending: { count, bytes, changes }, parked };
}

/** The number of remaining changes that a stop names. */
const LEFT_MAX = 10;

/** The first remaining changes of a stop: pending ones before parked ones. */
export function firstLeft(
  pending: readonly Pick<PendingChange, 'path' | 'kind'>[],
  parked: readonly Pick<PendingChange, 'path' | 'kind'>[],
): readonly Pick<PendingChange, 'path' | 'kind'>[] {
  return [...pending, ...parked].slice(0, LEFT_MAX).map(({ path, kind }) => ({ path, kind }));
}

/**
 * A page of what exists on this machine only: new and changed files, new folders and links, and local-only names, ordered by inode, after
 * `after`. Renamed and deleted nodes are not included: the service has all of their bytes.
 */
export function unsyncedFiles(
  store: StoreReader,
  after: number,
): { readonly files: readonly UnsyncedFile[]; readonly next: number | null } {
  const files: UnsyncedFile[] = [];
  let rows = 0;
  for (const [ino, node] of soundNodes(store, after as Inode)) {
    // Nodes that the service has are skipped, so a page may take many turns.
    if (++rows > LISTED_MAX) return { files, next: ino - 1 };
    const dirty = store.get('dirty', ino);
    if (dirty === undefined && (node === undefined || !staysHere(node))) continue;
    const file = unsyncedFile(store, ino, dirty?.parked?.detail ?? null);
    if (file !== null) files.push(file);
  }
  return { files, next: null };
}

/** The number of local-only nodes, and the paths of the first. */
export function localFiles(store: StoreReader, namedMax: number): { readonly count: number; readonly paths: string[] } {
  const paths: string[] = [];
  let count = 0;
  for (const [ino] of store.all('local')) {
    if (++count <= namedMax) paths.push(pathOf(store, ino));
  }
  return { count, paths };
}

/** null: the service has all of it. */
function unsyncedFile(store: StoreReader, ino: Inode, parked: string | null): UnsyncedFile | null {
  try {
    const node = store.get('node', ino);
    if (node?.local == null || !isOnlyHere(node)) return null;
    return { ino, path: pathOf(store, ino), kind: node.kind, sizeBytes: node.local.sizeBytes, parked };
  } catch (error) {
    // A damaged one does not prevent copying the others.
    if (!(error instanceof StorageError)) throw error;
    return { ino, path: `inode ${ino}`, kind: 'file', sizeBytes: 0, parked, damage: error.message };
  }
}

function isOnlyHere(node: NodeRecord): boolean {
  if (node.localOnly) return staysHere(node);
  const kind = changeKindOf(node);
  return kind === 'upload' || kind === 'create-folder';
}

/** One of the consecutive parts of a file. */
export interface UnsyncedPart {
  readonly length: number;
  /** null: at least some of these bytes are not available. */
  readonly bytes: Uint8Array | null;
}

/** All bytes that exist here, also from incomplete blocks: a change must be copied even if the rest of its block is lost. */
export function partsHere(
  contents: Pick<Contents, 'pieces' | 'readAll'>,
  content: ContentId | null,
  { start, end }: Extent,
): readonly UnsyncedPart[] {
  const nothing = [{ length: end - start, bytes: null }];
  if (content === null) return nothing;
  try {
    let at = start;
    return contents.pieces(content, { start, end }).map(({ kind, length }) => {
      const part = { start: at, end: at + length };
      at = part.end;
      return { length, bytes: kind === 'missing' ? null : contents.readAll(content, part) };
    });
  } catch (error) {
    if (error instanceof FsError) return nothing;
    throw error;
  }
}
