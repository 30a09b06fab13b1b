import type { RemoteEntry } from '../base/resources.ts';
import type { ResourceUrl } from '../base/vocabulary.ts';

/**
 * The entries of a first listing that were merged before its last page arrived. INVARIANT: the complete listing merges
 * each entry again, unless the result must be the same. So the folder was empty before: otherwise, a name may belong to
 * a node that the service no longer has.
 */
export class MergedAhead {
  /** Number of nodes written. */
  changes = 0;
  readonly #merged = new Map<ResourceUrl, RemoteEntry>();

  add(entry: RemoteEntry): void {
    this.#merged.set(entry.url, entry);
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
