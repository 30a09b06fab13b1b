import { setImmediate as nextTurn } from 'node:timers/promises';
import { unlessAborted } from '../base/abort.ts';
import { ApiError, FsError } from '../base/errors.ts';
import type { BodyPiece } from '../base/resources.ts';
import type { ContentId, Extent } from '../base/vocabulary.ts';
import type { Contents } from '../bytes/contents.ts';
import { ParkedError } from './push-failure.ts';

/** Fetches the missing bytes of a version, so that a draft over it can be sent. @throws ApiError 404 when the version is gone */
export type Complete = (content: ContentId, extent: Extent, signal: AbortSignal) => Promise<void>;

const COMPLETIONS_MAX = 8;
const LOOK_BYTES = 4 * 1024 * 1024;

/** The body of an upload: the bytes of a frozen draft. */
export class DraftBody {
  readonly #contents: Contents;
  readonly #complete: Complete;

  constructor(deps: { contents: Contents; complete: Complete }) {
    this.#contents = deps.contents;
    this.#complete = deps.complete;
  }

  /**
   * The body as ranges of local files and small byte sequences, never whole in memory. Missing bytes of a base are fetched first: the service
   * accepts no version that only refers to its base.
   *
   * The body is synced before it is sent. Uploaded bytes are clean and trusted here, as a draft or as a version that this process adopted. If
   * a power cut lost them, reads would return zeros, and the next change would send those zeros.
   */
  async of(content: ContentId, extent: Extent, signal: AbortSignal): Promise<readonly BodyPiece[]> {
    const contents = this.#contents;
    await unlessAborted(contents.syncFile(content), signal);
    // The first read of a block after a start compares it with its checksum. A large file is read in several turns.
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
          throw new Error('a piece is missing in a complete content');
        });
      }
      try {
        for (const piece of missing) await this.#complete(piece.content, piece.extent, signal);
      } catch (error) {
        if (error instanceof ApiError && error.status === 404) {
          throw new ParkedError('base-lost', 'the service no longer has the version that the change is based on', {
            cause: error,
          });
        }
        throw error;
      }
    }
    throw new FsError('EIO', 'fetched bytes are missing from the cache again');
  }
}
