import type { Inode } from '../base/vocabulary.ts';
import { soundNode } from '../store/node-table.ts';
import type { StoreReader } from '../store/tables.ts';

/** A folder here, and a name in it. */
export interface Place {
  readonly parent: Inode;
  readonly name: string;
}

/**
 * Nodes that were refused a name because of another node, whose name the service takes for the same one. An entry is void as soon as one of
 * the two nodes has, or is to have, another place: then the name is requested again.
 */
export class CollisionMemory {
  readonly #store: StoreReader;
  readonly #refusals = new Map<Inode, { readonly holder: Inode; readonly asked: Place; readonly held: Place }>();

  constructor(store: StoreReader) {
    this.#store = store;
  }

  /** @param asked the place that `asker` was to have, by its local name */
  refused(asker: Inode, asked: Place, holder: Inode): void {
    const held = soundNode(this.#store, holder)?.remote;
    if (held != null) this.#refusals.set(asker, { holder, asked, held });
  }

  /** The node that holds the name for `asker`; null for none. */
  holderOf(asker: Inode): Inode | null {
    const refusal = this.#refusals.size > 0 ? this.#refusals.get(asker) : undefined;
    if (refusal === undefined) return null;
    const { holder, asked, held } = refusal;
    const stands =
      isThere(asked, soundNode(this.#store, asker)?.local) && isThere(held, soundNode(this.#store, holder)?.remote);
    if (!stands) this.#refusals.delete(asker);
    return stands ? holder : null;
  }

  forget(asker: Inode): void {
    this.#refusals.delete(asker);
  }
}

function isThere(before: Place, now: Place | null | undefined): boolean {
  return now != null && now.parent === before.parent && now.name === before.name;
}
