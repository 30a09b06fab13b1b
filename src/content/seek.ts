import { setImmediate as nextTurn } from 'node:timers/promises';
import { FsError } from '../base/errors.ts';
import type { ContentId } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';

/**
 * SEEK_DATA, SEEK_HOLE from an `offset` within the content; never long in one turn.
 *
 * @throws FsError ENXIO no data follows
 */
export async function seekIn(
  contents: Pick<Contents, 'nextData' | 'sizeOf'>,
  content: ContentId,
  offset: number,
  whence: 'data' | 'hole',
): Promise<number> {
  const sizeBytes = contents.sizeOf(content);
  const data = contents.nextData(content, offset);
  if (whence === 'data') {
    if (data === null) throw new FsError('ENXIO');
    return Math.max(offset, data.start);
  }
  let hole = offset;
  for (let next = data; next !== null && next.start <= hole; next = contents.nextData(content, hole)) {
    hole = Math.min(next.end, sizeBytes);
    if (hole >= sizeBytes) break;
    await nextTurn();
  }
  return Math.min(hole, sizeBytes);
}
