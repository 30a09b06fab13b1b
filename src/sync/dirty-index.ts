import type { ContentId, Inode, ResourceUrl } from '../base/vocabulary.ts';
import { layersOf } from '../bytes/content-layers.ts';
import type { Intents } from '../store/intents.ts';
import { ifSound, isContentDirty, soundNode } from '../store/node-table.ts';
import type { ContentRecord, NodeRecord, StoreReader } from '../store/tables.ts';

/** Where the service has a resource, or where an open intent may have put it. */
export interface RemotePlace {
  readonly parent: Inode;
  readonly remoteName: string;
}

/**
 * The dirty nodes by their remote place, and the owners of open intents by the place that was requested. The plan looks up here which node
 * holds a name and which nodes a folder contains. Clean nodes need no such index: their remote place is the local one.
 *
 * In memory. Made from tables `dirty` and `intent` at the start; `refresh` after every change of a node.
 */
export class DirtyIndex {
  readonly #store: StoreReader;
  readonly #intents: Intents;
  readonly #entries = new Map<Inode, readonly RemotePlace[]>();
  /** Nearly always one node has a name: a set for each would double the memory of a removed folder. */
  readonly #byFolder = new Map<Inode, Map<string, Inode | Set<Inode>>>();
  /** Contents, and remote files of which some contents are versions. */
  readonly #needed = new Map<Inode, readonly (ContentId | ResourceUrl)[]>();
  readonly #neededBy = new Map<ContentId | ResourceUrl, Set<Inode>>();
  readonly #unreadable = new Set<Inode>();

  constructor(store: StoreReader, intents: Intents) {
    this.#store = store;
    this.#intents = intents;
    intents.onChange((before, after) => {
      if (before !== undefined) this.refresh(before.owner);
      if (after !== undefined && after.owner !== before?.owner) this.refresh(after.owner);
    });
  }

  get size(): number {
    return this.#entries.size;
  }

  has(ino: Inode): boolean {
    return this.#entries.has(ino);
  }

  inos(): Iterable<Inode> {
    return this.#entries.keys();
  }

  /** Reads the record of a node and its intent again. */
  refresh(ino: Inode): { readonly changed: boolean } {
    const dirty = this.#store.get('dirty', ino) !== undefined;
    // A node with a damaged row has no place, but is dirty: the scheduler parks it.
    const node = soundNode(this.#store, ino);
    if (dirty && node === undefined) this.#unreadable.add(ino);
    else this.#unreadable.delete(ino);
    const remote = node?.remote ?? null;
    this.#refreshContents(ino, dirty ? node : undefined);
    const target = this.#requestedPlace(ino);
    const places: RemotePlace[] = [];
    if (dirty && remote !== null && remote.parent !== ino)
      places.push({ parent: remote.parent, remoteName: remote.name });
    if (target !== undefined && !places.some((place) => isSame(place, target))) places.push(target);
    const before = this.#entries.get(ino);
    const isIn = dirty || target !== undefined;
    if (isIn === (before !== undefined) && isSameRow(places, before ?? [])) return { changed: false };
    for (const place of before ?? []) this.#unlink(ino, place);
    for (const place of places) this.#link(ino, place);
    if (isIn) this.#entries.set(ino, places);
    else this.#entries.delete(ino);
    return { changed: true };
  }

  *occupants(parent: Inode, remoteName: string): Iterable<Inode> {
    const inos = this.#byFolder.get(parent)?.get(remoteName);
    if (inos !== undefined) yield* all(inos);
  }

  *remoteChildren(folder: Inode): Iterable<Inode> {
    for (const inos of this.#byFolder.get(folder)?.values() ?? []) yield* all(inos);
  }

  /** A dirty node that needs this content, a version of this file, or a draft over either for its push; null for none. */
  whoNeeds(bytes: ContentId | ResourceUrl): Inode | null {
    for (const ino of this.#neededBy.get(bytes) ?? []) return ino;
    return null;
  }

  /** A dirty node whose row is damaged: the bytes that it needs are not known. null for none. */
  get unreadable(): Inode | null {
    const [ino = null] = this.#unreadable;
    return ino;
  }

  #requestedPlace(ino: Inode): RemotePlace | undefined {
    const { parentResource, name } = this.#intents.ownedBy(ino) ?? {};
    const parent = parentResource == null ? undefined : this.#store.get('resource', parentResource);
    return parent === undefined || name == null ? undefined : { parent, remoteName: name };
  }

  #refreshContents(ino: Inode, node: NodeRecord | undefined): void {
    const before = this.#needed.get(ino);
    // A file that was changed since its draft was frozen needs both.
    const frozen = this.#intents.ownedBy(ino)?.content ?? null;
    const dirty = node !== undefined && isContentDirty(node) ? (node.local?.content ?? null) : null;
    const tops = [frozen, dirty].filter((content) => content !== null);
    if (before === undefined && tops.length === 0) return;
    for (const bytes of before ?? []) {
      const inos = this.#neededBy.get(bytes);
      inos?.delete(ino);
      if (inos?.size === 0) this.#neededBy.delete(bytes);
    }
    this.#needed.delete(ino);
    if (tops.length === 0) return;
    const recordOf = (id: ContentId): ContentRecord | undefined => ifSound(() => this.#store.get('content', id));
    const contents = tops.flatMap((top) => layersOf(top, recordOf));
    const files = contents.map((content) => recordOf(content)?.resource ?? null).filter((file) => file !== null);
    const needed = [...contents, ...new Set(files)];
    for (const bytes of needed) {
      const inos = this.#neededBy.get(bytes) ?? new Set<Inode>();
      this.#neededBy.set(bytes, inos);
      inos.add(ino);
    }
    this.#needed.set(ino, needed);
  }

  #link(ino: Inode, { parent, remoteName }: RemotePlace): void {
    const names = this.#byFolder.get(parent) ?? new Map<string, Inode | Set<Inode>>();
    this.#byFolder.set(parent, names);
    const inos = names.get(remoteName);
    if (typeof inos === 'object') inos.add(ino);
    else names.set(remoteName, inos === undefined || inos === ino ? ino : new Set([inos, ino]));
  }

  #unlink(ino: Inode, { parent, remoteName }: RemotePlace): void {
    const names = this.#byFolder.get(parent);
    const inos = names?.get(remoteName);
    if (typeof inos === 'object') inos.delete(ino);
    if (inos === ino || (typeof inos === 'object' && inos.size === 0)) names?.delete(remoteName);
    if (names?.size === 0) this.#byFolder.delete(parent);
  }
}

function all(inos: Inode | Set<Inode>): Iterable<Inode> {
  return typeof inos === 'object' ? inos : [inos];
}

function isSameRow(one: readonly RemotePlace[], other: readonly RemotePlace[]): boolean {
  return one.length === other.length && one.every((place, at) => isSame(place, other[at]));
}

function isSame(one: RemotePlace, other: RemotePlace | undefined): boolean {
  return one.parent === other?.parent && one.remoteName === other.remoteName;
}
