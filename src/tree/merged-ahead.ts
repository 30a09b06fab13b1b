import type { RemoteEntry } from '../base/resources.ts';
import type { ResourceUrl } from '../base/vocabulary.ts';
import type { NodeChange } from './listing-merge.ts';
import type { Names } from './names.ts';

/**
 * What remains of the pages of a first listing that were merged before its last page arrived. Their entries are not kept: those of
 * 100,000 files fill 30 MiB, and V8 then lets as much garbage wait. INVARIANT: the folder was empty before. If two entries share a name,
 * only a listing with all entries determines which of them keeps it: the folder is listed again.
 */
export class MergedAhead {
  /** Entries that no merge has applied, because a push in progress may concern them. The end of the listing merges them again. */
  readonly #left = new Map<ResourceUrl, RemoteEntry>();
  #changes = 0;
  #isUsed = false;
  #isClashing = false;

  /** Number of nodes written. */
  get changes(): number {
    return this.#changes;
  }

  /** Whether a page was merged. */
  get isUsed(): boolean {
    return this.#isUsed;
  }

  /** Whether an entry could not get the name that it has without other entries. */
  get isClashing(): boolean {
    return this.#isClashing;
  }

  /** The entries to merge again, with `last` ones. */
  leftWith(last: Iterable<RemoteEntry>): readonly RemoteEntry[] {
    for (const entry of last) this.#left.set(entry.url, entry);
    return [...this.#left.values()];
  }

  /** @param changes of a merge of `batch` */
  add(batch: readonly RemoteEntry[], changes: readonly NodeChange[], names: Pick<Names, 'toFileName'>): void {
    this.#isUsed = true;
    this.#changes += changes.length;
    for (const entry of batch) this.#left.set(entry.url, entry);
    for (const { after } of changes) {
      if (after.remote === null) continue;
      const { resource, name, shownAs } = after.remote;
      this.#left.delete(resource);
      if (shownAs !== names.toFileName(name)) this.#isClashing = true;
    }
  }
}
