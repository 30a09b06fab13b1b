import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Inode } from '../base/vocabulary.ts';
import type { Contents, Presence } from '../bytes/contents.ts';
import type { NodeRecord } from '../store/tables.ts';
import type { Tree } from '../tree/tree.ts';

/** How much of a file is on this machine; null for a folder. */
export function presenceOf(
  contents: Pick<Contents, 'presence'>,
  { kind, local }: Pick<NodeRecord, 'kind' | 'local'>,
): Presence | null {
  if (kind === 'folder' || local === null) return null;
  if (local.sizeBytes === 0) return 'all';
  return local.content === null ? 'none' : contents.presence(local.content, local.sizeBytes);
}

/** Entries that one question looks at. At some microseconds each, the answer comes within a second. */
const ENTRIES_MAX = 100_000;
/** Entries that are looked at in one turn of the event loop. */
const ENTRIES_PER_TURN = 100;

interface Parts {
  readonly tree: Pick<Tree, 'children' | 'isComplete'>;
  readonly contents: Pick<Contents, 'presence'>;
  /** Default: ENTRIES_MAX. */
  readonly entriesMax?: number;
}

/**
 * How much of the files below a folder is on this machine. A walk over the known entries, in short turns, which ends at the first
 * difference: no number is kept up to date for it. Files without bytes count for neither side; a folder that was never listed has none of its
 * files here.
 *
 * @returns `unknown` if neither side was found among ENTRIES_MAX entries
 * @throws the signal's reason · DamagedRow
 */
export async function presenceBelow(
  { tree, contents, entriesMax = ENTRIES_MAX }: Parts,
  root: Inode,
  signal: AbortSignal,
): Promise<Presence | 'unknown'> {
  const found = new Set<Presence>();
  const folders = [root];
  let seen = 0;
  for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
    if (!tree.isComplete(folder)) found.add('none');
    for (let after: string | undefined, isMore = true; isMore; ) {
      isMore = false;
      for (const { name, node } of tree.children(folder, after)) {
        if (node.kind === 'folder') folders.push(node.ino);
        else if (node.local !== null && node.local.sizeBytes > 0) found.add(presenceOf(contents, node) ?? 'all');
        if (found.has('part') || found.size > 1) return 'part';
        after = name;
        isMore = ++seen % ENTRIES_PER_TURN === 0;
        if (seen > entriesMax) return 'unknown';
        if (isMore) break;
      }
      if (isMore) await nextTurn();
      signal.throwIfAborted();
    }
  }
  return found.has('none') ? 'none' : 'all';
}
