import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Inode } from '../base/vocabulary.ts';
import { LISTED_MAX, type LocalFiles as LocalFilesStatus } from '../control/status-model.ts';
import { isInTrash } from '../store/local-trash.ts';
import { soundNode, staysHere } from '../store/node-table.ts';
import { soundNodes } from '../store/sound-nodes.ts';
import type { NodeRecord, StoreReader } from '../store/tables.ts';
import { pathOf } from '../sync/sync-event.ts';

/** Nodes that are read before the loop yields. */
const ROWS_PER_TURN = 500;

/** The local-only files of a mount, for `cfs status`: found once in the whole store, then followed change by change. */
export class LocalFiles {
  readonly #store: StoreReader;
  readonly #inos = new Set<Inode>();
  #finding: Promise<void> | null = null;

  constructor(store: StoreReader) {
    this.#store = store;
  }

  /** After each change by a user operation. */
  changed(ino: Inode): void {
    const node = soundNode(this.#store, ino);
    if (node !== undefined && this.#counts(node)) this.#inos.add(ino);
    else this.#inos.delete(ino);
  }

  async status(): Promise<LocalFilesStatus> {
    this.#finding ??= this.#find();
    await this.#finding;
    const paths: string[] = [];
    let bytes = 0;
    let rows = 0;
    for (const ino of this.#inos) {
      if (++rows % ROWS_PER_TURN === 0) await nextTurn();
      const node = soundNode(this.#store, ino);
      // Gone with a folder that was removed elsewhere.
      if (node === undefined || !this.#counts(node)) this.#inos.delete(ino);
      else {
        bytes += node.local?.sizeBytes ?? 0;
        if (paths.length < LISTED_MAX) paths.push(pathOf(this.#store, ino));
      }
    }
    return { count: this.#inos.size, bytes, paths };
  }

  /** Not what a person deleted. */
  #counts(node: NodeRecord): boolean {
    return staysHere(node) && !isInTrash(this.#store, node.ino);
  }

  async #find(): Promise<void> {
    let rows = 0;
    for (let after: Inode | null = 0 as Inode; after !== null; ) {
      const from: Inode = after;
      after = null;
      // A new iterator for each turn: an iterator of the store ends with its turn.
      for (const [ino, node] of soundNodes(this.#store, from)) {
        if (node !== undefined && this.#counts(node)) this.#inos.add(ino);
        if (++rows % ROWS_PER_TURN !== 0) continue;
        after = ino;
        break;
      }
      if (after !== null) await nextTurn();
    }
  }
}
