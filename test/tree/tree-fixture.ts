import type { Clock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { ListingPage, RemoteEntry, RemoteFile, RemoteFolder, RemoteResource } from '../../src/base/resources.ts';
import {
  type ContentId,
  type Inode,
  type IntentId,
  type NodeKind,
  type ResourceUrl,
  ROOT_INODE,
  type VersionUrl,
} from '../../src/base/vocabulary.ts';
import type { Contents } from '../../src/bytes/contents.ts';
import { Intents } from '../../src/store/intents.ts';
import { isDirty, writeNode } from '../../src/store/node-table.ts';
import type { ContentRecord, NodeRecord, StoreReader, StoreWriter, Transaction } from '../../src/store/tables.ts';
import { ListingFence } from '../../src/tree/listing-fence.ts';
import { Names } from '../../src/tree/names.ts';
import { NodeChanges } from '../../src/tree/node-changes.ts';
import type { RemoteListing } from '../../src/tree/remote-listing.ts';
import { Tree, type TreeInvalidation } from '../../src/tree/tree.ts';
import { MemoryStore } from './memory-store.ts';

export const ROOT_URL = 'https://service/folder/root' as ResourceUrl;
export const START_MS = 1_700_000_000_000;

/** Time that moves only when told to. */
export class ManualClock implements Clock {
  /** What somebody has set the wall clock to, beside the time that passed. */
  skewMs = 0;
  #ms = 0;
  #timers: { readonly atMs: number; readonly callback: () => void }[] = [];

  nowMs(): number {
    return START_MS + this.#ms + this.skewMs;
  }
  elapsedMs(): number {
    return this.#ms;
  }
  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const cancel = this.after(ms, resolve);
      signal?.addEventListener('abort', () => {
        cancel();
        reject(signal.reason);
      });
    });
  }
  after(ms: number, callback: () => void): () => void {
    const timer = { atMs: this.#ms + ms, callback };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }
  random(): number {
    return 0.5;
  }
  advance(ms: number): void {
    const end = this.#ms + ms;
    for (;;) {
      const next = this.#timers.filter(({ atMs }) => atMs <= end).sort((a, b) => a.atMs - b.atMs)[0];
      if (next === undefined) break;
      this.#timers = this.#timers.filter((timer) => timer !== next);
      this.#ms = Math.max(this.#ms, next.atMs);
      next.callback();
    }
    this.#ms = end;
  }
}

/** Contents without bytes: what the tree needs is that they have ids, sizes and references. */
class ContentsWithoutBytes {
  readonly #store: StoreWriter;

  constructor(store: StoreWriter) {
    this.#store = store;
  }
  record(id: ContentId): ContentRecord | undefined {
    return this.#store.get('content', id);
  }
  createDraft(tx: Transaction): ContentId {
    return this.#make(tx, { kind: 'draft', sealed: false });
  }
  inlineContent(tx: Transaction, bytes: Uint8Array): ContentId {
    return this.#make(tx, { kind: 'draft', sealed: true, sizeBytes: bytes.byteLength });
  }
  versionContent(tx: Transaction, version: VersionUrl, resource: ResourceUrl, sizeBytes: number): ContentId {
    const known = tx.get('version', version);
    if (known !== undefined) return known;
    const id = this.#make(tx, { kind: 'version', sealed: true, version, resource, sizeBytes });
    tx.put('version', version, id);
    return id;
  }
  /** No byte is here. */
  pieces(content: ContentId, extent: { readonly start: number; readonly end: number }) {
    return [{ kind: 'missing', length: extent.end - extent.start, content, extent }];
  }
  sizeOf(id: ContentId): number {
    return this.#store.get('content', id)?.sizeBytes ?? 0;
  }
  #make(tx: Transaction, fields: Partial<ContentRecord>): ContentId {
    const id = tx.nextId('content') as ContentId;
    tx.put('content', id, {
      kind: 'draft',
      sealed: false,
      sizeBytes: 0,
      version: null,
      resource: null,
      where: 'none',
      base: null,
      baseBytes: 0,
      extents: [],
      refs: 0,
      ...fields,
    });
    return id;
  }
}

export interface Fixture {
  readonly store: StoreWriter;
  readonly contents: Contents;
  readonly clock: ManualClock;
  readonly intents: Intents;
  readonly fence: ListingFence;
  readonly names: Names;
  readonly tree: Tree;
  readonly forgotten: TreeInvalidation[];
  readonly changed: (readonly [Inode, string])[];
}

/** A tree of its own, in memory unless given a store. */
export function makeTree(
  given: { readonly store?: StoreWriter; readonly contents?: Contents; readonly clock?: ManualClock } = {},
): Fixture {
  const store = given.store ?? new MemoryStore();
  const clock = given.clock ?? new ManualClock();
  const contents = given.contents ?? (new ContentsWithoutBytes(store) as unknown as Contents);
  const options = { saveWindowMs: 60_000, settleMs: 2000 };
  const names = new Names();
  const intents = new Intents(store);
  const fence = new ListingFence({ store, intents });
  Tree.createRoot(store, clock, { resource: ROOT_URL, uid: 1000, gid: 1000 });
  const changes = new NodeChanges();
  const tree = new Tree({ store, contents, names, intents, fence, clock, changes, log: silentLogger, options });
  const forgotten: TreeInvalidation[] = [];
  const changed: (readonly [Inode, string])[] = [];
  changes.on('remote', (invalidations) => forgotten.push(...invalidations));
  changes.on('local', (ino, what) => changed.push([ino, what]));
  return { store, contents, clock, intents, fence, names, tree, forgotten, changed };
}

/** A push of the node begins: listings are not valid for it until `endPush`. */
export function beginPush({ store, intents }: Pick<Fixture, 'store' | 'intents'>, ino: Inode): IntentId {
  const resource = store.get('node', ino)?.remote?.resource ?? null;
  const started = {
    owner: ino,
    action: 'relocate',
    parentResource: null,
    name: null,
    resource,
    content: null,
  } as const;
  return store.transact((tx) => intents.begin(tx, started, 0));
}

export function endPush({ intents }: Pick<Fixture, 'intents'>, ino: Inode): void {
  const intent = intents.ownedBy(ino);
  if (intent !== undefined) intents.forget(intent.id);
}

export function file(
  id: string,
  name: string,
  sizeBytes: number | null = 3,
  lastModifiedMs = START_MS - 60_000,
): RemoteFile {
  const url = `https://service/file/${id}` as ResourceUrl;
  return {
    kind: 'file',
    url,
    name,
    sizeBytes,
    lastModifiedMs,
    mediaType: 'text/plain',
    presentOnServer: sizeBytes !== null,
  };
}

export function folder(id: string, name: string): RemoteFolder {
  return { kind: 'folder', url: `https://service/folder/${id}` as ResourceUrl, name };
}

/** Merges a listing requested just now, asks nothing. */
export function merge(
  fixture: Fixture,
  into: Inode,
  entries: readonly RemoteEntry[],
  sequence = fixture.fence.nextSequence(),
) {
  return fixture.tree.merge(into, entries, sequence, fixture.clock.nowMs(), fixture.clock.nowMs());
}

/** What the sync does once everything dirty was pushed: the service has what users see. `resources` by inode, for new ones. */
export function acknowledge(fixture: Fixture, ino: Inode, resource?: ResourceUrl): NodeRecord | undefined {
  const { store, clock, names } = fixture;
  return store.transact((tx) => {
    const before = tx.get('node', ino);
    if (before === undefined) return undefined;
    const { local, remote } = before;
    const after: NodeRecord =
      local === null
        ? { ...before, remote: null }
        : {
            ...before,
            remote: {
              mediaType: null,
              createdHereMs: clock.nowMs(),
              ...remote,
              modified: remote === null || local.content !== remote.content ? null : remote.modified,
              resource: remote?.resource ?? resource ?? unusedUrl(tx, ino),
              parent: local.parent,
              name: names.toRemoteName(local.name),
              shownAs: local.name,
              sizeBytes: before.kind === 'folder' ? null : local.sizeBytes,
              content: local.content,
            },
          };
    writeNode(tx, before, after, clock.nowMs());
    return after;
  });
}

/** A node may be made anew after another took its resource over. */
function unusedUrl(tx: Transaction, ino: Inode): ResourceUrl {
  let url = `https://service/new/${ino}` as ResourceUrl;
  while (tx.get('resource', url) !== undefined) url = `${url}+` as ResourceUrl;
  return url;
}

/** Names of a folder, with folders marked by `/`. */
export function namesIn(tree: Tree, ino: Inode): string[] {
  return [...tree.children(ino)].map(({ name, node }) => (node.kind === 'folder' ? `${name}/` : name));
}

export function localFile(tree: Tree, parent: Inode, name: string, kind: NodeKind = 'file'): NodeRecord {
  return tree.create(parent, name, { kind, mode: 0o644, uid: 1000, gid: 1000 });
}

/** Every invariant of nodes and their indexes. @throws Error that names the broken one */
export function checkStore(store: StoreReader, referredTo: 'by nodes' | 'by others too' = 'by nodes'): void {
  const check = (holds: boolean, invariant: string) => {
    if (!holds) throw new Error(`broken: ${invariant}`);
  };
  const references = new Map<ContentId, number>();
  const refer = (id: ContentId | null | undefined) => {
    if (id != null) references.set(id, (references.get(id) ?? 0) + 1);
  };
  for (const [ino, node] of store.all('node')) {
    check(node.ino === ino, `node ${ino} is stored under its number`);
    check(node.local !== null || node.remote !== null, `node ${ino} has a facet`);
    refer(node.local?.content);
    refer(node.remote?.content);
    check((store.get('dirty', ino) !== undefined) === isDirty(node), `node ${ino} is in the index when it is dirty`);
    if (node.remote !== null) {
      check(store.get('resource', node.remote.resource) === ino, `${node.remote.resource} leads to node ${ino}`);
    }
    if (node.local === null || ino === ROOT_INODE) continue;
    const { parent, name } = node.local;
    check(store.get('name', [parent, name]) === ino, `the name ${name} in ${parent} leads to node ${ino}`);
    const folder = store.get('node', parent);
    check(folder?.kind === 'folder' && folder.local !== null, `node ${ino} lies in a folder that users see`);
    let at: NodeRecord | undefined = node;
    for (let depth = 0; at?.local != null && at.ino !== ROOT_INODE; depth++) {
      check(depth < 1000, `node ${ino} does not lie in itself`);
      at = store.get('node', at.local.parent);
    }
  }
  for (const [[parent, name], ino] of store.all('name')) {
    const local = store.get('node', ino)?.local;
    check(local?.parent === parent && local.name === name, `node ${ino} is called ${name} in ${parent}`);
  }
  for (const [resource, ino] of store.all('resource')) {
    check(store.get('node', ino)?.remote?.resource === resource, `node ${ino} has ${resource}`);
  }
  for (const [id, { refs }] of store.all('content')) {
    const byNodes = references.get(id) ?? 0;
    check(referredTo === 'by nodes' ? refs === byNodes : refs >= byNodes, `content ${id} counts its references`);
  }
}

/** A service that is only looked at: folders with entries, changed by the test at will. */
export class LookedAtService implements RemoteListing {
  readonly folders = new Map<ResourceUrl, RemoteEntry[]>([[ROOT_URL, []]]);
  /** All requests, in order. */
  readonly requests: string[] = [];
  pageEntries = 500;
  failure: Error | null = null;
  /** Called before each answer. */
  before: (request: string) => void | Promise<void> = () => {};
  serverTimeMs: number | null = null;

  put(parent: ResourceUrl, ...entries: RemoteEntry[]): void {
    this.folders.get(parent)?.push(...entries);
    for (const entry of entries)
      if (entry.kind === 'folder') this.folders.set(entry.url, this.folders.get(entry.url) ?? []);
  }

  drop(url: ResourceUrl): void {
    for (const [parent, entries] of this.folders) {
      this.folders.set(
        parent,
        entries.filter((entry) => entry.url !== url),
      );
    }
  }

  async listPage(url: ResourceUrl, start: number, signal: AbortSignal): Promise<ListingPage> {
    await this.#ask(`list ${url} ${start}`, signal);
    const entries = this.folders.get(url);
    if (entries === undefined) {
      const { ApiError } = await import('../../src/base/errors.ts');
      throw new ApiError(404, `GET ${url}`, 'not found');
    }
    const end = start + this.pageEntries;
    return { entries: entries.slice(start, end), hasMore: end < entries.length, serverTimeMs: this.serverTimeMs };
  }

  async resource(url: ResourceUrl, _kind: NodeKind, signal: AbortSignal): Promise<RemoteResource | null> {
    await this.#ask(`resource ${url}`, signal);
    for (const [parent, entries] of this.folders) {
      const entry = entries.find((candidate) => candidate.url === url);
      if (entry !== undefined) return { ...entry, parent };
    }
    return null;
  }

  async #ask(request: string, signal: AbortSignal): Promise<void> {
    this.requests.push(request);
    await this.before(request);
    signal.throwIfAborted();
    if (this.failure !== null) throw this.failure;
  }
}
