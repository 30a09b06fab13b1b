import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Inode, ROOT_INODE } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import type { PathState } from '../control/status-model.ts';
import type { PinnedSet } from '../fs/pinned-set.ts';
import { presenceOf } from '../fs/presence.ts';
import { childOf, ifSound } from '../store/node-table.ts';
import type { NodeRecord, StoreReader } from '../store/tables.ts';
import { otherSide } from '../tree/conflict-side.ts';
import type { Tree } from '../tree/tree.ts';

/** Paths of one turn of the event loop. */
const PATHS_PER_TURN = 50;

interface Parts {
  readonly store: StoreReader;
  readonly tree: Pick<Tree, 'children'>;
  readonly contents: Pick<Contents, 'presence'>;
  readonly pinned: Pick<PinnedSet, 'kindOf'>;
  readonly sync: { stateOf(ino: Inode): string | Promise<string> };
}

/** The states of paths in the mount, in their order; null for a path that the mount does not know, or whose record is damaged. */
export async function pathStates(parts: Parts, paths: readonly string[]): Promise<readonly (PathState | null)[]> {
  const states: (PathState | null)[] = [];
  for (const path of paths) {
    if (states.length % PATHS_PER_TURN === PATHS_PER_TURN - 1) await nextTurn();
    const node = ifSound(() => nodeAt(parts.store, path));
    states.push(node?.local == null ? null : await stateOf(parts, node));
  }
  return states;
}

async function stateOf({ tree, contents, pinned, sync }: Parts, node: NodeRecord): Promise<PathState> {
  return {
    kind: node.kind,
    state: await sync.stateOf(node.ino),
    pinned: pinned.kindOf(node.ino),
    here: presenceOf(contents, node),
    conflict: ifSound(() => otherSide(tree, node)) ?? null,
  };
}

/** @throws DamagedRow */
function nodeAt(store: StoreReader, path: string): NodeRecord | undefined {
  let node = store.get('node', ROOT_INODE);
  for (const name of namesOf(path)) node = node && childOf(store, node.ino, name);
  return node;
}

/** The names of a path below the root of the mount. */
export function namesOf(path: string): readonly string[] {
  return path.split('/').filter((part) => part !== '' && part !== '.');
}
