import type { Inode } from '../base/vocabulary.ts';
import type { LeftEntry, NamelessNode, RemovalRecord } from './binding.ts';

/**
 * What was removed while programs use it, in the keeper's memory. Numbers are doubles, as in draft-rows.ts.
 *
 * | part | rows | what |
 * | --- | --- | --- |
 * | header | 1 | the end of the nodes that were ever used, the latest version of a node, the number of entries so far |
 * | nodes | 1,024 | version (0: the row is free), inode, length of the node, the node as the file system encodes it |
 * | entries | 8,192, a ring | folder (0: none), entry, its order, length of the name, the name |
 */
const HEADER = 8;
const NODES = 1024;
const NODE = 4096 / 8;
const ENTRIES = 8192;
const ENTRY = 288 / 8;
const FIXED = 4;

const NODES_START = HEADER;
const ENTRIES_START = NODES_START + NODES * NODE;
const NODE_BYTES_MAX = (NODE - FIXED) * 8;
const NAME_BYTES_MAX = (ENTRY - FIXED) * 8;

export const REMOVED_ROWS_BYTES = (ENTRIES_START + ENTRIES * ENTRY) * 8;

/** Numbers of the header. */
const NODES_END = 0;
const LATEST_VERSION = 1;
const NEXT_ORDER = 2;
/** Numbers of a node; VERSION is written last. */
const VERSION = 0;
const INODE = 1;
const LENGTH = 2;
/** Numbers of an entry; FOLDER is written last. */
const FOLDER = 0;
const ENTRY_INODE = 1;
const ORDER = 2;
const NAME_LENGTH = 3;

const decoder = new TextDecoder();
const encoder = new TextEncoder();

export class RemovedRows implements RemovalRecord {
  readonly #numbers: Float64Array;
  readonly #bytes: Uint8Array;
  readonly #rows = new Map<Inode, number>();
  readonly #free: number[] = [];

  constructor(region: ArrayBuffer, start: number, isInherited: boolean) {
    this.#numbers = new Float64Array(region, start, REMOVED_ROWS_BYTES / 8);
    this.#bytes = new Uint8Array(region, start, REMOVED_ROWS_BYTES);
    const end = isInherited ? (this.#numbers[NODES_END] as number) : 0;
    for (let row = 0; row < end; row++) this.#takeOver(row);
  }

  nameless(): readonly NamelessNode[] {
    return Array.from(this.#rows, ([ino, row]) => {
      const at = nodeAt(row);
      const from = (at + FIXED) * 8;
      return { ino, node: this.#bytes.slice(from, from + (this.#numbers[at + LENGTH] as number)) };
    });
  }

  /** A node that is too long, or one too many, does not outlive this process. */
  lost(ino: Inode, node: Uint8Array): void {
    const before = this.#rows.get(ino);
    const row = node.byteLength > NODE_BYTES_MAX ? undefined : this.#newRow();
    if (row !== undefined) {
      const at = nodeAt(row);
      const numbers = this.#numbers;
      this.#bytes.set(node, (at + FIXED) * 8);
      numbers[at + INODE] = ino;
      numbers[at + LENGTH] = node.byteLength;
      const version = (numbers[LATEST_VERSION] as number) + 1;
      numbers[LATEST_VERSION] = version;
      numbers[at + VERSION] = version;
      this.#rows.set(ino, row);
    }
    if (before === undefined) return;
    if (row === undefined) this.#rows.delete(ino);
    this.#freeRow(before);
  }

  dropped(ino: Inode): void {
    const row = this.#rows.size > 0 ? this.#rows.get(ino) : undefined;
    if (row === undefined) return;
    this.#rows.delete(ino);
    this.#freeRow(row);
  }

  *left(): Generator<LeftEntry> {
    const numbers = this.#numbers;
    const next = this.nextOrder;
    for (let order = Math.max(0, next - ENTRIES); order < next; order++) {
      const at = ENTRIES_START + (order % ENTRIES) * ENTRY;
      const folder = numbers[at + FOLDER] as Inode;
      if (folder === 0) continue;
      const from = (at + FIXED) * 8;
      yield {
        folder,
        entry: numbers[at + ENTRY_INODE] as Inode,
        order: numbers[at + ORDER] as number,
        name: decoder.decode(this.#bytes.subarray(from, from + (numbers[at + NAME_LENGTH] as number))),
      };
    }
  }

  /** Entries before it left a folder before it was opened: they are none of its listing. */
  get nextOrder(): number {
    return this.#numbers[NEXT_ORDER] as number;
  }

  leaves(folder: Inode, entry: Inode, name: string): void {
    const numbers = this.#numbers;
    const order = this.nextOrder;
    const at = ENTRIES_START + (order % ENTRIES) * ENTRY;
    numbers[at + FOLDER] = 0;
    const from = (at + FIXED) * 8;
    const { read, written } = encoder.encodeInto(name, this.#bytes.subarray(from, from + NAME_BYTES_MAX));
    if (read < name.length) return; // longer than a name of the kernel
    numbers[at + ENTRY_INODE] = entry;
    numbers[at + ORDER] = order;
    numbers[at + NAME_LENGTH] = written;
    numbers[at + FOLDER] = folder;
    numbers[NEXT_ORDER] = order + 1;
  }

  /** Of two versions of a node, the process died between the later one and the end of the former one. */
  #takeOver(row: number): void {
    const version = this.#numbers[nodeAt(row) + VERSION] as number;
    if (version === 0) {
      this.#free.push(row);
      return;
    }
    const ino = this.#numbers[nodeAt(row) + INODE] as Inode;
    const other = this.#rows.get(ino);
    const isLater = other === undefined || (this.#numbers[nodeAt(other) + VERSION] as number) < version;
    if (isLater) this.#rows.set(ino, row);
    if (other !== undefined) this.#freeRow(isLater ? other : row);
  }

  #newRow(): number | undefined {
    const free = this.#free.pop();
    const end = this.#numbers[NODES_END] as number;
    if (free !== undefined || end === NODES) return free;
    this.#numbers[NODES_END] = end + 1;
    return end;
  }

  #freeRow(row: number): void {
    this.#numbers[nodeAt(row) + VERSION] = 0;
    this.#free.push(row);
  }
}

/** Where the row of a node begins, in numbers. */
function nodeAt(row: number): number {
  return NODES_START + row * NODE;
}
