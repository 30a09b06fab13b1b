import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Inode, Timespec } from '../base/vocabulary.ts';
import { type Conflict, type ConflictSide, LISTED_MAX } from '../control/status-model.ts';
import { childOf, ifSound, liesIn } from '../store/node-table.ts';
import { soundNodes } from '../store/sound-nodes.ts';
import type { NodeRecord, StoreReader } from '../store/tables.ts';
import { pathIn } from '../sync/sync-event.ts';
import { conflictMark } from '../tree/conflict-name.ts';

/** Nodes visited in one turn of the event loop. */
const ROWS_PER_TURN = 500;

/**
 * The conflicted copies in `within`, by path: those that this machine made, and those of others. A copy is known by its name, on
 * every machine; once it is renamed it is an ordinary file. At most LISTED_MAX are listed.
 */
export async function conflictCopies(
  store: StoreReader,
  within: Inode,
  host: string,
): Promise<{ readonly conflicts: readonly Conflict[]; readonly count: number }> {
  const conflicts: Conflict[] = [];
  let count = 0;
  let rows = 0;
  for (const [, node] of soundNodes(store, 0 as Inode)) {
    if (++rows % ROWS_PER_TURN === 0) await nextTurn();
    const mark = node?.local == null ? null : conflictMark(node.local.name);
    if (node?.local == null || mark === null || ifSound(() => liesIn(store, node.ino, within)) !== true) continue;
    if (++count > LISTED_MAX) continue;
    const { parent } = node.local;
    const original = ifSound(() => childOf(store, parent, mark.original));
    const isHere = mark.host === host;
    const mine = !isHere ? null : mark.bytes === 'own' ? 'copy' : 'original';
    const side = original === undefined ? null : sideOf(store, original);
    conflicts.push({ copy: sideOf(store, node) as ConflictSide, original: side, mine, host: mark.host, day: mark.day });
  }
  conflicts.sort((one, other) => (one.copy.path < other.copy.path ? -1 : 1));
  return { conflicts, count };
}

function sideOf(store: StoreReader, { local }: NodeRecord): ConflictSide | null {
  if (local === null) return null;
  return { path: pathIn(store, local), sizeBytes: local.sizeBytes, modifiedMs: msOf(local.mtime) };
}

function msOf({ sec, nsec }: Timespec): number {
  return Math.round(Number(sec) * 1000 + nsec / 1e6);
}
