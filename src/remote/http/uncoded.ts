import { pipeline, Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { ProtocolError } from '../../base/errors.ts';
import type { Answer } from './answer.ts';

/** Of a request whose response is read by `uncoded`. */
export const GZIP_ACCEPTED = { 'Accept-Encoding': 'gzip' } as const;

/**
 * The body without its content coding, as it arrives: at most some chunks of it are in memory, whatever it expands to.
 *
 * @throws ProtocolError for a coding that was not asked for · (while reading) for a body that is not gzip, or that ends before its end
 */
export function uncoded(answer: Answer): AsyncIterable<Uint8Array> {
  if (!answer.isCoded) return answer;
  const coding = (answer.header('content-encoding') ?? '').trim();
  // RFC 9110, 8.4.1.3: both names mean the same.
  if (!/^(x-)?gzip$/i.test(coding)) throw new ProtocolError(`a content coding that was not asked for: ${coding}`);
  return gunzipped(answer);
}

async function* gunzipped(answer: Answer): AsyncGenerator<Uint8Array, void, undefined> {
  // A failure of either end destroys the other one; the loop below throws it.
  const bytes = pipeline(Readable.from(answer, { objectMode: false }), createGunzip(), () => {});
  try {
    yield* bytes;
  } catch (error) {
    const { code } = error as { readonly code?: unknown };
    if (typeof code !== 'string' || !code.startsWith('Z_')) throw error;
    throw new ProtocolError('an answer that is not the gzip that it claims to be', { cause: error });
  }
}
