import { request as httpRequest, type IncomingHttpHeaders } from 'node:http';
import type { ReferenceServer } from '../../src/server/reference-server.ts';
import type { AdministrationRules, KeyPair } from '../../src/server/rules.ts';

export interface RawAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly bytes: Buffer;
  readonly text: string;
}

export interface RawRequest {
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
  /** Ends the line after so many bytes of the body. */
  readonly cutAfter?: number;
}

/** Requests as they stand on the line: no retries, no token handling, nothing shared with `src/remote`. */
export class RawClient {
  readonly origin: string;
  /** The access token's URL, or null. */
  token: string | null;

  constructor(origin: string, token: string | null = null) {
    this.origin = origin;
    this.token = token;
  }

  /** @param path a path or a full URL; sent exactly as it is */
  send(method: string, path: string, options: RawRequest = {}): Promise<RawAnswer> {
    const { hostname, port } = new URL(this.origin);
    const target = path.startsWith('http') ? path.slice(this.origin.length) : path;
    const body = typeof options.body === 'string' ? Buffer.from(options.body) : options.body;
    const headers: Record<string, string> = { ...options.headers };
    if (this.token !== null) headers.Authorization ??= this.token;
    if (body !== undefined && headers['Transfer-Encoding'] === undefined)
      headers['Content-Length'] ??= String(body.byteLength);
    return new Promise((resolve, reject) => {
      const request = httpRequest({ hostname, port, method, path: target, headers, agent: false }, (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () => {
          const bytes = Buffer.concat(chunks);
          // Every answer, whatever it says (docs/service.md 2.2): so every test asks for it.
          const origin = response.headers['access-control-allow-origin'];
          if (origin !== '*') reject(new Error(`${method} ${path}: Access-Control-Allow-Origin is ${origin}`));
          const { headers } = response;
          // Of megabytes of file data nobody asks for the text.
          resolve({
            status: response.statusCode as number,
            headers,
            bytes,
            get text() {
              return bytes.toString();
            },
          });
        });
      });
      request.on('error', reject);
      if (options.cutAfter !== undefined && body !== undefined) {
        request.write(body.subarray(0, options.cutAfter), () => request.destroy(new Error('cut by the test')));
      } else {
        request.end(body);
      }
    });
  }

  get(path: string, headers: Readonly<Record<string, string>> = {}): Promise<RawAnswer> {
    return this.send('GET', path, { headers });
  }

  async create(folder: string, document: string): Promise<string> {
    const answer = await this.send('POST', folder, { body: document });
    if (answer.status !== 201) throw new Error(`${answer.status} ${answer.text}`);
    return answer.headers.location as string;
  }

  createFolder(folder: string, name: string): Promise<string> {
    return this.create(folder, `<folder><displayName>${name}</displayName></folder>`);
  }

  createFile(folder: string, name: string, mediaType = ''): Promise<string> {
    const type = `<mediaType>${mediaType}</mediaType>`;
    return this.create(folder, `<file><displayName>${name}</displayName>${type}</file>`);
  }

  async createFilled(folder: string, name: string, data: string | Uint8Array, mediaType = ''): Promise<string> {
    const file = await this.createFile(folder, name, mediaType);
    const { status } = await this.send('PUT', `${file}/data`, { body: data });
    if (status !== 204) throw new Error(`PUT data: ${status}`);
    return file;
  }
}

/** Texts of all elements of a name, in order. */
export function texts(xml: string, element: string): string[] {
  return [...xml.matchAll(new RegExp(`<${element}>([^<]*)</${element}>`, 'g'))].map((match) => match[1] as string);
}

export interface TestUser extends KeyPair {
  readonly uid: string;
  readonly email: string;
  readonly application: string;
  readonly refreshToken: string;
  readonly client: RawClient;
  /** URL of a system folder. */
  folder(local: string): string;
}

const PASSWORD = 'correct horse battery staple';

/** A user with everything, signed in over HTTP. */
export function signUp(server: ReferenceServer, email: string, quotaBytes?: number): Promise<TestUser> {
  return signUpAt(server.origin, server.administration, email, quotaBytes);
}

/** The same with a server that is another process. */
export async function signUpAt(
  origin: string,
  administration: AdministrationRules,
  email: string,
  quotaBytes?: number,
): Promise<TestUser> {
  const quota = quotaBytes === undefined ? {} : { quotaBytes };
  const { userId: uid } = await administration.addUser(email, PASSWORD, { scryptCost: 2 ** 10, ...quota });
  const application = await administration.addApplication('tests');
  const keys = await administration.addKeyPair(email);
  const client = new RawClient(origin);
  const refresh = await client.send('POST', '/app-authorization', {
    body: appAuthorization({ email, password: PASSWORD, application, ...keys }),
  });
  if (refresh.status !== 201) throw new Error(`sign-in: ${refresh.status} ${refresh.text}`);
  const refreshToken = refresh.headers.location as string;
  client.token = await accessToken(origin, keys, refreshToken);
  const folder = (local: string) => `${origin}/folder/:sc:${uid}:${local}`;
  return { uid, email, application, refreshToken, client, folder, ...keys };
}

export async function accessToken(origin: string, keys: KeyPair, refreshToken: string): Promise<string> {
  const answer = await new RawClient(origin).send('POST', '/authorization', {
    body: tokenAuthRequest(keys, refreshToken),
  });
  if (answer.status !== 201) throw new Error(`access token: ${answer.status}`);
  return answer.headers.location as string;
}

export function appAuthorization(fields: KeyPair & { email: string; password: string; application: string }): string {
  return (
    `<appAuthorization><username>${fields.email}</username><password>${fields.password}</password>` +
    `<application>${fields.application}</application><accessKeyId>${fields.accessKeyId}</accessKeyId>` +
    `<privateAccessKey>${fields.privateAccessKey}</privateAccessKey></appAuthorization>`
  );
}

export function tokenAuthRequest(keys: KeyPair, refreshToken: string): string {
  return (
    `<tokenAuthRequest><accessKeyId>${keys.accessKeyId}</accessKeyId>` +
    `<privateAccessKey>${keys.privateAccessKey}</privateAccessKey>` +
    `<refreshToken>${refreshToken}</refreshToken></tokenAuthRequest>`
  );
}

export const TEST_PASSWORD = PASSWORD;
