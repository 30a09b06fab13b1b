import { createHash } from 'node:crypto';

/**
 * Reads an account from the service over HTTP, with nothing of the client that is tested: what this sees is what the service
 * has. A small reader of the documents that the reference server writes, not of XML.
 */

export interface SignIn {
  readonly url: string;
  readonly username: string;
  readonly password: string;
  readonly application: string;
  readonly accessKeyId: string;
  readonly privateAccessKey: string;
}

export interface ServerEntry {
  /** URL of the folder that lists it. */
  readonly parent: string;
  /** Below the account's `magicBriefcase`, names joined by `/`. */
  readonly path: string;
  readonly kind: 'file' | 'folder' | 'symlink';
  readonly url: string;
  /** -1 while no upload of the file has completed. */
  readonly sizeBytes: number;
}

/** Downloads at the same time. */
const READERS_MAX = 4;
const REQUEST_MS_MAX = 60_000;
/** No connection is used twice: the server may have closed it, or died, a moment before, and nothing here asks again. */
const HEADERS = { 'user-agent': 'cfs-test/1', connection: 'close' };

export class ServerReader {
  readonly #who: SignIn;
  /** Where it listens, whatever its URLs begin with. */
  readonly #listens: string;
  #token: string | null = null;
  #root: string | null = null;
  #trash: string | null = null;
  #refreshToken: string | null = null;
  #user: string | null = null;

  constructor(who: SignIn, listens: string = who.url) {
    this.#who = who;
    this.#listens = new URL(listens).host;
  }

  /** Everything below the account's folder, parents first. Two entries of one name in one folder are an error. */
  async entries(): Promise<Map<string, ServerEntry>> {
    const found = new Map<string, ServerEntry>();
    for (const entry of await this.list()) {
      if (found.has(entry.path)) throw new Error(`the service has two entries at ${entry.path}`);
      found.set(entry.path, entry);
    }
    return found;
  }

  /** The same with equal names. */
  async list(): Promise<ServerEntry[]> {
    const found: ServerEntry[] = [];
    const walk = async (folder: string, prefix: string): Promise<void> => {
      for (const entry of await this.#list(folder, prefix)) {
        found.push(entry);
        if (entry.kind === 'folder') await walk(entry.url, `${entry.path}/`);
      }
    };
    await walk(await this.#rootUrl(), '');
    return found;
  }

  /**
   * SHA-256 of every complete version of every file, in the trash too: all bytes that the account has. By digest, the places
   * that have them.
   */
  async everyVersion(): Promise<Map<string, string[]>> {
    const root = await this.#rootUrl();
    const found = new Map<string, string[]>();
    const walk = async (folder: string, prefix: string): Promise<void> => {
      for (const { kind, url, path } of await this.#list(folder, prefix)) {
        if (kind === 'folder') {
          await walk(url, `${path}/`);
          continue;
        }
        for (const digest of await this.versionDigests({ url })) {
          found.set(digest, [...(found.get(digest) ?? []), path]);
        }
      }
    };
    await walk(root, '');
    await walk(this.#trash ?? '', 'trash/');
    return found;
  }

  /** A request as it stands on the line, signed in. The answer is the caller's to judge. */
  async send(method: string, url: string, body?: string | Uint8Array): Promise<Response> {
    await this.#rootUrl();
    return fetch(this.#at(url), {
      method,
      headers: { ...HEADERS, authorization: this.#token ?? '' },
      ...(body !== undefined && { body: typeof body === 'string' ? body : Buffer.from(body) }),
      signal: AbortSignal.timeout(REQUEST_MS_MAX),
    });
  }

  /** What another client needs that cannot sign in by itself: URLs. */
  async session(): Promise<{ readonly refreshToken: string; readonly accessToken: string; readonly user: string }> {
    await this.#rootUrl();
    return { refreshToken: this.#refreshToken ?? '', accessToken: this.#token ?? '', user: this.#user ?? '' };
  }

  /** URLs of the account's folder and of its trash. */
  async places(): Promise<{ readonly root: string; readonly trash: string }> {
    return { root: await this.#rootUrl(), trash: this.#trash ?? '' };
  }

  /** Names in the trash. */
  async trash(): Promise<string[]> {
    await this.#rootUrl();
    return (await this.#list(this.#trash ?? '', '')).map(({ path }) => path);
  }

  /** SHA-256 of every file, in hex, and `-> target` of every symlink; folders end in `/`. */
  async digests(): Promise<Map<string, string>> {
    return new Map(await this.#digestsOf([...(await this.entries()).values()]));
  }

  /** The same without files that were made and not filled yet. */
  async filledDigests(): Promise<Map<string, string>> {
    return new Map(await this.listFilledDigests());
  }

  /** The same with equal names. `shownAs`: gives entries the paths by which they are to be called. */
  async listFilledDigests(
    shownAs: (entries: readonly ServerEntry[]) => readonly ServerEntry[] = (entries) => entries,
  ): Promise<[path: string, digest: string][]> {
    return this.#digestsOf(shownAs(await this.list()).filter(isFilled));
  }

  async #digestsOf(entries: readonly ServerEntry[]): Promise<[path: string, digest: string][]> {
    const digests: [string, string][] = [];
    let next = 0;
    const reader = async (): Promise<void> => {
      for (let entry = entries[next++]; entry !== undefined; entry = entries[next++]) {
        if (entry.kind === 'folder') digests.push([`${entry.path}/`, 'folder']);
        else if (entry.kind === 'symlink') digests.push([entry.path, `-> ${(await this.bytes(entry)).toString()}`]);
        else
          digests.push([
            entry.path,
            createHash('sha256')
              .update(await this.bytes(entry))
              .digest('hex'),
          ]);
      }
    };
    await Promise.all(Array.from({ length: READERS_MAX }, reader));
    return digests;
  }

  /** All bytes of a file; the length is checked. @throws Error for one that was never filled */
  async bytes(entry: ServerEntry): Promise<Buffer> {
    if (entry.sizeBytes < 0) throw new Error(`${entry.path} was created on the service and never filled`);
    const bytes = Buffer.from(await (await this.#get(`${entry.url}/data`)).arrayBuffer());
    if (bytes.byteLength !== entry.sizeBytes) {
      throw new Error(`${entry.path}: the listing says ${entry.sizeBytes} bytes, the data has ${bytes.byteLength}`);
    }
    return bytes;
  }

  /** How many complete versions the service keeps of a file. */
  async versionCount(entry: ServerEntry): Promise<number> {
    const document = await (await this.#get(`${entry.url}/version`)).text();
    return [...document.matchAll(/<presentOnServer>true</g)].length;
  }

  /** SHA-256 of the complete versions that the service keeps of a file, in hex, newest first. */
  async versionDigests({ url }: Pick<ServerEntry, 'url'>): Promise<string[]> {
    const history = await (await this.#get(`${url}/version`)).text();
    const digests: string[] = [];
    for (const [, version = ''] of history.matchAll(/<fileVersion>(.*?)<\/fileVersion>/gs)) {
      if (element(version, 'presentOnServer') !== 'true') continue;
      const bytes = Buffer.from(await (await this.#get(`${element(version, 'ref')}/data`)).arrayBuffer());
      digests.push(createHash('sha256').update(bytes).digest('hex'));
    }
    return digests;
  }

  async #list(folder: string, prefix: string): Promise<ServerEntry[]> {
    const entries: ServerEntry[] = [];
    for (;;) {
      const document = await (await this.#get(`${folder}/contents?start=${entries.length}&max=500`)).text();
      const before = entries.length;
      for (const [, kind, body] of document.matchAll(/<(collection|file)(?:\s[^>]*)?>(.*?)<\/\1>/gs)) {
        const text = body ?? '';
        entries.push({
          parent: folder,
          path: `${prefix}${element(text, 'displayName')}`,
          kind: kind === 'collection' ? 'folder' : element(text, 'mediaType') === 'inode/symlink' ? 'symlink' : 'file',
          url: element(text, 'ref'),
          sizeBytes: kind === 'collection' ? 0 : Number(element(text, 'size')),
        });
      }
      if (!/hasMore="true"/.test(document) || entries.length === before) return entries;
    }
  }

  async #rootUrl(): Promise<string> {
    if (this.#root !== null) return this.#root;
    const { url, username, password, application, accessKeyId, privateAccessKey } = this.#who;
    const refreshed = await this.#post(`${url}/app-authorization`, 'appAuthorization', {
      username,
      password,
      application,
      accessKeyId,
      privateAccessKey,
    });
    const refreshToken = refreshed.headers.get('location') ?? '';
    this.#refreshToken = refreshToken;
    const authorized = await this.#post(`${url}/authorization`, 'tokenAuthRequest', {
      accessKeyId,
      privateAccessKey,
      refreshToken,
    });
    this.#token = authorized.headers.get('location');
    this.#user = element(await authorized.text(), 'user');
    const user = await (await this.#get(this.#user)).text();
    this.#trash = element(user, 'deleted');
    this.#root = element(user, 'magicBriefcase');
    return this.#root;
  }

  #at(url: string): URL {
    const reached = new URL(url);
    reached.host = this.#listens;
    return reached;
  }

  async #post(url: string, root: string, fields: Readonly<Record<string, string>>): Promise<Response> {
    const elements = Object.entries(fields).map(([name, value]) => `<${name}>${escaped(value)}</${name}>`);
    return checked(
      await fetch(this.#at(url), {
        method: 'POST',
        headers: { ...HEADERS, 'content-type': 'application/xml; charset=UTF-8' },
        body: `<?xml version="1.0" encoding="UTF-8"?><${root}>${elements.join('')}</${root}>`,
        signal: AbortSignal.timeout(REQUEST_MS_MAX),
      }),
      `POST ${root}`,
    );
  }

  async #get(url: string): Promise<Response> {
    const headers = { ...HEADERS, authorization: this.#token ?? '' };
    return checked(await fetch(this.#at(url), { headers, signal: AbortSignal.timeout(REQUEST_MS_MAX) }), `GET ${url}`);
  }
}

function isFilled({ kind, sizeBytes }: ServerEntry): boolean {
  return kind === 'folder' || sizeBytes >= 0;
}

async function checked(response: Response, what: string): Promise<Response> {
  if (response.ok) return response;
  throw new Error(`${what}: ${response.status} ${(await response.text()).slice(0, 300)}`);
}

/** Text of the first element of that name. */
function element(document: string, name: string): string {
  const text = new RegExp(`<${name}(?:\\s[^>]*)?>(.*?)</${name}>`, 's').exec(document)?.[1] ?? '';
  return text.replace(/&(?:#x([0-9a-f]+)|#(\d+)|(\w+));/gi, (_, hex, decimal, named: string | undefined) => {
    if (hex !== undefined) return String.fromCodePoint(Number.parseInt(hex, 16));
    if (decimal !== undefined) return String.fromCodePoint(Number(decimal));
    return { lt: '<', gt: '>', amp: '&', quot: '"', apos: "'" }[named ?? ''] ?? '';
  });
}

function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}
