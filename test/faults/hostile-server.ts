import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { SeededRandom } from '../store/seeded-random.ts';

/**
 * A service that says anything that can be said in its language: addresses of others, of itself and of nothing, folders in
 * themselves, moments at the ends of time, sizes beyond all disks, lengths that are lies, tokens that expire at once.
 */
export class HostileServer {
  readonly origin: string;
  /** Requests that brought a token to where it does not belong. */
  readonly stolen: string[] = [];
  requests = 0;
  readonly #random: SeededRandom;
  readonly #server: Server;
  readonly #elsewhere: Server;
  readonly #others: string;

  static async start(random: SeededRandom): Promise<HostileServer> {
    const listening = (server: Server) =>
      new Promise<Server>((resolve) => server.listen(0, '127.0.0.1', () => resolve(server)));
    return new HostileServer(random, await listening(createServer()), await listening(createServer()));
  }

  private constructor(random: SeededRandom, server: Server, elsewhere: Server) {
    this.#random = random;
    this.#server = server;
    this.#elsewhere = elsewhere;
    this.origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    this.#others = `http://127.0.0.1:${(elsewhere.address() as AddressInfo).port}`;
    server.on('request', (request, response) => this.#answer(request, response));
    elsewhere.on('request', (request, response) => {
      this.stolen.push(`${request.method} ${request.url} ${request.headers.authorization ?? ''}`);
      response.end();
    });
  }

  get root(): string {
    return `${this.origin}/folder/:sc:1:2`;
  }

  async close(): Promise<void> {
    for (const server of [this.#server, this.#elsewhere]) {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    this.requests += 1;
    request.on('error', () => {});
    request.resume();
    request.on('end', () => {
      const chance = this.#random.next();
      if (chance < 0.04) return void request.socket.destroy();
      if (chance < 0.12) return this.#refuse(response);
      const { method = '', url = '' } = request;
      const path = url.replace(/\?.*$/, '');
      if (path === '/authorization') return this.#token(response);
      if (method === 'GET' && path.endsWith('/data')) return this.#data(request, response);
      if (method === 'GET') return this.#document(path, response);
      const location = this.#pick(['', this.#address(), this.#address(), `${this.origin}/new/${this.requests}`]);
      const headers = { ...this.#date(), ...(location !== '' && { Location: location }) };
      const status = method === 'POST' ? 201 : this.#pick([200, 204, 301]);
      response.writeHead(status, headers).end(status === 200 ? this.#version() : '');
    });
  }

  #refuse(response: ServerResponse): void {
    const status = this.#pick([200, 302, 400, 401, 403, 404, 409, 413, 416, 429, 500, 503]);
    const headers = {
      ...this.#date(),
      'Content-Type': this.#pick(['text/html', 'application/xml']),
      'Retry-After': this.#pick(['0', '999999999', 'Fri, 31 Dec 9999 23:59:59 GMT', '-1', 'soon']),
      Location: this.#address(),
    };
    response.writeHead(status, headers).end('<error><h3>no</h3></error>');
  }

  #token(response: ServerResponse): void {
    const expiration = this.#pick([
      new Date(Date.now() + 3_600_000).toISOString(),
      new Date(Date.now() + 3_600_000).toISOString(),
      new Date(Date.now() + 2).toISOString(),
      '0001-01-01T00:00:00.000+00:00',
      '9999-12-31T23:59:59.999+00:00',
      'tomorrow',
    ]);
    const user = this.#pick([`${this.origin}/user/1`, `${this.origin}/user/1`, `${this.#others}/user/1`]);
    response
      .writeHead(201, { ...this.#date(), Location: `${this.origin}/authorization/T${this.requests}` })
      .end(`<authorization><expiration>${expiration}</expiration><user>${user}</user></authorization>`);
  }

  #document(path: string, response: ServerResponse): void {
    response.writeHead(200, { ...this.#date(), 'Content-Type': 'application/xml' }).end(this.#documentAt(path));
  }

  #documentAt(path: string): string {
    if (path.endsWith('/contents')) {
      const [folders, files] = [this.#many(4, () => this.#folder()), this.#many(5, () => this.#file())];
      return `<collectionContents${this.#more()}>${folders}${files}</collectionContents>`;
    }
    if (path.endsWith('/version')) {
      const count = this.#pick([0, 1, 2, 3, 1_000]);
      const versions = Array.from({ length: count }, () => this.#version()).join('');
      return `<fileVersions${this.#more()}>${versions}</fileVersions>`;
    }
    if (/\/version\/[^/]*$/.test(path)) return this.#version();
    if (path.startsWith('/user')) return this.#user();
    const place = `<parent>${this.#address()}</parent>`;
    return this.#pick([
      `<folder>${this.#name()}${place}<contents>c</contents></folder>`,
      `<file>${this.#name()}${place}${this.#bytes()}</file>`,
    ]);
  }

  #data(request: IncomingMessage, response: ServerResponse): void {
    const [, first = '0', last = ''] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '') ?? [];
    const length = last === '' ? this.#random.below(3_000) : Math.min(Number(last) - Number(first) + 1, 3_000);
    const body = Buffer.alloc(this.#pick([length, length, length, 0, length + 1]), 'x');
    const total = this.#pick(['*', '3', '2000', '1']);
    const headers: Record<string, string> = { ...this.#date(), 'Content-Disposition': 'attachment' };
    headers['Content-Length'] = String(this.#pick([body.length, body.length, body.length + 5]));
    if (last !== '') headers['Content-Range'] = this.#pick([`bytes ${first}-${last}/${total}`, 'bytes 0-0/1', 'all']);
    response.writeHead(last === '' ? 200 : 206, headers);
    response.write(body);
    if (headers['Content-Length'] === String(body.length)) response.end();
    else response.destroy();
  }

  #date(): Record<string, string> {
    const now = new Date().toUTCString();
    return { Date: this.#pick([now, now, 'Thu, 01 Jan 0001 00:00:00 GMT', 'Fri, 31 Dec 9999 23:59:59 GMT', 'never']) };
  }

  #more(): string {
    return this.#pick([' hasMore="false"', ' hasMore="false"', ' hasMore="true"', '']);
  }

  #many(most: number, make: () => string): string {
    return Array.from({ length: this.#random.below(most + 1) }, make).join('');
  }

  #folder(): string {
    const type = this.#pick(['folder', 'syncFolder']);
    return `<collection type="${type}">${this.#name()}<ref>${this.#address('folder')}</ref><contents>c</contents></collection>`;
  }

  #file(): string {
    return `<file>${this.#name()}<ref>${this.#address('file')}</ref>${this.#bytes()}</file>`;
  }

  #bytes(): string {
    const size = this.#pick([0, 3, 2_000, 2_000, -1, -9_007_199_254_740_991, 9_007_199_254_740_991]);
    const time = this.#moment();
    const type = this.#pick(['text/plain', 'text/plain', 'inode/symlink', '']);
    const there = this.#pick(['true', 'true', 'false']);
    return `<size>${size}</size><lastModified>${time}</lastModified><mediaType>${type}</mediaType><presentOnServer>${there}</presentOnServer>`;
  }

  #version(): string {
    const ref = `${this.origin}/file/:sc:1:${this.#random.below(6)}/version/${this.#random.below(2_000)}`;
    const size = this.#pick([0, 3, 2_000, 2_000, 9_007_199_254_740_991]);
    const isThere = this.#pick([true, true, false]);
    return `<fileVersion><size>${size}</size><storedSize>${size}</storedSize><lastModified>${this.#moment()}</lastModified><presentOnServer>${isThere}</presentOnServer><ref>${this.#pick([ref, ref, ref, this.#address()])}</ref></fileVersion>`;
  }

  #user(): string {
    const quota = this.#pick([
      '<quota><limit>-1</limit><usage>-1</usage></quota>',
      '<quota><limit>0</limit><usage>9007199254740991</usage></quota>',
      '',
    ]);
    return `<user><username>u</username>${quota}<syncfolders>${this.#address()}/contents</syncfolders><deleted>${this.#address()}</deleted><magicBriefcase>${this.root}</magicBriefcase></user>`;
  }

  #moment(): string {
    return this.#pick([
      '2026-01-01T00:00:00.000+00:00',
      '2026-01-01T00:00:00.000+00:00',
      '2026-01-01T00:00:01.000+00:00',
      '0001-01-01T00:00:00.000+14:00',
      '9999-12-31T23:59:59.999-14:00',
    ]);
  }

  #name(): string {
    const name = this.#pick([
      'a',
      'b',
      'A',
      'é',
      'e\u0301',
      '',
      '.',
      '..',
      '/',
      '../x',
      'a\nb',
      'a&#13;',
      'x'.repeat(300),
      '‮',
    ]);
    return `<displayName>${name}</displayName>`;
  }

  /** Of ours, of nobody, of another account, of another server, of things that are no files. */
  #address(kind: 'file' | 'folder' = this.#pick(['file', 'folder'])): string {
    const own = `${this.origin}/${kind}/:sc:1:${this.#random.below(6)}`;
    const strange = this.#pick([
      this.root,
      `${this.origin}/${kind}/:sc:999:1`,
      `${this.#others}/${kind}/:sc:1:1`,
      `${this.origin}/authorization/T1`,
      `${this.origin}/${'long'.repeat(1_000)}`,
      `${this.origin}/../../${kind}`,
      'file:///etc/passwd',
      'nothing',
    ]);
    return this.#random.next() < 0.85 ? own : strange;
  }

  #pick<T>(of: readonly T[]): T {
    return this.#random.pick(of);
  }
}
