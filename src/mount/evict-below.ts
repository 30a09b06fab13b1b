import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Inode } from '../base/vocabulary.ts';
import type { ContentStore } from '../bytes/content-store.ts';
import type { Evicted } from '../control/status-model.ts';
import type { PinnedSet } from '../fs/pinned-set.ts';
import { ifSound, soundNode } from '../store/node-table.ts';
import type { NodeRecord, StoreReader } from '../store/tables.ts';

/** Entries of a folder visited in one turn of the event loop. */
const NAMES_PER_TURN = 100;

interface Parts {
  readonly store: StoreReader;
  readonly contents: Pick<ContentStore, 'record' | 'evictVersion' | 'pieces'>;
  readonly pins: Pick<PinnedSet, 'kindOf'>;
}

/** Deletes the local copies of a file, or of all files in a folder, whose bytes the service has. In short turns. */
export async function evictBelow(parts: Parts, root: Inode): Promise<Evicted> {
  const { store } = parts;
  const evicted = { files: 0, bytes: 0, kept: { onlyHere: 0, pinned: 0, inUse: 0 } };
  const evict = async (node: NodeRecord): Promise<void> => {
    const outcome = await evictFile(parts, node);
    if (typeof outcome === 'string') evicted.kept[outcome]++;
    else if (outcome > 0) {
      evicted.files++;
      evicted.bytes += outcome;
    }
  };
  const node = soundNode(store, root);
  if (node?.kind === 'file') await evict(node);
  const folders = node?.kind === 'folder' ? [root] : [];
  for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
    let seen = 0;
    for (let after: string | undefined, isMore = true; isMore; ) {
      isMore = false;
      const page: NodeRecord[] = [];
      for (const [name, ino] of store.scan('name', folder, after)) {
        const child = soundNode(store, ino);
        if (child?.kind === 'folder') folders.push(ino);
        else if (child?.kind === 'file') page.push(child);
        after = name;
        isMore = ++seen % NAMES_PER_TURN === 0;
        if (isMore) break;
      }
      for (const child of page) await evict(child);
      await nextTurn();
    }
  }
  return evicted;
}

/** @returns the freed bytes; or why the file is kept */
async function evictFile(
  { store, contents, pins }: Parts,
  { ino, local, localOnly }: NodeRecord,
): Promise<number | keyof Evicted['kept']> {
  const content = local?.content ?? null;
  if (store.get('dirty', ino) !== undefined || localOnly) return 'onlyHere';
  if (content === null) return 0;
  const record = ifSound(() => contents.record(content));
  if (record?.kind === 'draft') return 'onlyHere';
  const pieces = contents.pieces(content, { start: 0, end: local?.sizeBytes ?? 0 }, 'look');
  if (pieces.every(({ kind }) => kind === 'missing')) return 0;
  if (pins.kindOf(ino) !== 'none') return 'pinned';
  const steps = contents.evictVersion(content);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value ?? 'inUse';
    await nextTurn();
  }
}
