import type { RemoteEntry } from '../base/resources.ts';
import type { ResourceUrl } from '../base/vocabulary.ts';
import type { NodeChange } from './listing-merge.ts';

/**
 * The entries of a first listing that were merged before its last page arrived. INVARIANT: the complete listing merges
 * each entry again, unless the result must be the same. So the folder was empty before: otherwise, a name may belong to
 * a node that the service no longer has.
 */
export class MergedAhead {
  /** Number of nodes written. */
  changes = 0;
  readonly #merged = new Map<ResourceUrl, RemoteEntry>();

  /** @param changes of a merge of `listed` */
  add(changes: readonly NodeChange[], listed: ReadonlyMap<ResourceUrl, RemoteEntry>): void {
    this.changes += changes.length;
    for (const { after } of changes) {
      const entry = after.remote === null ? undefined : listed.get(after.remote.resource);
      if (entry !== undefined) this.#merged.set(entry.url, entry);
    }
  }

  /**
   * The entries to merge again. After a name clash these are all: only a complete listing determines which entry keeps
   * the name.
   */
  restOf(listed: ReadonlyMap<ResourceUrl, RemoteEntry>): Iterable<RemoteEntry> {
    const names = new Set<string>();
    const rest: RemoteEntry[] = [];
    for (const entry of listed.values()) {
      names.add(entry.name);
      if (this.#merged.get(entry.url) !== entry) rest.push(entry);
    }
    return names.size < listed.size ? listed.values() : rest;
  }
}
