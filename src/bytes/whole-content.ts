import type { ContentId } from '../base/vocabulary.ts';
import type { Contents } from './contents.ts';

/** Bytes that are looked up together. */
const STEP_BYTES = 64 * 1024 * 1024;

/**
 * Whether all bytes of a content are on this machine, verified. Ends at the first missing byte: the service may have
 * claimed a length of petabytes.
 */
export function isWhole(contents: Pick<Contents, 'pieces' | 'sizeOf'>, content: ContentId): boolean {
  const sizeBytes = contents.sizeOf(content);
  for (let start = 0; start < sizeBytes; start += STEP_BYTES) {
    const end = Math.min(start + STEP_BYTES, sizeBytes);
    if (contents.pieces(content, { start, end }).some(({ kind }) => kind === 'missing')) return false;
  }
  return true;
}
