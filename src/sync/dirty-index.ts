import type { ContentId, Inode, ResourceUrl } from '../base/vocabulary.ts';
import { layersOf } from '../bytes/content-layers.ts';
import { ifSound, isContentDirty, soundNode } from '../store/node-table.ts';
import type { ContentRecord, NodeRecord, StoreReader } from '../store/tables.ts';

/** Where a push puts a resource, or may have put it. */
export interface PushTarget {
  readonly parent: Inode;
  readonly remoteName: string;
}

/**
 * The dirty nodes, found by where the service has them: what the plan asks when it looks for who holds a name and what lies
 * in a folder. Clean nodes need no such index: the service has them where the local tree has them.
 *
 * Kept in memory, made from table `dirty` at the start, told of every change (`refresh`).
 */
export class DirtyIndex {
  readonly #store: StoreReader;
  readonly #entries = new Map<Inode, readonly PushTarget[]>();
  readonly #targets = new Map<Inode, PushTarget>();
  readonly #byFolder = new Map<Inode, Map<string, Set<Inode>>>();
  /** Contents, and the files of the service whose versions some of these are. */
  readonly #needed = new Map<Inode, readonly (ContentId | ResourceUrl)[]>();
  readonly #neededBy = new Map<ContentId | ResourceUrl, Set<Inode>>();
  readonly #unreadable = new Set<Inode>();

  constructor(store: StoreReader) {
    this.#store = store;
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

  /** Brings what is known of a node up to its record. */
  refresh(ino: Inode): { readonly changed: boolean } {
    const dirty = this.#store.get('dirty', ino) !== undefined;
    // One that is damaged has no place, but is dirty: the agenda parks it.
    const node = soundNode(this.#store, ino);
    if (dirty && node === undefined) this.#unreadable.add(ino);
    else this.#unreadable.delete(ino);
    const remote = node?.remote ?? null;
    this.#refreshContents(ino, dirty ? node : undefined);
    const target = this.#targets.get(ino);
    const places: PushTarget[] = [];
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

  /** A push that is under way, or whose outcome is not known, puts the node there. Null: no more. */
  target(ino: Inode, target: PushTarget | null): void {
    if (target === null) this.#targets.delete(ino);
    else this.#targets.set(ino, target);
    this.refresh(ino);
  }

  *occupants(parent: Inode, remoteName: string): Iterable<Inode> {
    yield* this.#byFolder.get(parent)?.get(remoteName) ?? [];
  }

  *remoteChildren(folder: Inode): Iterable<Inode> {
    for (const inos of this.#byFolder.get(folder)?.values() ?? []) yield* inos;
  }

  /** A node whose bytes are to be pushed, or are being pushed, and lie in that content or a version of that file, or in a draft over it. */
  whoNeeds(bytes: ContentId | ResourceUrl): Inode | null {
    for (const ino of this.#neededBy.get(bytes) ?? []) return ino;
    return null;
  }

  /** A dirty node whose row is damaged: which bytes it needs is not known. null for none. */
  get unreadable(): Inode | null {
    const [ino = null] = this.#unreadable;
    return ino;
  }

  #refreshContents(ino: Inode, node: NodeRecord | undefined): void {
    const before = this.#needed.get(ino);
    // What was frozen for the service is not what the file holds any more when that was written anew.
    const frozen = this.#store.get('upload', ino)?.content ?? null;
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

  #link(ino: Inode, { parent, remoteName }: PushTarget): void {
    const names = this.#byFolder.get(parent) ?? new Map<string, Set<Inode>>();
    this.#byFolder.set(parent, names);
    const inos = names.get(remoteName) ?? new Set<Inode>();
    names.set(remoteName, inos);
    inos.add(ino);
  }

  #unlink(ino: Inode, { parent, remoteName }: PushTarget): void {
    const names = this.#byFolder.get(parent);
    const inos = names?.get(remoteName);
    inos?.delete(ino);
    if (inos?.size === 0) names?.delete(remoteName);
    if (names?.size === 0) this.#byFolder.delete(parent);
  }
}

function isSameRow(one: readonly PushTarget[], other: readonly PushTarget[]): boolean {
  return one.length === other.length && one.every((place, at) => isSame(place, other[at]));
}

function isSame(one: PushTarget, other: PushTarget | undefined): boolean {
  return one.parent === other?.parent && one.remoteName === other.remoteName;
}
