import { ApiError, ProtocolError } from '../base/errors.ts';
import type { DecodeDocument } from '../protocol/xml.ts';
import type { Requests, ServiceAnswer } from './requests.ts';

/** How an answer is read: for its document, for its Location, or not at all. */

/** Of a document that describes one thing; listings have limits of their own. */
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

/** As `readDocument`, with the address that what it describes is to be asked for from now on. */
export async function readAddressed<T>(
  requests: Requests,
  { url, decode, signal, bytesMax = DOCUMENT_BYTES_MAX }: DocumentRequest<T>,
): Promise<{ readonly document: T; readonly address: string }> {
  return await requests.send({ method: 'GET', url, repetition: 'always', signal }, async ({ answer, address }) => ({
    document: await decode(answer, { bytesMax }),
    address,
  }));
}

/** For an answer whose status says it all. */
export async function discarded({ answer }: ServiceAnswer): Promise<void> {
  await answer.discard();
}

/** The address of what was made; null where the service does not tell it. */
export async function locationOf({ answer, url }: ServiceAnswer): Promise<string | null> {
  await answer.discard();
  return answer.locationFrom(url);
}

/** @throws ProtocolError where there is no address */
export function located<Url extends string>(location: string | null, what: string): Url {
  if (location === null) throw new ProtocolError(`a new ${what} without an address`);
  return location as Url;
}

/** What is asked for, or null when the service says it does not exist. */
export async function nullWhenGone<T>(ask: () => Promise<T>): Promise<T | null> {
  try {
    return await ask();
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}
