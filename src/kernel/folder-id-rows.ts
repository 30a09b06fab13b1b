import type { Inode } from '../base/vocabulary.ts';

/** A node id of a folder that was removed and reappeared while a program was in it. */
export interface FolderId {
  readonly nodeId: number;
  readonly ino: Inode;
  /** The folder was removed under this id: the kernel finds nothing in it. */
  readonly isDead: boolean;
}

/**
 * The node ids of such folders, in the keeper's memory (`NodeIds`). Numbers are doubles, as in draft-rows.ts.
 *
 * | part | rows | what |
 * | --- | --- | --- |
 * | ids | 1,024 | node id (0: the row is free), inode, whether it is dead (1) |
 *
 * The node id is written last.
 */
const ROWS = 1024;
const ROW = 4;

export const FOLDER_ID_ROWS_BYTES = ROWS * ROW * 8;

const NODE_ID = 0;
const INODE = 1;
const IS_DEAD = 2;

export class FolderIdRows {
  readonly #numbers: Float64Array;
  readonly #rows = new Map<number, number>();
  readonly #free: number[] = [];

  /** @param start bytes, in `region` */
  constructor(region: ArrayBuffer, start: number) {
    this.#numbers = new Float64Array(region, start, FOLDER_ID_ROWS_BYTES / 8);
    for (let at = 0; at < ROWS * ROW; at += ROW) {
      const nodeId = this.#numbers[at + NODE_ID] as number;
      if (nodeId === 0) this.#free.push(at);
      else this.#rows.set(nodeId, at);
    }
  }

  /** Those of earlier processes, the latest last. */
  inherited(): readonly FolderId[] {
    return Array.from(this.#rows, ([nodeId, at]) => ({
      nodeId,
      ino: this.#numbers[at + INODE] as Inode,
      isDead: this.#numbers[at + IS_DEAD] === 1,
    })).sort((one, other) => one.nodeId - other.nodeId);
  }

  /** Of too many, the oldest is dropped. */
  note({ nodeId, ino, isDead }: FolderId): void {
    const [oldest] = this.#rows.keys();
    if (this.#free.length === 0 && oldest !== undefined && !this.#rows.has(nodeId)) this.drop(oldest);
    const at = this.#rows.get(nodeId) ?? (this.#free.pop() as number);
    this.#rows.set(nodeId, at);
    this.#numbers[at + INODE] = ino;
    this.#numbers[at + IS_DEAD] = isDead ? 1 : 0;
    this.#numbers[at + NODE_ID] = nodeId;
  }

  /** The kernel does not use the node id any more. */
  drop(nodeId: number): void {
    const at = this.#rows.size > 0 ? this.#rows.get(nodeId) : undefined;
    if (at === undefined) return;
    this.#numbers[at + NODE_ID] = 0;
    this.#rows.delete(nodeId);
    this.#free.push(at);
  }
}
