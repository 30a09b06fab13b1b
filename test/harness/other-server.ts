import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { SeededRandom } from '../store/seeded-random.ts';

type IdKind = 'user' | 'folder' | 'file' | 'version';

/** What the interface leaves to whoever keeps to it. */
export interface Freedoms {
  /** An id as it stands in an address. */
  readonly idOf: (kind: IdKind, number: number) => string;
  /** Entries, and versions, on a page, however many were asked for. */
  readonly pageMax: number;
  /** Whether a page says that more follows. */
  readonly saysMore: boolean;
  /** Bytes that one request to a version may bring: then it is honestly incomplete. */
  readonly takesBytes: number;
  /** A token is good for so many requests. */
  readonly tokenUses: number;
  /** Every so many requests meet a 503 that says until when; Infinity: none does. */
  readonly busyEvery: number;
  /** A new name is a new address. */
  readonly readdresses: boolean;
  readonly ranges: 'honoured' | 'ignored';
  /** Bytes that one request for a range gets at most. */
  readonly givesBytes: number;
  /** What data are called. */
  readonly dataType: string;
  /** How a body ends. */
  readonly framing: 'chunks' | 'length' | 'end of the connection';
  /** An address as Location has it. */
  readonly location: (url: string) => string;
  /** When a file was saved as listings, and as its history, tell it; null: they do not. */
  readonly listedMs: (ms: number) => number | null;
  readonly historyMs: (ms: number) => number | null;
  /** Whether answers say when they were made. */
  readonly hasDate: boolean;
}

/** As `cfs serve` does. */
export const USUAL: Freedoms = {
  idOf: (kind, number) => (kind === 'user' ? '1' : kind === 'version' ? `${number}_1` : `:sc:1:${number}`),
  pageMax: 500,
  saysMore: true,
  takesBytes: Number.POSITIVE_INFINITY,
  tokenUses: Number.POSITIVE_INFINITY,
  busyEvery: Number.POSITIVE_INFINITY,
  readdresses: false,
  ranges: 'honoured',
  givesBytes: Number.POSITIVE_INFINITY,
  dataType: 'application/octet-stream',
  framing: 'chunks',
  location: (url) => url,
  listedMs: (ms) => ms,
  historyMs: (ms) => ms,
  hasDate: true,
};

interface Version {
  readonly id: string;
  bytes: Buffer;
  complete: boolean;
  timeMs: number;
}

export interface Resource {
  readonly kind: 'folder' | 'file';
  id: string;
  name: string;
  parent: Resource | null;
  /** Newest first. */
  readonly versions: Version[];
}

interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | null;
}

interface Call {
  readonly method: string;
  /** What follows the address of the resource. */
  readonly rest: string;
  readonly query: URLSearchParams;
  readonly range: string;
  readonly body: Buffer;
}

/**
 * Another service that keeps to the interface: in memory, and with nothing of ours, neither documents nor codecs nor choices. What it says it
 * says in as many ways as XML has, drawn by a seed.
 */
export class OtherServer {
  readonly origin: string;
  readonly briefcase: Resource;
  readonly trash: Resource;
  /** Method and target of each request. */
  readonly requests: string[] = [];
  readonly #http: Server;
  readonly #freedoms: Freedoms;
  readonly #random: SeededRandom;
  readonly #resources = new Map<string, Resource>();
  /** How often each was used. */
  readonly #tokens = new Map<string, number>();
  #lastNumber = 1;

  static async start(freedoms: Partial<Freedoms> = {}, seed = 1): Promise<OtherServer> {
    const http = createServer();
    await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
    return new OtherServer(http, { ...USUAL, ...freedoms }, seed);
  }

  private constructor(http: Server, freedoms: Freedoms, seed: number) {
    this.#http = http;
    this.#freedoms = freedoms;
    this.#random = new SeededRandom(seed);
    this.origin = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
    this.briefcase = this.make('folder', null, 'Magic Briefcase');
    this.trash = this.make('folder', null, 'Deleted Files');
    http.on('request', (request, response) => {
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('error', () => {});
      request.on('end', () => this.#send(response, this.#answer(request, Buffer.concat(chunks))));
    });
  }

  async close(): Promise<void> {
    this.#http.closeAllConnections();
    await new Promise((resolve) => this.#http.close(resolve));
  }

  url(resource: Resource): string {
    return `${this.origin}/${resource.kind}/${resource.id}`;
  }

  get userUrl(): string {
    return `${this.origin}/user/${this.#freedoms.idOf('user', 1)}`;
  }

  /** Paths below a folder in order of their names, folders with a slash, each file with its newest bytes (null: it has none). */
  tree(folder: Resource = this.briefcase, above = ''): [path: string, bytes: Buffer | null][] {
    const entries = this.#in(folder).sort((a, b) => (a.name < b.name ? -1 : 1));
    return entries.flatMap((each): [string, Buffer | null][] => {
      const path = above + each.name;
      if (each.kind === 'file') return [[path, newestOf(each)?.bytes ?? null]];
      return [[`${path}/`, null], ...this.tree(each, `${path}/`)];
    });
  }

  make(kind: 'folder' | 'file', parent: Resource | null, name: string): Resource {
    const made: Resource = { kind, id: this.#id(kind), name, parent, versions: [] };
    this.#resources.set(`/${kind}/${made.id}`, made);
    return made;
  }

  /** As another client does it. */
  save(file: Resource, bytes: string | Buffer, timeMs = Date.now()): void {
    file.versions.unshift({
      id: this.#id('version'),
      bytes: Buffer.from(bytes as string),
      complete: true,
      timeMs,
    });
  }

  #id(kind: IdKind): string {
    return this.#freedoms.idOf(kind, ++this.#lastNumber);
  }

  /** Folders first, of the files the youngest first. */
  #in(folder: Resource): Resource[] {
    const all = [...this.#resources.values()].filter(({ parent }) => parent === folder);
    return [...all.filter(({ kind }) => kind === 'folder'), ...all.filter(({ kind }) => kind === 'file').reverse()];
  }

  #answer(request: IncomingMessage, body: Buffer): Reply {
    const [path = '', query = ''] = (request.url as string).split('?');
    const method = request.method as string;
    this.requests.push(`${method} ${request.url}`);
    if (method === 'POST' && path === '/app-authorization') {
      return empty(201, { Location: `${this.origin}/app-authorization/refresh` });
    }
    if (method === 'POST' && path === '/authorization') return this.#newToken();
    const token = request.headers.authorization ?? '';
    const uses = this.#tokens.get(token) ?? Number.POSITIVE_INFINITY;
    if (uses >= this.#freedoms.tokenUses) return refusal(401);
    this.#tokens.set(token, uses + 1);
    if (this.requests.length % this.#freedoms.busyEvery === 0) {
      return refusal(503, { 'Retry-After': new Date(Date.now() + 1_000).toUTCString() });
    }
    if (this.origin + path === this.userUrl) return this.#user();
    const segments = path.split('/');
    const resource = this.#resources.get(segments.slice(0, 3).join('/'));
    if (resource === undefined) return refusal(404);
    const rest = segments.slice(3).join('/');
    const range = request.headers.range ?? '';
    const call: Call = { method, rest, query: new URLSearchParams(query), range, body };
    return resource.kind === 'folder' ? this.#folder(resource, call) : this.#file(resource, call);
  }

  #newToken(): Reply {
    const token = `${this.origin}/authorization/${this.#id('version')}`;
    this.#tokens.set(token, 0);
    const expiration = `<expiration>${this.#instant(Date.now() + 3600_000)}</expiration>`;
    const children = this.#shuffled([expiration, `<user>${this.userUrl}</user>`]);
    return this.#document('authorization', children, { status: 201, headers: { Location: token } });
  }

  #user(): Reply {
    return this.#document('user', [
      `<magicBriefcase>${this.url(this.briefcase)}</magicBriefcase>`,
      `<deleted>${this.url(this.trash)}</deleted>`,
      `<syncfolders>${this.userUrl}/folders/contents</syncfolders>`,
      '<username>someone@example.com</username>',
    ]);
  }

  #folder(folder: Resource, { method, rest, query, body }: Call): Reply {
    const text = body.toString();
    if (method === 'GET' && rest === 'contents') return this.#contents(folder, query);
    if (method === 'GET') {
      return this.#document('folder', [
        `<displayName>${this.#text(folder.name)}</displayName>`,
        ...(folder.parent === null ? [] : [`<parent> ${this.url(folder.parent)} </parent>`]),
        `<contents>${this.url(folder)}/contents</contents>`,
      ]);
    }
    if (method === 'POST') {
      const kind = /<folder[\s>]/.test(text) ? 'folder' : 'file';
      return this.#made(201, this.url(this.make(kind, folder, elementOf(text, 'displayName') ?? '')));
    }
    return method === 'DELETE' ? this.#deleted(folder) : (this.#relocated(folder, text) ?? empty(200));
  }

  #contents(folder: Resource, query: URLSearchParams): Reply {
    const { page, attributes } = this.#page(this.#in(folder), query);
    const entries = page.map((each) => {
      const name = `<displayName>${this.#text(each.name)}</displayName>`;
      const ref = `<ref>\n${this.url(each)}\n</ref>`;
      if (each.kind === 'folder') return `<collection colour="red" type="folder">${ref}<extra/>${name}</collection>`;
      return `<file>${this.#shuffled([name, ref, ...this.#filling(each)]).join('\n  ')}</file>`;
    });
    return this.#document('collectionContents', entries, { attributes });
  }

  #page<T>(all: readonly T[], query: URLSearchParams): { page: readonly T[]; attributes: string } {
    const { pageMax, saysMore } = this.#freedoms;
    const start = Number(query.get('start') ?? 0);
    const max = Math.min(Number(query.get('max') ?? 500), pageMax);
    const hasMore = all.length > start + max ? 1 : 0;
    const attributes = saysMore ? ` hasMore='${hasMore}' total='${all.length}'` : '';
    return { page: all.slice(start, start + max), attributes };
  }

  #filling(file: Resource): string[] {
    const newest = newestOf(file);
    if (newest === undefined) return ['<size>-1</size>', '<presentOnServer>0</presentOnServer>', '<lastModified/>'];
    return [
      `<size> ${newest.bytes.byteLength} </size>`,
      ...this.#modified(this.#freedoms.listedMs(newest.timeMs)),
      '<presentOnServer>1</presentOnServer>',
      `<fileData>${this.url(file)}/data</fileData>`,
      '<unknown><size>7</size><ref>nowhere</ref></unknown>',
    ];
  }

  #file(file: Resource, call: Call): Reply {
    const { method, rest, query, body } = call;
    if (rest === 'version') {
      if (method === 'POST') return this.#newVersion(file);
      // In a history that does not say so nothing follows: pages of it are said.
      const { page, attributes } = this.#freedoms.saysMore
        ? this.#page(file.versions, query)
        : { page: file.versions, attributes: '' };
      const versions = page.map(
        (each) => `<fileVersion>${this.#shuffled(this.#about(file, each)).join('')}</fileVersion>`,
      );
      return this.#document('fileVersions', versions, { attributes });
    }
    if (rest.startsWith('version/')) return this.#version(file, call);
    if (rest === 'data' && method === 'PUT') {
      this.save(file, body);
      return empty(200);
    }
    if (rest === 'data') return this.#data(newestOf(file), call);
    if (method === 'DELETE') return this.#deleted(file);
    return (method === 'PUT' ? this.#relocated(file, body.toString()) : null) ?? this.#aboutFile(file);
  }

  #aboutFile(file: Resource): Reply {
    return this.#document('file', [
      `<displayName>${this.#text(file.name)}</displayName>`,
      `<parent>${this.url(file.parent as Resource)}</parent>`,
      ...this.#filling(file),
    ]);
  }

  #newVersion(file: Resource): Reply {
    const version = { id: this.#id('version'), bytes: Buffer.alloc(0), complete: false, timeMs: Date.now() };
    file.versions.unshift(version);
    return this.#made(202, `${this.url(file)}/version/${version.id}`);
  }

  #version(file: Resource, call: Call): Reply {
    const [, id, data] = call.rest.split('/');
    const version = file.versions.find((each) => each.id === id);
    if (version === undefined) return refusal(404);
    if (data === undefined) return this.#document('fileVersion', this.#about(file, version));
    if (call.method === 'GET') return this.#data(version.complete ? version : undefined, call);
    if (version.complete) return refusal(409);
    const [, offset = '0'] = /^bytes=(\d+)-$/.exec(call.range) ?? [];
    if (Number(offset) !== version.bytes.byteLength) return refusal(416);
    const { takesBytes } = this.#freedoms;
    version.bytes = Buffer.concat([version.bytes, call.body.subarray(0, takesBytes)]);
    version.complete = call.body.byteLength <= takesBytes;
    version.timeMs = Date.now();
    return this.#document('fileVersion', this.#about(file, version));
  }

  #about(file: Resource, version: Version): string[] {
    const size = version.complete ? 'size' : 'storedSize';
    return [
      `<${size}>${version.bytes.byteLength}</${size}>`,
      `<presentOnServer>${version.complete}</presentOnServer>`,
      `<fileData>${this.url(file)}/version/${version.id}/data</fileData>`,
      ...this.#modified(this.#freedoms.historyMs(version.timeMs)),
    ];
  }

  #data(version: Version | undefined, { range }: Call): Reply {
    if (version === undefined) return refusal(404);
    const headers = { 'Content-Type': this.#freedoms.dataType };
    const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(range) ?? [];
    if (first === undefined || this.#freedoms.ranges === 'ignored')
      return { status: 200, headers, body: version.bytes };
    const end = Math.min(Number(last) + 1, Number(first) + this.#freedoms.givesBytes);
    const body = version.bytes.subarray(Number(first), end);
    return { status: 206, headers: { ...headers, 'Content-Range': `bytes ${first}-${end - 1}/*` }, body };
  }

  #made(status: number, url: string): Reply {
    return empty(status, { Location: this.#freedoms.location(url) });
  }

  /** Null where it has its address still. */
  #relocated(resource: Resource, text: string): Reply | null {
    const parent = elementOf(text, 'parent');
    const target = parent === null ? resource.parent : this.#resources.get(parent.slice(this.origin.length));
    if (target === undefined) return refusal(404);
    const name = elementOf(text, 'displayName') ?? resource.name;
    const isNew = name !== resource.name;
    resource.name = name;
    resource.parent = target;
    if (!isNew || !this.#freedoms.readdresses) return null;
    this.#resources.delete(`/${resource.kind}/${resource.id}`);
    resource.id = this.#id(resource.kind);
    this.#resources.set(`/${resource.kind}/${resource.id}`, resource);
    return this.#made(301, this.url(resource));
  }

  #deleted(resource: Resource): Reply {
    this.#resources.delete(`/${resource.kind}/${resource.id}`);
    return empty(200);
  }

  #document(
    root: string,
    children: readonly string[],
    how: { status?: number; headers?: Readonly<Record<string, string>>; attributes?: string } = {},
  ): Reply {
    const before = `\uFEFF<?xml version='1.0' encoding='utf-8'?>\n<!-- another -->\n<?hint of="another"?>`;
    const open = `<${root}${how.attributes ?? ''} xmlns='urn:other'>`;
    const body = Buffer.from([before, open, children.join('\n<!-- -->'), `</${root}>`, '<!-- end -->', ''].join('\n'));
    return { status: how.status ?? 200, headers: { 'Content-Type': 'Text/XML;charset="utf-8"', ...how.headers }, body };
  }

  #send(response: ServerResponse, { status, headers, body }: Reply): void {
    const { framing, hasDate } = this.#freedoms;
    response.sendDate = hasDate;
    response.useChunkedEncodingByDefault = framing === 'chunks';
    response.shouldKeepAlive = framing !== 'end of the connection';
    const length = framing === 'length' || body === null ? { 'Content-Length': String(body?.byteLength ?? 0) } : {};
    response.writeHead(status, { ...headers, ...length });
    if (body === null) {
      response.end();
      return;
    }
    const cut = this.#random.below(body.byteLength + 1);
    response.write(body.subarray(0, cut), () => response.end(body.subarray(cut)));
  }

  #shuffled<T>(items: readonly T[]): T[] {
    const drawn = items.map((item) => ({ item, at: this.#random.next() }));
    return drawn.sort((a, b) => a.at - b.at).map(({ item }) => item);
  }

  /** As references, as CDATA, or as it is. */
  #text(text: string): string {
    switch (this.#random.below(3)) {
      case 0:
        return [...text].map((character) => `&#x${character.codePointAt(0)?.toString(16)};`).join('');
      case 1:
        return `<![CDATA[${text}]]>`;
      default:
        return text.replaceAll('&', '&#38;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
    }
  }

  #modified(ms: number | null): string[] {
    return ms === null ? [] : [`<lastModified>${this.#instant(ms)}</lastModified>`];
  }

  /** In some zone, with three or nine digits of a second. */
  #instant(ms: number): string {
    const eastMinutes = [0, 14 * 60, -12 * 60, 345][this.#random.below(4)] as number;
    const local = new Date(ms + eastMinutes * 60_000).toISOString().slice(0, 23);
    const [hour, minute] = [Math.abs(eastMinutes) / 60, Math.abs(eastMinutes) % 60];
    const digits = [Math.floor(hour), minute].map((number) => String(number).padStart(2, '0')).join(':');
    const zone = eastMinutes === 0 ? 'Z' : `${eastMinutes < 0 ? '-' : '+'}${digits}`;
    return `${local}${this.#random.below(2) === 0 ? '' : '000000'}${zone}`;
  }
}

function newestOf({ versions }: Resource): Version | undefined {
  return versions.find(({ complete }) => complete);
}

function empty(status: number, headers: Readonly<Record<string, string>> = {}): Reply {
  return { status, headers, body: null };
}

function refusal(status: number, headers: Readonly<Record<string, string>> = {}): Reply {
  const body = Buffer.from('<html><body><h3>No</h3></body></html>');
  return { status, headers: { 'Content-Type': 'text/html', ...headers }, body };
}

/** The text of an element of a document that we sent. */
function elementOf(document: string, element: string): string | null {
  const raw = new RegExp(`<${element}>([^<]*)</${element}>`).exec(document)?.[1];
  if (raw === undefined) return null;
  const plain = raw.replaceAll('&lt;', '<').replaceAll('&gt;', '>').replaceAll('&quot;', '"');
  return plain.replace(/&#(\d+);/g, (_, code: string) => String.fromCodePoint(Number(code))).replaceAll('&amp;', '&');
}
