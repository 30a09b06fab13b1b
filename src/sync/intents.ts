import type { Inode, ResourceUrl } from '../base/vocabulary.ts';
import { countReference, soundNode } from '../store/node-table.ts';
import type { StoreReader, StoreWriter, Transaction, UploadRecord } from '../store/tables.ts';
import type { DirtyIndex } from './dirty-index.ts';

/** Tells the tree which nodes a listing must not judge: their push is under way, or ended after the listing was asked for. */
export interface PushMarking {
  begin(ino: Inode): void;
  end(ino: Inode): void;
}

/**
 * What was begun on the service, in table `upload`: written before a request is sent that may take effect without our
 * hearing of it, removed in the record that holds its outcome. While it is there the node's remote facet may be wrong:
 * the plan does nothing about the node but find out, and listings do not judge it.
 */
export class Intents {
  readonly #store: StoreWriter;
  readonly #index: DirtyIndex;
  readonly #marks: PushMarking;
  /** What this process, or one before it, has begun and not ended: as it was last written. A few dozen, and what is parked half sent. */
  readonly #begun = new Map<Inode, UploadRecord>();

  /** Of these, who began what is for which resource; null for what is to be made. Thousands, where all are parked half sent. */
  readonly #beginners = new Map<ResourceUrl | null, Set<Inode>>();

  constructor(deps: { store: StoreWriter; index: DirtyIndex; marks: PushMarking }) {
    this.#store = deps.store;
    this.#index = deps.index;
    this.#marks = deps.marks;
  }

  /** The intent of a push that `ino` began. */
  of(ino: Inode): UploadRecord | undefined {
    const found = this.#find(this.#store, ino);
    return found?.record;
  }

  /** Whom the push that `ino` began is for now: another node, where one was renamed over it meanwhile (`tree/succession`). */
  beneficiary(reader: StoreReader, ino: Inode): Inode {
    return this.#find(reader, ino)?.ino ?? ino;
  }

  /** Whose push under way is now for `ino`; null for none but its own. */
  predecessor(ino: Inode): Inode | null {
    const resource = soundNode(this.#store, ino)?.remote?.resource;
    if (resource !== undefined) for (const begun of this.#beginnersOf(resource)) if (begun !== ino) return begun;
    for (const begun of this.#beginnersOf(null))
      if (begun !== ino && this.#find(this.#store, begun)?.ino === ino) return begun;
    return null;
  }

  /** All that a stop or a crash left open; the index and the marks know of them from here on. */
  load(): readonly Inode[] {
    const inos: Inode[] = [];
    for (const [ino, record] of this.#store.all('upload')) {
      inos.push(ino);
      this.#marks.begin(ino);
      this.#place(ino, record);
    }
    return inos;
  }

  /** Writes an intent down, or what has become of it. Its content is kept from collection until it ends. */
  put(tx: Transaction, ino: Inode, record: UploadRecord): void {
    const before = this.#find(tx, ino);
    const had = before?.record.content ?? null;
    if (record.content !== null && record.content !== had) countReference(tx, record.content, 1);
    if (had !== null && record.content !== had) countReference(tx, had, -1);
    tx.put('upload', before?.ino ?? ino, record);
    tx.afterCommit(() => {
      if (!this.#begun.has(ino)) this.#marks.begin(ino);
      this.#place(ino, record);
    });
  }

  /** A folder has another address: what was begun in it is asked for there. */
  readdress(tx: Transaction, was: ResourceUrl, is: ResourceUrl): void {
    if (was === is) return;
    for (const ino of [...this.#begun.keys()]) {
      const record = this.#find(tx, ino)?.record;
      if (record?.parentResource === was) this.put(tx, ino, { ...record, parentResource: is });
    }
  }

  /** It had no effect, or its outcome is in the same transaction. */
  end(tx: Transaction, ino: Inode): void {
    const found = this.#find(tx, ino);
    if (found !== undefined) {
      if (found.record.content !== null) countReference(tx, found.record.content, -1);
      tx.remove('upload', found.ino);
    }
    tx.afterCommit(() => {
      if (!this.#drop(ino)) return;
      this.#index.target(ino, null);
      this.#marks.end(ino);
    });
  }

  /**
   * Hands over what was taken over between two tries, of those that changed since; what is pushed stays `among` them.
   * @returns who has to be decided about again
   */
  *handOverIdle(among: Set<Inode>, isPushing: (ino: Inode) => boolean): Iterable<Inode> {
    for (const ino of among) {
      if (isPushing(ino)) continue;
      among.delete(ino);
      if (!this.#begun.has(ino)) continue;
      const heir = this.handOver(ino);
      if (heir !== ino || !this.#begun.has(ino)) yield heir;
    }
  }

  /**
   * The push that `ino` began is over, without an outcome. Where another node took over meanwhile the intent is that one's from
   * now on. @returns whose it is
   */
  handOver(ino: Inode): Inode {
    if (!this.#begun.has(ino)) return ino;
    const found = this.#find(this.#store, ino);
    if (found?.ino === ino) return ino;
    this.#drop(ino);
    this.#index.target(ino, null);
    if (found !== undefined) {
      this.#marks.begin(found.ino);
      this.#place(found.ino, found.record);
    }
    this.#marks.end(ino);
    return found?.ino ?? ino;
  }

  /** The request certainly had no effect. */
  forget(ino: Inode): void {
    this.#store.transact((tx) => this.end(tx, ino));
  }

  /** Where the record is now: with `ino`, or with whoever took over from it. */
  #find(reader: StoreReader, ino: Inode): { readonly ino: Inode; readonly record: UploadRecord } | undefined {
    const begun = this.#begun.get(ino);
    const own = reader.get('upload', ino);
    if (own !== undefined && (begun === undefined || isSame(own, begun))) return { ino, record: own };
    if (begun === undefined) return undefined;
    for (const [other, record] of reader.all('upload')) if (isSame(record, begun)) return { ino: other, record };
    return undefined;
  }

  #beginnersOf(resource: ResourceUrl | null): Iterable<Inode> {
    return this.#beginners.get(resource) ?? [];
  }

  /** @returns whether it was there */
  #drop(ino: Inode): boolean {
    const record = this.#begun.get(ino);
    if (record === undefined) return false;
    this.#begun.delete(ino);
    const beginners = this.#beginners.get(record.resource);
    beginners?.delete(ino);
    if (beginners?.size === 0) this.#beginners.delete(record.resource);
    return true;
  }

  #place(ino: Inode, record: UploadRecord): void {
    this.#drop(ino);
    this.#begun.set(ino, record);
    const beginners = this.#beginners.get(record.resource) ?? new Set<Inode>();
    this.#beginners.set(record.resource, beginners);
    beginners.add(ino);
    const { parentResource, name } = record;
    const parent = parentResource === null ? undefined : this.#store.get('resource', parentResource);
    this.#index.target(ino, parent === undefined || name === null ? null : { parent, remoteName: name });
  }
}

function isSame(one: UploadRecord, other: UploadRecord): boolean {
  return (
    one.action === other.action &&
    one.startedMs === other.startedMs &&
    one.parentResource === other.parentResource &&
    one.name === other.name &&
    one.resource === other.resource &&
    one.content === other.content &&
    one.version === other.version
  );
}
