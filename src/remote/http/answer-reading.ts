import { ApiError, ProtocolError } from '../../base/errors.ts';
import type { DecodeDocument } from '../../protocol/xml.ts';
import type { Requests, ServiceAnswer } from './requests.ts';

/** Ways to consume a response: its document, its Location, or nothing. */

/** For a document that describes one resource; listings have their own limits. */
export const DOCUMENT_BYTES_MAX = 1024 * 1024;

export interface DocumentRequest<T> {
  readonly url: string;
  readonly decode: DecodeDocument<T>;
  readonly signal: AbortSignal | undefined;
  readonly bytesMax?: number;
}

/** GET of a document. @throws what `Requests.send` throws */
export async function readDocument<T>(requests: Requests, asked: DocumentRequest<T>): Promise<T> {
  return (await readAddressed(requests, asked)).document;
}

/** As `readDocument`, together with the URL to use for the resource from now on. */
export async function readAddressed<T>(
  requests: Requests,
  { url, decode, signal, bytesMax = DOCUMENT_BYTES_MAX }: DocumentRequest<T>,
): Promise<{ readonly document: T; readonly address: string }> {
  return await requests.send({ method: 'GET', url, repetition: 'always', signal }, async ({ answer, address }) => ({
    document: await decode(answer, { bytesMax }),
    address,
  }));
}

/** For a response of which only the status matters. */
export async function discarded({ answer }: ServiceAnswer): Promise<void> {
  await answer.discard();
}

/** The URL of the created resource; null if the service does not report it. */
export async function locationOf({ answer, url }: ServiceAnswer): Promise<string | null> {
  await answer.discard();
  return answer.locationFrom(url);
}

/** @throws ProtocolError where there is no address */
export function located<Url extends string>(location: string | null, what: string): Url {
  if (location === null) throw new ProtocolError(`a new ${what} without an address`);
  return location as Url;
}

/** The result, or null if the service says that the resource does not exist. */
export async function nullWhenGone<T>(ask: () => Promise<T>): Promise<T | null> {
  try {
    return await ask();
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}
