import type { Inode } from '../base/vocabulary.ts';
import { soundNode } from '../store/node-table.ts';
import type { StoreReader } from '../store/tables.ts';

/** A folder here, and a name in it. */
export interface Place {
  readonly parent: Inode;
  readonly name: string;
}

/**
 * Who was refused a name because of another one that the service takes for the same, and who has that. It says nothing any more once one of the
 * two is to be, or is, somewhere else: then the service is to be asked again.
 */
export class RefusedNames {
  readonly #store: StoreReader;
  readonly #refusals = new Map<Inode, { readonly holder: Inode; readonly asked: Place; readonly held: Place }>();

  constructor(store: StoreReader) {
    this.#store = store;
  }

  /** @param asked where `asker` was to be, by what it was called here */
  refused(asker: Inode, asked: Place, holder: Inode): void {
    const held = soundNode(this.#store, holder)?.remote;
    if (held != null) this.#refusals.set(asker, { holder, asked, held });
  }

  /** Who has the name that `asker` is to have; null for none. */
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
