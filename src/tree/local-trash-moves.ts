import { type Inode, isSpecial } from '../base/vocabulary.ts';
import { liesIn, writeNode } from '../store/node-table.ts';
import type { NodeRecord, StoreReader, Transaction } from '../store/tables.ts';
import type { Names } from './names.ts';

/** Called for each node that became dirty or clean with the moved one. */
type OnChanged = (ino: Inode) => void;

/**
 * `moved` goes into the local trash: it and the entries below it that the service does not have become local-only. They are never uploaded
 * from there. The others keep their resources.
 */
export function keepHere(tx: Transaction, moved: NodeRecord, nowMs: number, changed: OnChanged): void {
  if (moved.localOnly) return;
  const unpushed = moved.kind === 'folder' ? dirtyBelow(tx, moved.ino) : [moved];
  for (const node of unpushed) {
    if (node.remote !== null || node.local === null || node.localOnly) continue;
    writeNode(tx, node, { ...node, localOnly: true }, nowMs);
    tx.afterCommit(() => changed(node.ino));
  }
}

/** `moved` leaves the local trash as `name`: it and the entries below it travel again, except those whose names are local-only. */
export function letTravel(
  tx: Transaction,
  names: Names,
  moved: NodeRecord,
  name: string,
  nowMs: number,
  changed: OnChanged,
): void {
  const waiting: { readonly node: NodeRecord; readonly name: string }[] = [{ node: moved, name }];
  for (let at = waiting.pop(); at !== undefined; at = waiting.pop()) {
    const { node } = at;
    if (node.localOnly) {
      if (isSpecial(node.kind) || names.staysLocal(at.name)) continue;
      writeNode(tx, node, { ...node, localOnly: false }, nowMs);
      tx.afterCommit(() => changed(node.ino));
    }
    if (node.kind !== 'folder') continue;
    for (const [name, ino] of tx.scan('name', node.ino)) {
      const child = tx.get('node', ino);
      if (child !== undefined) waiting.push({ node: child, name });
    }
  }
}

function dirtyBelow(tx: StoreReader, folder: Inode): readonly NodeRecord[] {
  const found: NodeRecord[] = [];
  for (const [ino] of tx.all('dirty')) {
    const node = liesIn(tx, ino, folder) ? tx.get('node', ino) : undefined;
    if (node !== undefined) found.push(node);
  }
  return found;
}
