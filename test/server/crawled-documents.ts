import { createHash } from 'node:crypto';
import type { RawClient } from './raw-client.ts';

/**
 * Every document that an account reaches from its own, by following all URLs: status and text by path; of data the
 * digest. Also of files whose folder was deleted, if `more` names them.
 */
export async function crawledDocuments(
  client: RawClient,
  { uid, more = [] }: { readonly uid: string; readonly more?: readonly string[] },
): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>();
  const waiting = [`/user/${uid}`, ...more];
  for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
    if (found.has(path)) continue;
    const { status, bytes, text, headers } = await client.get(path);
    const isDocument = (headers['content-type'] ?? '').includes('xml');
    const content = isDocument ? text : createHash('sha256').update(bytes).digest('hex');
    found.set(path, `${status} ${headers['content-type']} ${headers['content-length']} ${content}`);
    if (!isDocument) continue;
    const urls = [...text.matchAll(/>(https?:\/\/[^<]+)</g)].map(([, url = '']) => new URL(url));
    for (const { pathname, search } of urls) waiting.push(`${pathname}${search}`);
    if (/^\/file\/[^/]+$/.test(path)) waiting.push(`${path}/version`, `${path}/data`);
  }
  return found;
}
