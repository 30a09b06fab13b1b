import type { Inode } from '../base/vocabulary.ts';

/** A notification to the kernel (`Invalidator`). */
export interface Notice {
  readonly kind: NoticeKind;
  /** The folder of the name, or the inode. */
  readonly ino: Inode;
  /** The inode of the name, or a former node id of the inode; 0: none. */
  readonly child: Inode;
  readonly name: string;
  readonly offset: number;
  readonly length: number;
}
export type NoticeKind = 'inode' | 'entry' | 'deleted';

/** A notification of an earlier process, and the place of its row. */
export interface InheritedNotice extends Notice {
  readonly row: number;
}

/**
 * The notifications that the kernel did not get yet, in the keeper's memory: a successor sends them. Numbers are doubles, as in draft-rows.ts.
 *
 * | part | rows | what |
 * | --- | --- | --- |
 * | header | 1 | the end of the rows that were ever used, the number of notices so far |
 * | notices | 4,096 | its order (0: the row is free), record, kind, inode, child, offset, length, length of the name, the name |
 *
 * The order is written last. The thread of the addon that writes the notification sets it to 0 afterwards.
 */
const HEADER = 8;
const ROWS = 4096;
const ROW = 320 / 8;
const FIXED = 8;
/** The most rows in use that a new notice passes over. */
const PROBES_MAX = 64;
const NAME_BYTES_MAX = (ROW - FIXED) * 8;

export const NOTICE_ROWS_BYTES = (HEADER + ROWS * ROW) * 8;

/** Numbers of the header. */
const ROWS_END = 0;
const LATEST_ORDER = 1;
/** Numbers of a notice. */
const ORDER = 0;
const RECORD = 1;
const KIND = 2;
const INODE = 3;
const CHILD = 4;
const OFFSET = 5;
const LENGTH = 6;
const NAME_LENGTH = 7;

const KINDS: readonly NoticeKind[] = ['inode', 'entry', 'deleted'];

const decoder = new TextDecoder();
const encoder = new TextEncoder();

export class NoticeRows {
  readonly #numbers: Float64Array;
  readonly #bytes: Uint8Array;
  readonly #start: number;
  #next = 0;

  /** @param start bytes, in `region` */
  constructor(region: ArrayBuffer, start: number) {
    this.#numbers = new Float64Array(region, start, NOTICE_ROWS_BYTES / 8);
    this.#bytes = new Uint8Array(region, start, NOTICE_ROWS_BYTES);
    this.#start = start;
  }

  /**
   * @param record the journal record that it is about, if that is not written yet; else 0
   * @returns the place of the row in the region, bytes; 0 without a free row: the notice does not outlive this process
   */
  note({ kind, ino, child, name, offset, length }: Notice, record = 0): number {
    const at = this.#freeRow();
    if (at === null) return 0;
    const numbers = this.#numbers;
    const from = (at + FIXED) * 8;
    const { read, written } = encoder.encodeInto(name, this.#bytes.subarray(from, from + NAME_BYTES_MAX));
    if (read < name.length) return 0; // longer than a name of the kernel
    numbers[at + RECORD] = record;
    numbers[at + KIND] = KINDS.indexOf(kind);
    numbers[at + INODE] = ino;
    numbers[at + CHILD] = child;
    numbers[at + OFFSET] = offset;
    numbers[at + LENGTH] = length;
    numbers[at + NAME_LENGTH] = written;
    const order = (numbers[LATEST_ORDER] as number) + 1;
    numbers[LATEST_ORDER] = order;
    numbers[at + ORDER] = order;
    return this.#start + at * 8;
  }

  /** The notice is not due any more. */
  drop(row: number): void {
    if (row !== 0) this.#numbers[(row - this.#start) / 8 + ORDER] = 0;
  }

  /** What earlier processes left, in order. Their rows stay in use. @param lastRecord the last record of the journal: later ones were not made */
  inherited(lastRecord: number): readonly InheritedNotice[] {
    const numbers = this.#numbers;
    const found: { readonly order: number; readonly notice: InheritedNotice }[] = [];
    const end = numbers[ROWS_END] as number;
    for (let i = 0; i < end; i++) {
      const at = HEADER + i * ROW;
      const order = numbers[at + ORDER] as number;
      if (order === 0) continue;
      if ((numbers[at + RECORD] as number) > lastRecord) {
        numbers[at + ORDER] = 0;
        continue;
      }
      const from = (at + FIXED) * 8;
      const notice = {
        kind: KINDS[numbers[at + KIND] as number] as NoticeKind,
        ino: numbers[at + INODE] as Inode,
        child: numbers[at + CHILD] as Inode,
        name: decoder.decode(this.#bytes.subarray(from, from + (numbers[at + NAME_LENGTH] as number))),
        offset: numbers[at + OFFSET] as number,
        length: numbers[at + LENGTH] as number,
        row: this.#start + at * 8,
      };
      found.push({ order, notice });
    }
    return found.sort((one, other) => one.order - other.order).map(({ notice }) => notice);
  }

  /** Reading a page behind the rows that were used would allocate it: a few rows are used again and again. */
  #freeRow(): number | null {
    const numbers = this.#numbers;
    const end = numbers[ROWS_END] as number;
    for (let probe = 0; probe < Math.min(PROBES_MAX, end); probe++) {
      const at = HEADER + this.#next * ROW;
      this.#next = this.#next + 1 >= end ? 0 : this.#next + 1;
      if (numbers[at + ORDER] === 0) return at;
    }
    if (end === ROWS) return null;
    numbers[ROWS_END] = end + 1;
    this.#next = 0;
    numbers[HEADER + end * ROW + ORDER] = 0;
    return HEADER + end * ROW;
  }
}
