import { RawClient } from '../server/raw-client.ts';
import type { SignIn } from './server-reader.ts';

/** Another program of the same person: changes the account over HTTP, with nothing of the client that is tested. */
export class OtherProgram {
  readonly client: RawClient;
  /** Of the account's user, in digits. */
  readonly userId: string;

  private constructor(client: RawClient, userId: string) {
    this.client = client;
    this.userId = userId;
  }

  static async signIn(who: SignIn): Promise<OtherProgram> {
    const client = new RawClient(who.url);
    const { username, password, application, accessKeyId, privateAccessKey } = who;
    const credentials = { username, password, application, accessKeyId, privateAccessKey };
    const refreshToken = await client.create('/app-authorization', documentOf('appAuthorization', credentials));
    const request = documentOf('tokenAuthRequest', { accessKeyId, privateAccessKey, refreshToken });
    const { headers, text } = await client.send('POST', '/authorization', { body: request });
    client.token = headers.location ?? null;
    return new OtherProgram(client, /\/user\/(\d+)/.exec(text)?.[1] ?? '');
  }

  /** URL of a folder that every account has, by its local id: 2 the magic briefcase, 3 the mobile photos. */
  systemFolder(local: '1' | '2' | '3'): string {
    return `${this.client.origin}/folder/:sc:${this.userId}:${local}`;
  }

  async rename(url: string, name: string): Promise<void> {
    const kind = url.includes('/folder/') ? 'folder' : 'file';
    await this.client.send('PUT', url, { body: documentOf(kind, { displayName: name }) });
  }
}

function documentOf(root: string, fields: Readonly<Record<string, string>>): string {
  const children = Object.entries(fields).map(([name, text]) => `<${name}>${text}</${name}>`);
  return `<${root}>${children.join('')}</${root}>`;
}
