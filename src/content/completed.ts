import { FsError } from '../base/errors.ts';
import type { ContentId, Extent } from '../base/vocabulary.ts';
import type { BlockReader } from './block-reader.ts';

/** Fetches the missing bytes of a content for the sync, which needs the service's error and not the errno of a process. */
export async function completed(
  reader: BlockReader,
  content: ContentId,
  extent: Extent,
  signal: AbortSignal,
): Promise<void> {
  try {
    await reader.complete(content, extent, signal);
  } catch (error) {
    throw error instanceof FsError && error.cause instanceof Error ? error.cause : error;
  }
}
