import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../base/clock.ts';
import { BLOCK_BYTES, type ContentId, type Extent, type Inode } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import { writeNode } from '../store/node-table.ts';
import type { StoreWriter } from '../store/tables.ts';

/** What a file held as `was` is the content `is` from now on, of the same bytes: so it is for those who have it open. */
export type OnSameBytes = (ino: Inode, was: ContentId, is: ContentId) => void;

/**
 * A save that changed no byte makes no version: the node goes back to the content that the service has. Bytes are compared, and
 * only those that are here; nothing is fetched for it.
 *
 * @returns whether that was so, and there is nothing to push any more
 */
export async function settleUnchanged(
  deps: {
    readonly store: StoreWriter;
    readonly contents: Contents;
    readonly clock: Clock;
    readonly onSameBytes?: OnSameBytes;
  },
  ino: Inode,
  signal: AbortSignal,
): Promise<boolean> {
  const { store, contents, clock } = deps;
  const before = store.get('node', ino);
  const draft = before?.local?.content ?? null;
  const known = before?.remote?.content ?? null;
  if (draft === null || known === null || draft === known || isChanging(contents, draft)) return false;
  const sizeBytes = contents.sizeOf(draft);
  if (sizeBytes !== before?.remote?.sizeBytes || sizeBytes !== contents.sizeOf(known)) return false;
  const leases = [contents.lease(draft), contents.lease(known)];
  try {
    if (!(await isSame(contents, draft, known, sizeBytes, signal))) return false;
  } finally {
    for (const lease of leases) lease.release();
  }
  return store.transact((tx) => {
    const node = tx.get('node', ino);
    if (!node?.local || !isDeepStrictEqual(node, before) || isChanging(contents, draft)) return false;
    // Whoever has it open goes on with what the service has: what he writes next is over that, whatever comes there meanwhile.
    contents.seal(tx, draft);
    tx.afterCommit(() => deps.onSameBytes?.(ino, draft, known));
    writeNode(tx, node, { ...node, local: { ...node.local, content: known } }, clock.nowMs());
    return true;
  });
}

/** Whether it was written to since it was flushed last, or is at this moment. */
function isChanging(contents: Contents, draft: ContentId): boolean {
  return contents.isBeingWritten(draft) || contents.isUnflushed(draft);
}

async function isSame(
  contents: Contents,
  draft: ContentId,
  known: ContentId,
  sizeBytes: number,
  signal: AbortSignal,
): Promise<boolean> {
  let blocks = 0;
  for (const { start, end } of ownRanges(contents, draft, known, sizeBytes)) {
    for (let at = start; at < end; at += BLOCK_BYTES) {
      const extent = { start: at, end: Math.min(at + BLOCK_BYTES, end) };
      const ours = contents.readAll(draft, extent);
      const theirs = ours === null ? null : contents.readAll(known, extent);
      if (ours === null || theirs === null || Buffer.compare(ours, theirs) !== 0) return false;
      // Never long in one turn: others wait for their answers.
      if (++blocks % BLOCKS_PER_TURN === 0) await new Promise((resolve) => setImmediate(resolve));
      if (signal.aborted) return false;
    }
  }
  return true;
}

/** Where a draft may differ from what the service has: over that itself, only where it was written or cut. */
function ownRanges(contents: Contents, draft: ContentId, known: ContentId, sizeBytes: number): readonly Extent[] {
  const record = contents.record(draft);
  if (record === undefined || record.base !== known) return [{ start: 0, end: sizeBytes }];
  const ranges: Extent[] = [{ start: record.baseBytes, end: sizeBytes }];
  for (let at = 0; at < record.extents.length; at += 2) {
    ranges.push({ start: record.extents[at] ?? 0, end: record.extents[at + 1] ?? 0 });
  }
  return ranges;
}

const BLOCKS_PER_TURN = 4;
