import { createHash } from 'node:crypto';
import type { RawClient } from '../server/raw-client.ts';

/** A file in a folder of the service, with all its complete versions. */
export interface ListedFile {
  readonly name: string;
  readonly url: string;
  /** Digests of the complete versions, newest first. */
  readonly versions: readonly string[];
}

/** What a folder of the service holds, as another client sees it. @param only a name, where no other is wanted */
export async function filesIn(client: RawClient, folder: string, only?: string): Promise<ListedFile[]> {
  const listing = (await client.get(`${folder}/contents`)).text;
  const found: ListedFile[] = [];
  for (const [, file = ''] of listing.matchAll(/<file>(.*?)<\/file>/gs)) {
    const name = /<displayName>(.*?)<\/displayName>/.exec(file)?.[1] ?? '';
    if (only !== undefined && name !== only) continue;
    const url = refOf(file);
    const history = (await client.get(`${url}/version`)).text;
    const versions: string[] = [];
    for (const [, version = ''] of history.matchAll(/<fileVersion>(.*?)<\/fileVersion>/gs)) {
      if (!version.includes('<presentOnServer>true')) continue;
      versions.push(digest((await client.get(`${refOf(version)}/data`)).bytes));
    }
    found.push({ name, url, versions });
  }
  return found;
}

export const digest = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex').slice(0, 12);

const refOf = (xml: string): string => /<ref>(.*?)<\/ref>/.exec(xml)?.[1] ?? '';
