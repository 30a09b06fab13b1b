import { ProtocolError } from '../base/errors.ts';

/**
 * Builds and parses the service's URLs. A client builds few of them: it follows the URLs in responses and appends
 * `/contents`, `/data` and `/version` (docs/service.md 2.1). A server parses all of them.
 */

/** A resource's id: its owner and its local part. In URLs `:sc:<uid>:<local>`, as a dsid `/sc/<uid>/<local>`. */
export interface ResourceId {
  readonly uid: string;
  readonly local: string;
}

/** The local ids of the system folders of every account (docs/service.md 2.1). */
export const SYSTEM_FOLDERS = { webArchive: '1', magicBriefcase: '2', mobilePhotos: '3', deleted: '9' } as const;

export type UserCollection =
  | 'folders'
  | 'workspaces'
  | 'albums'
  | 'receivedShares'
  | 'publicLinks'
  | 'recentActivities';

const USER_COLLECTIONS: readonly UserCollection[] = [
  'folders',
  'workspaces',
  'albums',
  'receivedShares',
  'publicLinks',
  'recentActivities',
];

/** The parsed form of a path. */
export type Endpoint =
  | { readonly kind: 'appAuthorization'; readonly token: string | null }
  | { readonly kind: 'authorization'; readonly token: string | null }
  /** `uid` null: the shortcut `/user` for the token's user. */
  | { readonly kind: 'user'; readonly uid: string | null }
  | { readonly kind: 'userCollection'; readonly uid: string; readonly collection: UserCollection }
  | { readonly kind: 'userCollectionContents'; readonly uid: string; readonly collection: UserCollection }
  | { readonly kind: 'folder' | 'folderContents'; readonly id: ResourceId }
  | { readonly kind: 'workspace' | 'workspaceContents'; readonly id: ResourceId }
  | { readonly kind: 'album' | 'albumContents'; readonly id: ResourceId }
  | { readonly kind: 'file' | 'fileData' | 'fileVersions'; readonly id: ResourceId }
  | { readonly kind: 'fileVersion' | 'fileVersionData'; readonly id: ResourceId; readonly version: string }
  /** `uid` is the receiver, `id` the folder under its owner's id. */
  | { readonly kind: 'receivedShare'; readonly uid: string; readonly id: ResourceId }
  | { readonly kind: 'contact'; readonly uid: string; readonly contact: string }
  | { readonly kind: 'publicLink'; readonly token: string };

export type EndpointKind = Endpoint['kind'];

/** Path of an endpoint, below the service's base. */
export function pathOf(endpoint: Endpoint): string {
  switch (endpoint.kind) {
    case 'appAuthorization':
      return endpoint.token === null ? '/app-authorization' : `/app-authorization/${endpoint.token}`;
    case 'authorization':
      return endpoint.token === null ? '/authorization' : `/authorization/${endpoint.token}`;
    case 'user':
      return endpoint.uid === null ? '/user' : `/user/${endpoint.uid}`;
    case 'userCollection':
      return `/user/${endpoint.uid}/${endpoint.collection}`;
    case 'userCollectionContents':
      return `/user/${endpoint.uid}/${endpoint.collection}/contents`;
    case 'folder':
    case 'workspace':
    case 'album':
    case 'file':
      return `/${endpoint.kind}/${idSegment(endpoint.id)}`;
    case 'folderContents':
      return `/folder/${idSegment(endpoint.id)}/contents`;
    case 'workspaceContents':
      return `/workspace/${idSegment(endpoint.id)}/contents`;
    case 'albumContents':
      return `/album/${idSegment(endpoint.id)}/contents`;
    case 'fileData':
      return `/file/${idSegment(endpoint.id)}/data`;
    case 'fileVersions':
      return `/file/${idSegment(endpoint.id)}/version`;
    case 'fileVersion':
      return `/file/${idSegment(endpoint.id)}/version/${endpoint.version}`;
    case 'fileVersionData':
      return `/file/${idSegment(endpoint.id)}/version/${endpoint.version}/data`;
    case 'receivedShare':
      return `/receivedShare/${endpoint.uid}/${idSegment(endpoint.id)}`;
    case 'contact':
      return `/contact/${endpoint.uid}/${endpoint.contact}`;
    case 'publicLink':
      return `/pf/${endpoint.token}`;
    default:
      return endpoint satisfies never;
  }
}

/**
 * The endpoint of a path (without its query); null for invalid paths, including look-alikes: malformed ids, `..`,
 * encoded slashes, NUL. `:` may be raw or %3A (docs/service.md 2.1).
 */
export function parsePath(path: string): Endpoint | null {
  const segments = segmentsOf(path);
  if (segments === null) return null;
  const [root, first, second, third, fourth] = segments;
  if (root === undefined) return null;
  switch (root) {
    case 'app-authorization':
    case 'authorization':
      if (segments.length > 2 || !(first === undefined || TOKEN.test(first))) return null;
      return { kind: root === 'authorization' ? 'authorization' : 'appAuthorization', token: first ?? null };
    case 'user':
      return userEndpoint(segments);
    case 'folder':
    case 'workspace':
    case 'album': {
      const id = parseIdSegment(first ?? '');
      if (id === null || segments.length > 3) return null;
      if (second === undefined) return { kind: root, id };
      return second === 'contents' ? { kind: `${root}Contents`, id } : null;
    }
    case 'file': {
      const id = parseIdSegment(first ?? '');
      if (id === null) return null;
      if (segments.length === 2) return { kind: 'file', id };
      if (segments.length === 3 && second === 'data') return { kind: 'fileData', id };
      if (second !== 'version') return null;
      if (segments.length === 3) return { kind: 'fileVersions', id };
      if (third === undefined || !TOKEN.test(third)) return null;
      if (segments.length === 4) return { kind: 'fileVersion', id, version: third };
      return segments.length === 5 && fourth === 'data' ? { kind: 'fileVersionData', id, version: third } : null;
    }
    case 'receivedShare': {
      const id = parseIdSegment(second ?? '');
      if (segments.length !== 3 || id === null || !UID.test(first ?? '')) return null;
      return { kind: 'receivedShare', uid: first as string, id };
    }
    case 'contact':
      if (segments.length !== 3 || !UID.test(first ?? '') || !UID.test(second ?? '')) return null;
      return { kind: 'contact', uid: first as string, contact: second as string };
    case 'pf':
      return segments.length === 2 && TOKEN.test(first ?? '') ? { kind: 'publicLink', token: first as string } : null;
    default:
      return null;
  }
}

/** The endpoint of a full URL below `base`; null otherwise. */
export function parseUrl(base: string, url: string): Endpoint | null {
  if (!url.startsWith(`${base}/`)) return null;
  const query = url.indexOf('?');
  return parsePath(url.slice(base.length, query === -1 ? undefined : query));
}

const RESOURCES = ['user', 'folder', 'file', 'workspace', 'album'] as const;

/** All that a client learns from a resource's URL: ids belong to the service and are opaque (docs/service.md 2.1). */
export interface AddressShape {
  readonly kind: (typeof RESOURCES)[number] | 'userCollection';
  /** As in the URL; for a collection, the user's id. */
  readonly id: string;
}

/** The shape of a URL of the service at `base`; null for any other. */
export function shapeOf(base: string, url: string): AddressShape | null {
  if (!URL.canParse(url)) return null;
  const [from, at] = [new URL(base), new URL(url)];
  const above = from.pathname.replace(/\/+$/, '');
  if (at.origin !== from.origin || !at.pathname.startsWith(`${above}/`)) return null;
  const [root, id = '', ...rest] = at.pathname
    .slice(above.length + 1)
    .replace(/\/$/, '')
    .split('/');
  const kind = RESOURCES.find((candidate) => candidate === root);
  if (kind === undefined || id === '' || rest.length > 1) return null;
  if (rest.length === 0) return { kind, id };
  const isCollection = kind === 'user' && USER_COLLECTIONS.some((collection) => collection === rest[0]);
  return isCollection ? { kind: 'userCollection', id } : null;
}

/** `/sc/<uid>/<local>`. */
export function dsidOf(id: ResourceId): string {
  return `/sc/${id.uid}/${id.local}`;
}

export type ListingOrder = 'name' | 'last_modified' | 'size' | 'extension';

const LISTING_ORDERS: readonly ListingOrder[] = ['name', 'last_modified', 'size', 'extension'];

/** Parameters of a listing request (docs/service.md 5.2); null selects the default. */
export interface ListingQuery {
  readonly type: 'folder' | 'file' | null;
  readonly start: number | null;
  readonly max: number | null;
  readonly order: ListingOrder | null;
}

export function formatListingQuery(query: Partial<ListingQuery>): string {
  const parameters = (['type', 'start', 'max', 'order'] as const).flatMap((name) => {
    const value = query[name];
    return value === undefined || value === null ? [] : [`${name}=${value}`];
  });
  return parameters.length === 0 ? '' : `?${parameters.join('&')}`;
}

/**
 * Parses the query of a listing. Unknown parameters are ignored.
 * @throws ProtocolError naming the invalid parameter: a 400. ASSUMED (docs/service.md 2.4)
 */
export function parseListingQuery(query: URLSearchParams): ListingQuery {
  const type = query.get('type');
  const order = query.get('order');
  if (type !== null && type !== 'folder' && type !== 'file') throw new ProtocolError(`type: unknown value`);
  const known = LISTING_ORDERS.find((candidate) => candidate === order);
  if (order !== null && known === undefined) throw new ProtocolError('order: unknown value');
  return { type, order: known ?? null, start: whole(query, 'start', 0), max: whole(query, 'max', 1) };
}

function whole(query: URLSearchParams, name: string, least: number): number | null {
  const raw = query.get(name);
  if (raw === null) return null;
  const value = /^\d{1,15}$/.test(raw) ? Number(raw) : Number.NaN;
  if (!(value >= least)) throw new ProtocolError(`${name}: not a whole number from ${least} on`);
  return value;
}

const UID = /^[0-9]{1,20}$/;
const LOCAL = /^[0-9]+(?:_[0-9]+)?$/;
/** Tokens and version ids: opaque words without a special meaning in a path. */
const TOKEN = /^[A-Za-z0-9_-]{1,128}$/;
const SEGMENTS_MAX = 6;

function segmentsOf(path: string): string[] | null {
  if (!path.startsWith('/')) return null;
  const raw = path.slice(1).split('/');
  if (raw.at(-1) === '') raw.pop();
  if (raw.length > SEGMENTS_MAX) return null;
  try {
    // Each segment is decoded separately and matched against a pattern without a slash: %2F cannot split a segment.
    return raw.map((segment) => decodeURIComponent(segment));
  } catch {
    return null;
  }
}

function userEndpoint(segments: readonly string[]): Endpoint | null {
  const [, uid, name, contents] = segments;
  if (uid === undefined) return { kind: 'user', uid: null };
  if (!UID.test(uid)) return null;
  if (name === undefined) return { kind: 'user', uid };
  const collection = USER_COLLECTIONS.find((candidate) => candidate === name);
  if (collection === undefined || segments.length > 4) return null;
  if (contents === undefined) return { kind: 'userCollection', uid, collection };
  return contents === 'contents' ? { kind: 'userCollectionContents', uid, collection } : null;
}

function idSegment(id: ResourceId): string {
  return `:sc:${id.uid}:${id.local}`;
}

function parseIdSegment(segment: string): ResourceId | null {
  const [empty, scheme, uid = '', local = '', ...rest] = segment.split(':');
  if (empty !== '' || scheme !== 'sc' || rest.length > 0 || !UID.test(uid) || !LOCAL.test(local)) return null;
  return { uid, local };
}
