import type { DraftRecord, DraftState, UnflushedDraft, WritingState } from '../base/draft-record.ts';
import type { ContentId, Extent, Inode } from '../base/vocabulary.ts';

/**
 * The open drafts in the keeper's memory, and the latest appends. Numbers are doubles: each is stored at once, so that SIGKILL leaves the former
 * one or the new one.
 *
 * | part | rows | what |
 * | --- | --- | --- |
 * | header | 1 | the number of the next change, the end of the rows that were ever used |
 * | appends | 8,192, a ring | request, content, number of the change, whether it is made |
 * | heads | 1,024 | content, inode, journal record that stores the changes, which state is valid |
 * | bodies | 1,024 | own bytes of a draft in memory, and two states of 48 KiB: the valid one, and the next one |
 *
 * A draft has a row while it has changes that no journal record holds. Bodies are touched only when they are used.
 */
const HEADER = 16;
const APPENDS = 8192;
const APPEND = 4;
const ROWS = 1024;
const HEAD = 4;
const MEMORY_BYTES = 32 * 1024;
const STATE = (48 * 1024) / 8;
const BODY_BYTES = MEMORY_BYTES + 2 * STATE * 8;

const APPENDS_START = HEADER;
const HEADS_START = APPENDS_START + APPENDS * APPEND;
const BODIES_START = HEADS_START + ROWS * HEAD;

export const DRAFT_ROWS_BYTES = BODIES_START * 8 + ROWS * BODY_BYTES;

/** Numbers of the header. */
const NEXT_CHANGE = 0;
const NEXT_APPEND = 1;
const ROWS_END = 2;
/** Numbers of an append; UNIQUE is written last. */
const UNIQUE = 0;
const APPEND_CONTENT = 1;
const APPEND_CHANGE = 2;
const IS_MADE = 3;
/** Numbers of a head; VALID is written last. 0: the row is free. */
const CONTENT = 0;
const INODE = 1;
const STORED_BY = 2;
const VALID = 3;
/** Numbers of a state. */
const CHANGE = 0;
const SIZE = 1;
const BASE_SIZE = 2;
const FLAGS = 3;
const TIMES = 4;
const EXTENT_NUMBERS = 8;
const EXTENTS = 9;
const EXTENT_NUMBERS_MAX = STATE - EXTENTS;
const IN_MEMORY = 1;
const EMPTIED = 2;
const JUST_EMPTIED = 4;

export class DraftRows implements DraftRecord {
  readonly memoryBytesMax = MEMORY_BYTES;
  readonly #numbers: Float64Array;
  readonly #bytes: Uint8Array;
  readonly #rows = new Map<ContentId, number>();
  readonly #free: number[] = [];
  #end: number;
  /** Rows whose memory lacks a change: the next one copies all of it. */
  readonly #incomplete = new Set<number>();
  /** The rows of the journal record that is being written. */
  #storing: number[] = [];
  /** The append that each content takes in. */
  readonly #appending = new Map<ContentId, number>();
  /** The appends of predecessors that were made, by request. */
  readonly #appended = new Set<number>();

  constructor(region: ArrayBuffer, start: number, isInherited: boolean) {
    this.#numbers = new Float64Array(region, start, DRAFT_ROWS_BYTES / 8);
    this.#bytes = new Uint8Array(region, start, DRAFT_ROWS_BYTES);
    this.#end = isInherited ? (this.#numbers[ROWS_END] as number) : 0;
    for (let row = 0; row < this.#end; row++) {
      if (this.#head(row, VALID) === 0) this.#free.push(row);
      else this.#rows.set(this.#head(row, CONTENT) as ContentId, row);
    }
  }

  /** Decides which drafts of predecessors are stored, and which appends were made: once, before any new record. */
  judge(lastRecord: number): void {
    const numbers = this.#numbers;
    for (let at = APPENDS_START; at < HEADS_START; at += APPEND) {
      const unique = numbers[at + UNIQUE] as number;
      if (unique === 0) continue;
      const row = this.#rows.get(numbers[at + APPEND_CONTENT] as ContentId);
      const change = row === undefined ? -1 : (numbers[this.#validState(row) + CHANGE] as number);
      if (numbers[at + IS_MADE] === 1 || change >= (numbers[at + APPEND_CHANGE] as number)) this.#appended.add(unique);
      else numbers[at + UNIQUE] = 0;
    }
    for (const [content, row] of [...this.#rows]) {
      const storedBy = this.#head(row, STORED_BY);
      if (storedBy > 0 && storedBy <= lastRecord) this.dropped(content);
      else this.#setHead(row, STORED_BY, 0);
    }
  }

  inherited(): readonly UnflushedDraft[] {
    return [...this.#rows].map(([content, row]) => {
      const at = this.#validState(row);
      const numberAt = (index: number): number => this.#numbers[at + index] as number;
      const flags = numberAt(FLAGS);
      const extents = [...this.#numbers.subarray(at + EXTENTS, at + EXTENTS + numberAt(EXTENT_NUMBERS))];
      const body = bodyOf(row);
      return {
        content,
        ino: this.#head(row, INODE) as Inode,
        sizeBytes: numberAt(SIZE),
        baseBytes: numberAt(BASE_SIZE),
        extents,
        memory: (flags & IN_MEMORY) === 0 ? null : this.#bytes.slice(body, body + (extents.at(-1) ?? 0)),
        writing: {
          mtime: { sec: numberAt(TIMES), nsec: numberAt(TIMES + 1) },
          ctime: { sec: numberAt(TIMES + 2), nsec: numberAt(TIMES + 3) },
          wasEmptied: (flags & EMPTIED) !== 0,
          isJustEmptied: (flags & JUST_EMPTIED) !== 0,
        },
      };
    });
  }

  changed(content: ContentId, ino: Inode, draft: DraftState, writing: WritingState, changed: Extent | null): boolean {
    const { extents, memory } = draft;
    const ownEnd = extents.at(-1) ?? 0;
    let row = this.#rows.get(content);
    if (extents.length > EXTENT_NUMBERS_MAX || (memory !== null && ownEnd > MEMORY_BYTES)) {
      if (row !== undefined) this.#incomplete.add(row);
      return false;
    }
    const isNew = row === undefined;
    row ??= this.#newRow();
    if (row === undefined) return false;
    if (memory !== null) {
      const isWhole = isNew || (this.#incomplete.size > 0 && this.#incomplete.delete(row));
      const start = isWhole ? 0 : (changed?.start ?? 0);
      const end = isWhole ? ownEnd : (changed?.end ?? 0);
      const isAll = start === 0 && end === memory.byteLength; // nearly always: without a view for it
      if (end > start) this.#bytes.set(isAll ? memory : memory.subarray(start, end), bodyOf(row) + start);
    }
    const numbers = this.#numbers;
    const head = headOf(row);
    const next = !isNew && this.#head(row, VALID) === 1 ? 2 : 1;
    this.#writeState(stateOf(row, next), draft, writing);
    if (isNew) {
      numbers[head + CONTENT] = content;
      numbers[head + INODE] = ino;
      numbers[head + STORED_BY] = 0;
      this.#rows.set(content, row);
    }
    numbers[head + VALID] = next;
    const append = this.#appending.size > 0 ? this.#appending.get(content) : undefined;
    if (append === undefined) return true;
    numbers[append + IS_MADE] = 1;
    this.#appending.delete(content);
    return true;
  }

  storing(content: ContentId): void {
    const row = this.#rows.get(content);
    if (row !== undefined) this.#storing.push(row);
  }

  dropped(content: ContentId): void {
    const row = this.#rows.size > 0 ? this.#rows.get(content) : undefined;
    if (row === undefined) return;
    this.#setHead(row, VALID, 0);
    this.#rows.delete(content);
    if (this.#incomplete.size > 0) this.#incomplete.delete(row);
    this.#free.push(row);
    const at = this.#storing.indexOf(row);
    if (at >= 0) this.#storing.splice(at, 1);
  }

  /** A journal record with this number is about to be written. */
  writing(sequence: number): void {
    if (this.#storing.length === 0) return;
    for (const row of this.#storing) this.#setHead(row, STORED_BY, sequence);
  }

  /** That record could not be written. */
  refused(): void {
    for (const row of this.#storing) this.#setHead(row, STORED_BY, 0);
    this.#storing = [];
  }

  /** A transaction that failed before its record leaves rows behind. */
  begin(): void {
    if (this.#storing.length > 0) this.#storing = [];
  }

  /**
   * The request is about to append to the draft.
   *
   * @returns false if a predecessor did so
   */
  appends(unique: number, content: ContentId): boolean {
    if (this.#appended.has(unique)) return false;
    const numbers = this.#numbers;
    const next = numbers[NEXT_APPEND] as number;
    const at = APPENDS_START + next * APPEND;
    numbers[NEXT_APPEND] = (next + 1) % APPENDS;
    numbers[at + UNIQUE] = 0;
    numbers[at + APPEND_CONTENT] = content;
    numbers[at + APPEND_CHANGE] = numbers[NEXT_CHANGE] as number;
    numbers[at + IS_MADE] = 0;
    numbers[at + UNIQUE] = unique;
    this.#appending.set(content, at);
    return true;
  }

  /** That append was refused: the next change of the draft is another one's. */
  appendFailed(content: ContentId): void {
    const append = this.#appending.get(content);
    if (append === undefined) return;
    this.#numbers[append + UNIQUE] = 0;
    this.#appending.delete(content);
  }

  #newRow(): number | undefined {
    const free = this.#free.pop();
    if (free !== undefined || this.#end === ROWS) return free;
    this.#numbers[ROWS_END] = this.#end + 1;
    return this.#end++;
  }

  /** Writes the state that is not valid yet. */
  #writeState(at: number, draft: DraftState, writing: WritingState): void {
    const { extents } = draft;
    const numbers = this.#numbers;
    const change = numbers[NEXT_CHANGE] as number;
    numbers[NEXT_CHANGE] = change + 1;
    numbers[at + CHANGE] = change;
    numbers[at + SIZE] = draft.sizeBytes;
    numbers[at + BASE_SIZE] = draft.baseBytes;
    numbers[at + FLAGS] =
      (draft.memory === null ? 0 : IN_MEMORY) |
      (writing.wasEmptied ? EMPTIED : 0) |
      (writing.isJustEmptied ? JUST_EMPTIED : 0);
    numbers[at + TIMES] = writing.mtime.sec;
    numbers[at + TIMES + 1] = writing.mtime.nsec;
    numbers[at + TIMES + 2] = writing.ctime.sec;
    numbers[at + TIMES + 3] = writing.ctime.nsec;
    numbers[at + EXTENT_NUMBERS] = extents.length;
    for (let i = 0; i < extents.length; i++) numbers[at + EXTENTS + i] = extents[i] as number;
  }

  #validState(row: number): number {
    return stateOf(row, this.#head(row, VALID));
  }

  #head(row: number, index: number): number {
    return this.#numbers[headOf(row) + index] as number;
  }

  #setHead(row: number, index: number, value: number): void {
    this.#numbers[headOf(row) + index] = value;
  }
}

/** Where the head of a row begins, in numbers. */
function headOf(row: number): number {
  return HEADS_START + row * HEAD;
}

/** Where the own bytes of a row begin. */
function bodyOf(row: number): number {
  return BODIES_START * 8 + row * BODY_BYTES;
}

/** Where one of the two states of a row begins, in numbers. */
function stateOf(row: number, which: number): number {
  return (bodyOf(row) + MEMORY_BYTES) / 8 + (which - 1) * STATE;
}
