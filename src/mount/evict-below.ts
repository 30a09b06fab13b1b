import { setImmediate as nextTurn } from 'node:timers/promises';
import type { ContentId, Inode } from '../base/vocabulary.ts';
import { isLayered } from '../bytes/content-layers.ts';
import type { ContentStore } from '../bytes/content-store.ts';
import type { Evicted } from '../control/status-model.ts';
import type { PinnedSet } from '../fs/pinned-set.ts';
import { ifSound, soundNode } from '../store/node-table.ts';
import type { NodeRecord, StoreReader } from '../store/tables.ts';

/** Entries of a folder visited in one turn of the event loop. */
const NAMES_PER_TURN = 100;

interface Parts {
  readonly store: StoreReader;
  readonly contents: Pick<ContentStore, 'record' | 'evictVersion' | 'presence'>;
  readonly pins: Pick<PinnedSet, 'kindOf'>;
  /** `SyncLoop.makeEvictable` */
  readonly makeEvictable: (contents: readonly ContentId[]) => Promise<boolean>;
}

/** Deletes the local copies of a file, or of all files in a folder, whose bytes the service has. In short turns. */
export async function evictBelow(parts: Parts, root: Inode): Promise<Evicted> {
  const { store } = parts;
  const evicted = { files: 0, bytes: 0, kept: { onlyHere: 0, unnamed: 0, pinned: 0, inUse: 0 } };
  let isAnswered = true;
  const evict = async (nodes: readonly NodeRecord[]): Promise<void> => {
    // After the first request without an answer, the others would only repeat the wait.
    if (isAnswered) isAnswered = await prepare(parts, nodes);
    for (const { ino } of nodes) {
      const node = soundNode(store, ino);
      if (node === undefined) continue;
      const outcome = await evictFile(parts, node);
      if (typeof outcome === 'string') evicted.kept[outcome]++;
      else if (outcome > 0) {
        evicted.files++;
        evicted.bytes += outcome;
      }
    }
  };
  const node = soundNode(store, root);
  if (node?.kind === 'file') await evict([node]);
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
      await evict(page);
      await nextTurn();
    }
  }
  return evicted;
}

/** @returns false if the service did not answer */
async function prepare(
  { store, contents, pins, makeEvictable }: Parts,
  nodes: readonly NodeRecord[],
): Promise<boolean> {
  const ids = nodes.flatMap(({ ino, local, localOnly }) => {
    const id = local?.content ?? null;
    const isKept = localOnly || store.get('dirty', ino) !== undefined || pins.kindOf(ino) !== 'none';
    const record = isKept || id === null ? undefined : ifSound(() => contents.record(id));
    return id !== null && record !== undefined && isLayered(record) ? [id] : [];
  });
  return ids.length === 0 || (await makeEvictable(ids));
}

/** @returns the freed bytes; or why the file is kept */
async function evictFile(
  { store, contents, pins }: Parts,
  { ino, local, localOnly }: NodeRecord,
): Promise<number | keyof Evicted['kept']> {
  const content = local?.content ?? null;
  if (store.get('dirty', ino) !== undefined || localOnly) return 'onlyHere';
  if (content === null || local?.sizeBytes === 0) return 0;
  const isPinned = pins.kindOf(ino) !== 'none';
  if (ifSound(() => contents.record(content))?.kind === 'draft') return isPinned ? 'pinned' : 'unnamed';
  if (contents.presence(content, local?.sizeBytes ?? 0) === 'none') return 0;
  if (isPinned) return 'pinned';
  const steps = contents.evictVersion(content);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value ?? 'inUse';
    await nextTurn();
  }
}
