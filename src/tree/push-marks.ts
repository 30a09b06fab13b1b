import type { RemoteEntry } from '../base/resources.ts';
import type { Inode, ResourceUrl } from '../base/vocabulary.ts';
import { soundNode } from '../store/node-table.ts';
import type { StoreReader } from '../store/tables.ts';

/**
 * Which listings may say something about which nodes. A listing that was *requested* before a push of ours was acknowledged
 * shows the service as it was before: believed, it would bring back what we deleted and undo what we renamed.
 *
 * Every listing takes a sequence number when it is requested; every push is marked from `begin` to `end`.
 */
export class PushMarks {
  readonly #store: StoreReader;
  #sequence = 0;
  /** Pushes under way, and the resource each had when it began (a trashed one is unknown to the store when it ends). */
  readonly #underWay = new Map<Inode, ResourceUrl | null>();
  /** Nodes that took over from another whose push is under way: they are not judged before that push ended. */
  readonly #heirs = new Map<Inode, Inode>();
  /** Requested and not finished: what older pushes must be remembered for. */
  readonly #listings = new Set<number>();
  /** By node and by resource: the newest sequence number that was given out when the push ended. The oldest first. */
  readonly #endedNodes = new Map<Inode, number>();
  readonly #endedResources = new Map<ResourceUrl, number>();

  constructor(deps: { readonly store: StoreReader }) {
    this.#store = deps.store;
  }

  /** A push that changes the resource of `ino` begins: before its first request is sent. */
  begin(ino: Inode): void {
    this.#underWay.set(ino, soundNode(this.#store, ino)?.remote?.resource ?? null);
  }

  /** The push is over and what it did is recorded in the store: after the record was written. */
  end(ino: Inode): void {
    const resource = this.#underWay.get(ino) ?? null;
    this.#underWay.delete(ino);
    this.#note(ino, resource);
    for (const [heir, from] of this.#heirs) {
      if (from !== ino) continue;
      this.#heirs.delete(heir);
      this.#note(heir, null);
    }
  }

  /** `heir` took over the resource of `from`, whose push may be under way. */
  inherit(from: Inode, heir: Inode): void {
    if (this.#underWay.has(from)) this.#heirs.set(heir, from);
  }

  /** Whether a push of `ino` is under way, or was begun once and its outcome is not known. */
  isBusy(ino: Inode): boolean {
    return this.#underWay.has(ino) || this.#heirs.has(ino) || this.#store.get('upload', ino) !== undefined;
  }

  /** The number of a listing that is about to be requested. To be given back with `finish`. */
  nextSequence(): number {
    this.#sequence += 1;
    this.#listings.add(this.#sequence);
    return this.#sequence;
  }

  /** The listing was merged, or failed. */
  finish(sequence: number): void {
    this.#listings.delete(sequence);
    // What ended before the oldest that is on its way was requested is told by all of them, and by whatever is requested later.
    const [oldest = Number.POSITIVE_INFINITY] = this.#listings;
    forgetBefore(this.#endedNodes, oldest);
    forgetBefore(this.#endedResources, oldest);
  }

  /** Of how many nodes and resources it is remembered when their push ended. */
  get remembered(): number {
    return this.#endedNodes.size + this.#endedResources.size;
  }

  /**
   * Whether a listing with this number says anything about the node: neither it nor the resource that it has now, which another
   * node may have had then, was changed by a push that had not ended when the listing was requested.
   */
  mayJudge(ino: Inode, requestedSequence: number): boolean {
    if (this.isBusy(ino) || requestedSequence <= (this.#endedNodes.get(ino) ?? 0)) return false;
    if (this.#endedResources.size === 0) return true;
    const resource = this.#store.get('node', ino)?.remote?.resource;
    return resource === undefined || requestedSequence > (this.#endedResources.get(resource) ?? 0);
  }

  /**
   * Tells of an entry in a listing of `folder` with this number, whose resource no node of ours has, whether it is somebody
   * else's: not one that we have just trashed, and not one that a creation of ours without an answer may have made, or that a move of ours
   * may have given a new address.
   */
  strangers(folder: ResourceUrl | null, requestedSequence: number): (entry: RemoteEntry) => boolean {
    const ours = new Set<ResourceUrl | null>(this.#underWay.values());
    const names = new Set<string | null>();
    // Short: what is being sent, and what a crash left behind.
    for (const [, upload] of this.#store.all('upload')) {
      if (upload.resource !== null) ours.add(upload.resource);
      if (upload.parentResource !== null && upload.parentResource === folder) names.add(upload.name);
    }
    return (entry) =>
      !ours.has(entry.url) && !names.has(entry.name) && requestedSequence > (this.#endedResources.get(entry.url) ?? 0);
  }

  #note(ino: Inode, resource: ResourceUrl | null): void {
    if (this.#listings.size === 0) return;
    remember(this.#endedNodes, ino, this.#sequence);
    if (resource !== null) remember(this.#endedResources, resource, this.#sequence);
    const now = soundNode(this.#store, ino)?.remote?.resource;
    if (now !== undefined) remember(this.#endedResources, now, this.#sequence);
  }
}

/** Behind all others, also one that was there. */
function remember<K>(ended: Map<K, number>, key: K, sequence: number): void {
  ended.delete(key);
  ended.set(key, sequence);
}

function forgetBefore<K>(ended: Map<K, number>, sequence: number): void {
  for (const [key, at] of ended) {
    if (at >= sequence) return;
    ended.delete(key);
  }
}
