import type { Inode } from '../base/vocabulary.ts';
import { soundNode, writeNode } from '../store/node-table.ts';
import type { NodeRecord, StoreReader, StoreWriter } from '../store/tables.ts';
import { FORMER_LOCAL_NAMES, Names } from './names.ts';

const NODES_PER_RECORD = 500;

/**
 * Compares the local-name patterns with those of the last run, which the store keeps. Entries that match only the old
 * patterns are pushed from now on, with their contents. Runs before the sync starts.
 *
 * @returns the released nodes
 */
export function releaseNames(store: StoreWriter, patterns: readonly string[], nowMs: number): readonly Inode[] {
  const now = JSON.stringify(patterns);
  const kept = store.get('meta', 'local-names');
  if (kept === now) return [];
  const former = new Names({ localNames: typeof kept === 'string' ? JSON.parse(kept) : FORMER_LOCAL_NAMES });
  const released = [...releasable(store, former, new Names({ localNames: patterns }))];
  for (let at = 0; at < released.length; at += NODES_PER_RECORD) {
    store.transact((tx) => {
      for (const ino of released.slice(at, at + NODES_PER_RECORD)) {
        const node = tx.get('node', ino);
        if (node !== undefined) writeNode(tx, node, { ...node, localOnly: false }, nowMs);
      }
    });
  }
  store.transact((tx) => tx.put('meta', 'local-names', now));
  return released;
}

function* releasable(store: StoreReader, former: Names, names: Names): Iterable<Inode> {
  for (const [ino] of store.all('local')) {
    const node = soundNode(store, ino);
    if (node?.local == null || soundNode(store, node.local.parent)?.localOnly !== false) continue;
    if (former.staysLocal(node.local.name) && !names.staysLocal(node.local.name))
      yield* withEntries(store, node, names);
  }
}

/** A released node and its descendants with released names. */
function* withEntries(store: StoreReader, node: NodeRecord, names: Names): Iterable<Inode> {
  yield node.ino;
  if (node.kind !== 'folder') return;
  for (const [name, ino] of store.scan('name', node.ino)) {
    const entry = soundNode(store, ino);
    if (entry?.localOnly && !names.staysLocal(name)) yield* withEntries(store, entry, names);
  }
}
