import type { AdministrationRules } from '../../../src/server/rules.ts';
import type { SeededRandom } from '../../store/seeded-random.ts';
import type { RawRequest } from '../raw-client.ts';
import type { ServiceSide } from './service-side.ts';

/** A request or an action of the operator, with common names for ids. */
export type Operation =
  | { readonly user: number; readonly method: string; readonly path: string; readonly request: RawRequest }
  | {
      readonly what: string;
      readonly action: (administration: AdministrationRules, own: (name: string) => string) => Promise<unknown>;
    };

export const EMAILS = ['ann@example.com', 'bob@example.com'] as const;
const UIDS = ['1001', '1002'] as const;
const NAMES = ['a', 'A', 'b.txt', 'ä', 'Ä', '', '.', '/', 'picture.jpg', '😀', '&amp;&lt;', 'x'.repeat(300)];
const TYPES = ['', 'text/plain', 'image/jpeg', 'application/x-long; charset=utf-8'];
const COLLECTIONS = ['folders', 'workspaces', 'albums', 'receivedShares', 'recentActivities'];

/** Draws operations on everything that ever existed, the deleted included. */
export class RandomRequests {
  readonly #random: SeededRandom;
  readonly #folders: string[] = UIDS.flatMap((uid) =>
    ['1', '2', '3', '9'].map((local) => `/folder/:sc:${uid}:${local}`),
  );
  readonly #files: string[] = [];
  readonly #versions: string[] = [];
  readonly #links: string[] = [];
  readonly #workspaces: string[] = [];
  /** Also those that were deleted. */
  readonly #syncFolders: string[] = [];
  readonly #deleted: string[] = [];

  constructor(random: SeededRandom) {
    this.#random = random;
  }

  next(): Operation {
    const random = this.#random;
    const user = random.below(5) === 0 ? 1 : 0;
    const make = (method: string, path: string, request: RawRequest = {}): Operation => ({
      user,
      method,
      path,
      request,
    });
    const folder = (): string => this.#recent(this.#folders);
    const file = (): string => this.#recent(this.#files);
    const version = (): string => this.#recent(this.#versions);
    const name = (): string => `<displayName>${random.pick(NAMES)}</displayName>`;
    const parent = (): string => `<parent>ORIGIN${folder()}</parent>`;
    const page = (): string =>
      random.below(2) === 0
        ? ''
        : `?start=${random.below(6)}&max=${random.below(12)}${random.pick(['', '&type=file', '&type=folder'])}`;
    const draws: readonly (readonly [weight: number, draw: () => Operation])[] = [
      [6, () => make('POST', folder(), { body: `<folder>${name()}</folder>` })],
      [
        10,
        () => make('POST', folder(), { body: `<file>${name()}<mediaType>${random.pick(TYPES)}</mediaType></file>` }),
      ],
      [3, () => make('POST', folder(), { body: `<fileCopy source="ORIGIN${file()}">${name()}</fileCopy>` })],
      [1, () => make('POST', `/user/${UIDS[user]}/folders`, { body: `<folder>${name()}</folder>` })],
      [2, () => make('PUT', this.#recent(this.#syncFolders), { body: `<folder>${name()}${parent()}</folder>` })],
      [4, () => make('PUT', folder(), { body: `<folder>${name()}</folder>` })],
      [4, () => make('PUT', folder(), { body: `<folder>${name()}${parent()}</folder>` })],
      [4, () => make('PUT', file(), { body: `<file>${name()}${parent()}</file>` })],
      [2, () => make('PUT', file(), { body: `<file><mediaType>${random.pick(TYPES)}</mediaType></file>` })],
      [3, () => make('PUT', file(), { body: `<file><publicLink enabled="${random.below(3) > 0}"/></file>` })],
      [2, () => make('DELETE', folder())],
      [3, () => make('DELETE', file())],
      [16, () => make('PUT', `${file()}/data`, { body: this.#data() })],
      [1, () => make('PUT', `${file()}/data`, { body: 'part', headers: { Range: 'bytes=3-' } })],
      [5, () => make('POST', `${file()}/version`)],
      [10, () => this.#upload(user, version())],
      [4, () => make('GET', `${folder()}`)],
      [8, () => make('GET', `${folder()}/contents${page()}`)],
      [5, () => make('GET', file())],
      [5, () => make('GET', `${file()}/data`)],
      [3, () => make('GET', `${file()}/data`, { headers: { Range: this.#range() } })],
      [5, () => make('GET', `${file()}/version${page()}`)],
      [3, () => make('GET', version())],
      [2, () => make('GET', `${version()}/data`)],
      [2, () => make('GET', `/user/${random.pick(UIDS)}`)],
      [3, () => make('GET', `/user/${random.pick(UIDS)}/${random.pick(COLLECTIONS)}/contents${page()}`)],
      [1, () => make('GET', `/user/${random.pick(UIDS)}/publicLinks/contents`)],
      [1, () => make('GET', folder().replace('folder', 'album'))],
      [1, () => make('GET', `${folder().replace('folder', 'album')}/contents${page()}`)],
      [1, () => make('GET', `/receivedShare/${random.pick(UIDS)}/${folder().split('/').at(-1)}`)],
      [1, () => make('GET', `/contact/${random.pick(UIDS)}/${random.pick(UIDS)}`)],
      [2, () => make('GET', `/pf/${this.#recent(this.#links)}?directDownload=true`)],
      [1, () => make('GET', `/workspace/${this.#recent(this.#workspaces)}/contents`)],
      [
        1,
        () => make('PUT', `/workspace/${this.#recent(this.#workspaces)}`, { body: `<workspace>${name()}</workspace>` }),
      ],
      [2, () => this.#share(folder())],
      [1, () => this.#operate()],
    ];
    let left = random.below(draws.reduce((sum, [weight]) => sum + weight, 0));
    for (const [weight, draw] of draws) {
      left -= weight;
      if (left < 0) return draw();
    }
    throw new Error('no operation drawn');
  }

  /** Remembers what a response names, and what was deleted. */
  learn(operation: Operation, response: string): void {
    if ('path' in operation && operation.method === 'DELETE' && response.startsWith('204'))
      this.#forget(operation.path);
    if ('path' in operation && /^\/user\/\d+\/folders/.test(operation.path))
      for (const [, path = ''] of response.matchAll(/ORIGIN(\/folder\/[^/<\s]+)/g)) this.#know(this.#syncFolders, path);
    for (const [, path = ''] of response.matchAll(/ORIGIN(\/folder\/[^/<\s]+)/g)) this.#know(this.#folders, path);
    for (const [, path = ''] of response.matchAll(/ORIGIN(\/file\/[^/<\s]+)/g)) this.#know(this.#files, path);
    for (const [, path = ''] of response.matchAll(/ORIGIN(\/file\/[^/<\s]+\/version\/[^/<\s]+)/g))
      this.#know(this.#versions, path);
    for (const [, token = ''] of response.matchAll(/ORIGIN\/pf\/([^/<\s]+)/g)) this.#know(this.#links, token);
    for (const [, id = ''] of response.matchAll(/ORIGIN\/workspace\/([^/<\s]+)/g)) this.#know(this.#workspaces, id);
  }

  #know(list: string[], path: string): void {
    if (!list.includes(path) && !this.#deleted.includes(path)) list.push(path);
  }

  /** A few later operations still name it. */
  #forget(path: string): void {
    this.#deleted.push(path);
    for (const list of [this.#folders, this.#files, this.#versions])
      for (let at = list.length - 1; at >= 0; at -= 1) if ((list[at] as string).startsWith(path)) list.splice(at, 1);
  }

  /** Mostly one of the last ones, so that operations meet. */
  #recent(list: readonly string[]): string {
    const pool = this.#random.below(20) === 0 ? this.#deleted : list;
    if (pool.length === 0) return '/file/:sc:1001:none';
    const from = this.#random.below(3) === 0 ? 0 : Math.max(0, pool.length - 12);
    return pool[from + this.#random.below(pool.length - from)] as string;
  }

  #data(): Buffer {
    const sizes = [0, 1, 100, 3000, 16_384, 16_385, 40_000, 65_536, 65_537, 150_000];
    return Buffer.alloc(this.#random.pick(sizes), this.#random.below(256) + 1);
  }

  #range(): string {
    return this.#random.pick([
      'bytes=0-',
      'bytes=5-9',
      'bytes=-7',
      'bytes=16380-16400',
      'bytes=99999999-',
      'bytes=9-5',
      'x',
    ]);
  }

  #upload(user: number, version: string): Operation {
    const start = this.#random.pick([null, 0, 0, 0, 1, 3000, 65_536]);
    const headers: Record<string, string> = start === null ? {} : { Range: `bytes=${start}-` };
    return { user, method: 'PUT', path: `${version}/data`, request: { body: this.#data(), headers } };
  }

  #share(folder: string): Operation {
    const [owner, receiver] = this.#random.below(4) === 0 ? ([1, 0] as const) : ([0, 1] as const);
    const local = folder.split(':').at(-1) as string;
    const [from, to, writeAllowed] = [EMAILS[owner] as string, EMAILS[receiver] as string, this.#random.below(2) === 0];
    if (this.#random.below(3) === 0)
      return { what: `unshare ${local} ${from}`, action: (to_, own) => to_.unshare(from, own(local), to) };
    return { what: `share ${local} ${from}`, action: (to_, own) => to_.share(from, own(local), to, { writeAllowed }) };
  }

  #operate(): Operation {
    const email = this.#random.pick(EMAILS);
    switch (this.#random.below(3)) {
      case 0: {
        const quota = this.#random.pick([100_000, 3_000_000, 1_000_000_000]);
        return { what: `quota ${email} ${quota}`, action: (to) => to.setQuota(email, quota) };
      }
      case 1: {
        const syncFolders = [0, 1].map(
          () => `${this.#random.pick(['Documents', 'documents', 'Work'])} ${this.#random.below(9)}`,
        );
        return {
          what: `workspace ${email} ${syncFolders}`,
          action: async (to) => void (await to.addWorkspace(email, 'Computer', { syncFolders })),
        };
      }
      default:
        return {
          what: 'users',
          action: async (to) => (await to.users()).map(({ keyPairs, ...user }) => ({ ...user, keys: keyPairs.length })),
        };
    }
  }
}

/** For messages. */
export function described(operation: Operation): string {
  if ('what' in operation) return operation.what;
  const { user, method, path, request } = operation;
  const { body, headers } = request;
  const shown = body === undefined ? '' : typeof body === 'string' ? body : `${body.byteLength} bytes`;
  return `${EMAILS[user]} ${method} ${path} ${JSON.stringify(headers ?? {})} ${shown}`;
}

export function perform(operation: Operation, side: ServiceSide): Promise<string> {
  return 'what' in operation
    ? side.administer(operation.action)
    : side.send(operation.user, operation.method, operation.path, operation.request);
}
