import type { RemoteEntry } from '../base/resources.ts';
import type { Inode, ResourceUrl } from '../base/vocabulary.ts';
import type { Intents } from '../store/intents.ts';
import { soundNode } from '../store/node-table.ts';
import type { StoreReader } from '../store/tables.ts';

/**
 * Fences listings against pushes. A listing that was *requested* before our push was acknowledged shows the earlier
 * state of the service. Applying it would restore what we deleted and undo our renames.
 *
 * Every listing gets a sequence number at its request. A push is in progress while its owner has an open intent.
 */
export class ListingFence {
  readonly #store: StoreReader;
  readonly #intents: Intents;
  #sequence = 0;
  /** Unfinished listings: ended pushes older than them must be remembered. */
  readonly #listings = new Set<number>();
  /** The newest sequence number issued when the push ended, by node and by resource; oldest first. */
  readonly #endedNodes = new Map<Inode, number>();
  readonly #endedResources = new Map<ResourceUrl, number>();

  constructor(deps: { readonly store: StoreReader; readonly intents: Intents }) {
    this.#store = deps.store;
    this.#intents = deps.intents;
    this.#intents.onChange((before, after) => {
      if (before !== undefined && after === undefined) this.#note(before.owner, before.resource);
    });
  }

  /** Whether a push of `ino` is in progress, or its outcome is unknown. */
  isBusy(ino: Inode): boolean {
    return this.#intents.ownedBy(ino) !== undefined;
  }

  /** The number for a new listing, before its request. Return it with `finish`. */
  nextSequence(): number {
    this.#sequence += 1;
    this.#listings.add(this.#sequence);
    return this.#sequence;
  }

  /** The listing was merged, or failed. */
  finish(sequence: number): void {
    this.#listings.delete(sequence);
    // Listings in progress and later ones include every push that ended before the oldest of them was requested.
    const [oldest = Number.POSITIVE_INFINITY] = this.#listings;
    forgetBefore(this.#endedNodes, oldest);
    forgetBefore(this.#endedResources, oldest);
  }

  /** Number of nodes and resources whose ended push is remembered. */
  get remembered(): number {
    return this.#endedNodes.size + this.#endedResources.size;
  }

  /**
   * Whether a listing with this number is valid for the node. It is not if a push that was unfinished at the listing's
   * request changed the node or its present resource, which another node may have had then.
   */
  mayJudge(ino: Inode, requestedSequence: number): boolean {
    if (this.isBusy(ino) || requestedSequence <= (this.#endedNodes.get(ino) ?? 0)) return false;
    if (this.#endedResources.size === 0) return true;
    const resource = this.#store.get('node', ino)?.remote?.resource;
    return resource === undefined || requestedSequence > (this.#endedResources.get(resource) ?? 0);
  }

  /**
   * Returns a predicate for entries, in a listing of `folder` with this number, whose resource has no node: whether the
   * entry was created elsewhere. It is not if we have just trashed it, if an unacknowledged creation of ours may have
   * made it, or if an unacknowledged move of ours may have changed its URL.
   */
  strangers(folder: ResourceUrl | null, requestedSequence: number): (entry: RemoteEntry) => boolean {
    const names = new Set<string | null>();
    const resources = new Set<ResourceUrl | null>();
    for (const { resource, parentResource, name } of this.#intents.open()) {
      resources.add(resource);
      if (parentResource !== null && parentResource === folder) names.add(name);
    }
    return ({ url, name }) =>
      !resources.has(url) && !names.has(name) && requestedSequence > (this.#endedResources.get(url) ?? 0);
  }

  #note(ino: Inode, resource: ResourceUrl | null): void {
    if (this.#listings.size === 0) return;
    remember(this.#endedNodes, ino, this.#sequence);
    if (resource !== null) remember(this.#endedResources, resource, this.#sequence);
    const now = soundNode(this.#store, ino)?.remote?.resource;
    if (now !== undefined) remember(this.#endedResources, now, this.#sequence);
  }
}

/** Inserts at the end, even if the key exists. */
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
