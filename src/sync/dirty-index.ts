import type { ContentId, Inode } from '../base/vocabulary.ts';
import { layersOf } from '../store/content-layers.ts';
import { ifSound, isContentDirty, soundNode } from '../store/node-table.ts';
import type { NodeRecord, StoreReader } from '../store/tables.ts';

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
  readonly #contents = new Map<Inode, readonly ContentId[]>();
  readonly #byContent = new Map<ContentId, Set<Inode>>();
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

  /** A node whose bytes are to be pushed, or are being pushed, and lie in that content or in a draft over it. */
  needsContent(content: ContentId): Inode | null {
    for (const ino of this.#byContent.get(content) ?? []) return ino;
    return null;
  }

  /** A dirty node whose row is damaged: which bytes it needs is not known. null for none. */
  get unreadable(): Inode | null {
    const [ino = null] = this.#unreadable;
    return ino;
  }

  #refreshContents(ino: Inode, node: NodeRecord | undefined): void {
    const before = this.#contents.get(ino);
    // What was frozen for the service is not what the file holds any more when that was written anew.
    const frozen = this.#store.get('upload', ino)?.content ?? null;
    const dirty = node !== undefined && isContentDirty(node) ? (node.local?.content ?? null) : null;
    const tops = [frozen, dirty].filter((content) => content !== null);
    if (before === undefined && tops.length === 0) return;
    for (const content of before ?? []) {
      const inos = this.#byContent.get(content);
      inos?.delete(ino);
      if (inos?.size === 0) this.#byContent.delete(content);
    }
    this.#contents.delete(ino);
    if (tops.length === 0) return;
    const contents = tops.flatMap((top) => layersOf(top, (id) => ifSound(() => this.#store.get('content', id))));
    for (const content of contents) {
      const inos = this.#byContent.get(content) ?? new Set<Inode>();
      this.#byContent.set(content, inos);
      inos.add(ino);
    }
    this.#contents.set(ino, contents);
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
