import { setImmediate as nextTurn } from 'node:timers/promises';
import { unlessAborted } from '../base/abort.ts';
import { ApiError, FsError } from '../base/errors.ts';
import type { BodyPiece } from '../base/resources.ts';
import type { ContentId, Extent } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import { ParkedError } from './failure.ts';

/** Fetches what is not here of a version, so that a draft over it can be sent. @throws ApiError 404 when it is gone */
export type Complete = (content: ContentId, extent: Extent, signal: AbortSignal) => Promise<void>;

const COMPLETIONS_MAX = 8;
const LOOK_BYTES = 4 * 1024 * 1024;

/** What is sent of a frozen draft. */
export class DraftBody {
  readonly #contents: Contents;
  readonly #complete: Complete;

  constructor(deps: { contents: Contents; complete: Complete }) {
    this.#contents = deps.contents;
    this.#complete = deps.complete;
  }

  /**
   * What is sent: stretches of local files and small bytes, never the whole in memory. What is missing of a base is fetched
   * first: a version that no more than names its base cannot be sent.
   *
   * Nothing is sent before it would survive a power cut. What the service has is clean here, as a draft or as a version that this run
   * adopted, and believed: bytes that are lost then would be read as zeros, and sent as such with the next change.
   */
  async of(content: ContentId, extent: Extent, signal: AbortSignal): Promise<readonly BodyPiece[]> {
    const contents = this.#contents;
    await unlessAborted(contents.syncFile(content), signal);
    // The first look at a block after a start compares it with its mark: not all of a large file in one turn.
    for (let at = extent.start; extent.end - at > LOOK_BYTES; at += LOOK_BYTES) {
      contents.pieces(content, { start: at, end: at + LOOK_BYTES });
      await nextTurn();
      signal.throwIfAborted();
    }
    for (let round = 0; round < COMPLETIONS_MAX; round++) {
      const pieces = contents.pieces(content, extent);
      const missing = pieces.filter((piece) => piece.kind === 'missing');
      if (missing.length === 0) {
        return pieces.map((piece): BodyPiece => {
          if (piece.kind === 'slice')
            return { kind: 'file', path: piece.path, offset: piece.position, length: piece.length };
          if (piece.kind === 'zeros') return { kind: 'zeros', length: piece.length };
          if (piece.kind === 'bytes') return { kind: 'bytes', bytes: piece.bytes.slice() };
          throw new Error('a missing piece in a complete row');
        });
      }
      try {
        for (const piece of missing) await this.#complete(piece.content, piece.extent, signal);
      } catch (error) {
        if (error instanceof ApiError && error.status === 404) {
          throw new ParkedError('base-lost', 'the service no longer has the version that was changed', {
            cause: error,
          });
        }
        throw error;
      }
    }
    throw new FsError('EIO', 'bytes that were fetched are missing again');
  }
}
