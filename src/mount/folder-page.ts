import type { Inode } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import type { FolderEntry } from '../control/status-model.ts';
import type { PinnedSet } from '../fs/pinned-set.ts';
import { presenceOf } from '../fs/presence.ts';
import { soundNode } from '../store/node-table.ts';
import type { NodeRecord, StoreReader } from '../store/tables.ts';

/** Entries of one page: they are read in one turn of the event loop. */
const ENTRIES_MAX = 100;

interface Parts {
  readonly store: StoreReader;
  readonly contents: Pick<Contents, 'presence'>;
  readonly pinned: Pick<PinnedSet, 'kindOf'>;
  readonly sync: { stateOf(ino: Inode): string | Promise<string> };
}

/** The known entries of a folder after a name, at most ENTRIES_MAX. */
export async function folderPage(
  parts: Parts,
  folder: Inode,
  after: string | null,
): Promise<{ readonly entries: readonly FolderEntry[]; readonly next: string | null }> {
  const nodes: NodeRecord[] = [];
  let next: string | null = null;
  let seen = 0;
  for (const [name, ino] of parts.store.scan('name', folder, after ?? undefined)) {
    const node = soundNode(parts.store, ino);
    if (node?.local != null) nodes.push(node);
    next = name;
    if (++seen === ENTRIES_MAX) break;
  }
  const entries = await Promise.all(nodes.map((node) => entryOf(parts, node)));
  return { entries, next: seen === ENTRIES_MAX ? next : null };
}

async function entryOf({ contents, pinned, sync }: Parts, node: NodeRecord): Promise<FolderEntry> {
  const { name, sizeBytes, mtime } = node.local as NonNullable<NodeRecord['local']>;
  return {
    name,
    kind: node.kind,
    sizeBytes,
    modifiedMs: Math.round(Number(mtime.sec) * 1000 + mtime.nsec / 1e6),
    state: await sync.stateOf(node.ino),
    pinned: pinned.kindOf(node.ino),
    here: presenceOf(contents, node),
  };
}
