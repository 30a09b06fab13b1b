import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../base/clock.ts';
import { BLOCK_BYTES, type ContentId, type Extent, type Inode } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import { writeNode } from '../store/node-table.ts';
import type { StoreWriter } from '../store/tables.ts';

/** The content `was` of a file is replaced by `is`, which has the same bytes. Handles of the file switch to it. */
export type OnSameBytes = (ino: Inode, was: ContentId, is: ContentId) => void;

/**
 * A save that changed no byte makes no version: the node returns to the content that the service has. Only cached bytes are compared; nothing
 * is fetched.
 *
 * @returns whether the draft was unchanged, so that nothing has to be pushed
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
    // Programs that have the file open continue on the content of the service. Their next write is based on it, whatever arrives there
    // meanwhile.
    contents.seal(tx, draft);
    tx.afterCommit(() => deps.onSameBytes?.(ino, draft, known));
    writeNode(tx, node, { ...node, local: { ...node.local, content: known } }, clock.nowMs());
    return true;
  });
}

/** Whether the draft was written to since its last flush, or is being written to now. */
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
      // Yields between portions: requests of programs come first.
      if (++blocks % BLOCKS_PER_TURN === 0) await new Promise((resolve) => setImmediate(resolve));
      if (signal.aborted) return false;
    }
  }
  return true;
}

/**
 * The ranges in which a draft may differ from the content of the service. If that content is its base, these are the written or truncated
 * ranges.
 */
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
