import type { ContentId, HandleId, Inode } from '../base/vocabulary.ts';
import type { HandleRecord, InheritedHandle, OpenHandle } from './binding.ts';
import { DRAFT_ROWS_BYTES, DraftRows } from './draft-rows.ts';
import type { KernelOffer } from './negotiation.ts';
import { Opcode } from './protocol.ts';
import { REMOVED_ROWS_BYTES, RemovedRows } from './removed-rows.ts';

/**
 * What a mounting process leaves to its successor, in the keeper's memory behind the region of the connection. It survives SIGKILL, like
 * everything that was stored before. Words of 32 bits; numbers beyond that are two words, the low one first.
 *
 * | part | rows | what |
 * | --- | --- | --- |
 * | header | 1 | the kernel's offer of INIT, the request that is being served, the request that a process died of |
 * | changes | 8,192, a ring | the latest changes that must not be made twice: request, journal record, inode |
 * | handles | 65,536 | the handles that the kernel has |
 * | drafts | 1,024 | the changes that no journal record holds (draft-rows.ts) |
 * | removals | 1,024 and 8,192 | what was removed while programs use it (removed-rows.ts) |
 *
 * A change is written here before its journal record. The successor compares its number with the last record of the journal, before any new
 * record is written: a change beyond it was not made.
 */

const HEADER_WORDS = 1024;
const CHANGES = 8192;
const CHANGE_WORDS = 8;
const HANDLES_MAX = 65_536;
const HANDLE_WORDS = 16;
const CHANGES_START = HEADER_WORDS;
const HANDLES_START = CHANGES_START + CHANGES * CHANGE_WORDS;

const DRAFTS_START_BYTES = (HANDLES_START + HANDLES_MAX * HANDLE_WORDS) * 4;

const REMOVED_START_BYTES = DRAFTS_START_BYTES + DRAFT_ROWS_BYTES;

export const HANDOVER_BYTES = REMOVED_START_BYTES + REMOVED_ROWS_BYTES;

/** Words of the header. */
const AGREED = 0;
const OFFER = 1; // major, minor, read-ahead, flags, flags2
const SERVED = 8;
const SUSPECT = 10;
const SUSPECT_DEATHS = 12;
const NEXT_CHANGE = 13;
/** The end of the rows that were ever used: reading a page behind it would allocate it. */
const HANDLES_END = 14;

/** Words of a handle; KIND is written last. */
const KIND = 0;
const HANDLE = 1;
const INODE = 3;
const FLAGS = 5;
const HAS_CONTENT = 6;
const CONTENT = 7; // of a folder: `InheritedHandle.leftFrom`
const IS_UNSTORED = 9;
const REQUEST = 10;
const NODE_ID = 12;
const HAS_CHANGED = 14;
/** Values of HAS_CONTENT. */
const CONTENTS = { none: 0, known: 1, older: 2 } as const;
const KINDS = { file: 1, folder: 2 } as const;

const TWO_32 = 0x1_0000_0000;
/** Handles of one process: its generation is above them. No number is used twice, so that a repeated RELEASE does no harm. */
const HANDLES_OF_GENERATION = TWO_32;
/** A request that two processes died of is not tried again. */
const POISON_DEATHS = 2;

/** The requests that fail, or do something else, when they are carried out again. Each is one journal record. */
const ONCE: ReadonlySet<number> = new Set([
  ...[Opcode.CREATE, Opcode.MKNOD, Opcode.MKDIR, Opcode.SYMLINK, Opcode.LINK],
  ...[Opcode.UNLINK, Opcode.RMDIR, Opcode.RENAME, Opcode.RENAME2, Opcode.SETXATTR, Opcode.REMOVEXATTR],
]);

/** A request as its record names it. */
export interface ServedRequest {
  readonly opcode: number;
  readonly uniqueLow: number;
  /** Without the bit of a resent request. */
  readonly uniqueTop: number;
  readonly unique: number;
  /** As received: perhaps not the inode (`NodeIds`). */
  readonly nodeId: number;
}

export class HandoverState implements HandleRecord {
  readonly firstHandle: number;
  /** The kernel does not send unanswered requests again: they stay in their slots. */
  keepsRequests = false;
  readonly drafts: DraftRows;
  readonly removals: RemovedRows;
  readonly #words: Uint32Array;
  readonly #rows = new Map<HandleId, number>();
  #free: number[] = [];
  #nextRow = HANDLES_START;
  /** The changes of predecessors that the journal has, by request: the inode that was made. */
  readonly #made = new Map<number, Inode>();
  /** The handles of predecessors by the request that opened them. */
  readonly #openedBy = new Map<number, HandleId>();
  #served: ServedRequest | null = null;
  /** The latest request with a recorded change: its first record counts, and others are consequences of it. */
  #recorded: ServedRequest | null = null;
  /** The row of the record that is being written; -1: none. */
  #writing = -1;

  constructor(region: ArrayBuffer, recordsStart: number, generation: number) {
    this.#words = new Uint32Array(region, recordsStart, HANDOVER_BYTES / 4);
    this.firstHandle = generation * HANDLES_OF_GENERATION + 1;
    this.drafts = new DraftRows(region, recordsStart + DRAFTS_START_BYTES, generation > 0);
    this.removals = new RemovedRows(region, recordsStart + REMOVED_START_BYTES, generation > 0);
    if (generation > 0) this.#takeOver();
  }

  /** What the kernel offered at INIT; null before that. */
  get offer(): KernelOffer | null {
    if (this.#words[AGREED] === 0) return null;
    const [major = 0, minor = 0, readAheadBytesMax = 0, flags = 0, flags2 = 0] = this.#words.subarray(OFFER, OFFER + 5);
    return { major, minor, readAheadBytesMax, flags, flags2 };
  }

  agreed({ major, minor, readAheadBytesMax, flags, flags2 }: KernelOffer): void {
    this.#words.set([major, minor, readAheadBytesMax, flags, flags2], OFFER);
    this.#words[AGREED] = 1;
  }

  /** From here on `request` is served; changes are recorded as its own. */
  begin(request: ServedRequest): void {
    this.#words[SERVED] = request.uniqueLow;
    this.#words[SERVED + 1] = request.uniqueTop;
    this.#served = request;
    this.drafts.begin();
  }

  end(): void {
    this.#words[SERVED] = 0;
    this.#words[SERVED + 1] = 0;
    this.#served = null;
  }

  // The changes

  /** Whether the next record is the change of the request that is being served. */
  get needsInode(): boolean {
    const request = this.#served;
    return request !== null && request !== this.#recorded && ONCE.has(request.opcode);
  }

  /** A record is about to be written. `inode`: the newest inode in it; null: not asked for. */
  writing(sequence: number, inode: number | null): void {
    const request = this.#served;
    this.drafts.writing(sequence);
    this.#writing = -1;
    if (request === null || inode === null) return;
    const words = this.#words;
    const next = words[NEXT_CHANGE] as number;
    const row = CHANGES_START + (next % CHANGES) * CHANGE_WORDS;
    words[NEXT_CHANGE] = (next + 1) % CHANGES;
    this.#set(row, 0);
    this.#set(row + 2, sequence);
    this.#set(row + 4, inode);
    words[row + 1] = request.uniqueTop;
    words[row] = request.uniqueLow;
    this.#recorded = request;
    this.#writing = row;
  }

  /** The record could not be written: the next one gets its number. */
  refused(): void {
    this.drafts.refused();
    if (this.#writing < 0) return;
    this.#set(this.#writing, 0);
    this.#recorded = null;
    this.#writing = -1;
  }

  /** Decides which changes of predecessors were made: those up to the last record that the journal had at the start. */
  judge(lastRecord: number): void {
    this.drafts.judge(lastRecord);
    for (let row = CHANGES_START; row < HANDLES_START; row += CHANGE_WORDS) {
      const unique = this.#get(row);
      if (unique === 0) continue;
      if (this.#get(row + 2) > lastRecord) this.#set(row, 0);
      else this.#made.set(unique, this.#get(row + 4) as Inode);
    }
  }

  /** For a repeated request: the inode of its change if a predecessor has made it; null if it must be carried out. */
  madeBy({ unique }: ServedRequest): Inode | null {
    return this.#made.get(unique) ?? null;
  }

  /** Whether predecessors died of the request. */
  isPoison({ uniqueLow, uniqueTop }: ServedRequest): boolean {
    const words = this.#words;
    return (
      words[SUSPECT] === uniqueLow &&
      words[SUSPECT + 1] === uniqueTop &&
      (words[SUSPECT_DEATHS] as number) >= POISON_DEATHS
    );
  }

  // The handles

  /** For a repeated request: the handle that it opened, and that the kernel perhaps never got. Returned once. */
  undelivered({ unique }: ServedRequest): { readonly handle: HandleId; readonly ino: Inode } | null {
    const handle = this.#openedBy.get(unique);
    const row = handle === undefined ? undefined : this.#rows.get(handle);
    if (handle === undefined || row === undefined) return null;
    this.#openedBy.delete(unique);
    return { handle, ino: this.#get(row + INODE) as Inode };
  }

  *inherited(): Generator<InheritedHandle> {
    const words = this.#words;
    for (const [handle, row] of this.#rows)
      yield {
        handle,
        ino: this.#get(row + INODE) as Inode,
        kind: words[row + KIND] === KINDS.folder ? 'folder' : 'file',
        flags: words[row + FLAGS] as number,
        content: this.#contentOf(row),
        hasChanged: words[row + HAS_CHANGED] !== 0,
        isUnstored: words[row + IS_UNSTORED] !== 0,
        leftFrom: words[row + KIND] === KINDS.folder ? this.#get(row + CONTENT) : 0,
      };
  }

  opened({ handle, ino, kind, flags, content, hasChanged, isUnstored }: OpenHandle): void {
    const row = this.#free.pop() ?? this.#nextRow;
    if (row >= HANDLES_START + HANDLES_MAX * HANDLE_WORDS) return; // it does not outlive this process
    const words = this.#words;
    if (row === this.#nextRow) {
      this.#nextRow += HANDLE_WORDS;
      words[HANDLES_END] = this.#nextRow;
    }
    this.#rows.set(handle, row);
    this.#set(row + HANDLE, handle);
    this.#set(row + INODE, ino);
    words[row + FLAGS] = flags;
    words[row + IS_UNSTORED] = isUnstored ? 1 : 0;
    words[row + HAS_CHANGED] = hasChanged ? 1 : 0;
    this.#setContent(row, content);
    if (kind === 'folder') this.#set(row + CONTENT, this.removals.nextOrder);
    words[row + REQUEST] = this.#served?.uniqueLow ?? 0;
    words[row + REQUEST + 1] = this.#served?.uniqueTop ?? 0;
    this.#set(row + NODE_ID, this.#served?.opcode === Opcode.OPEN ? this.#served.nodeId : ino);
    words[row + KIND] = KINDS[kind];
  }

  changed(handle: HandleId): void {
    const row = this.#rows.get(handle);
    if (row !== undefined) this.#words[row + HAS_CHANGED] = 1;
  }

  unstored(handle: HandleId, isUnstored: boolean): void {
    const row = this.#rows.get(handle);
    if (row !== undefined) this.#words[row + IS_UNSTORED] = isUnstored ? 1 : 0;
  }

  /** The node ids of the files of inherited handles, in the order of the handles. */
  nodeIds(): readonly { readonly nodeId: number; readonly ino: Inode }[] {
    return [...this.#rows]
      .sort(([one], [other]) => one - other)
      .map(([, row]) => ({ nodeId: this.#get(row + NODE_ID), ino: this.#get(row + INODE) as Inode }));
  }

  reads(handle: HandleId, content: ContentId | 'older'): void {
    const row = this.#rows.get(handle);
    if (row !== undefined) this.#setContent(row, content);
  }

  rewound(handle: HandleId): void {
    const row = this.#rows.get(handle);
    if (row !== undefined) this.#set(row + CONTENT, this.removals.nextOrder);
  }

  closed(handle: HandleId): void {
    const row = this.#rows.get(handle);
    if (row === undefined) return;
    this.#rows.delete(handle);
    this.#words[row + KIND] = 0;
    this.#free.push(row);
  }

  #takeOver(): void {
    const words = this.#words;
    this.#nextRow = Math.max(HANDLES_START, words[HANDLES_END] as number);
    for (let row = HANDLES_START; row < this.#nextRow; row += HANDLE_WORDS) {
      if (words[row + KIND] === 0) {
        this.#free.push(row);
        continue;
      }
      const handle = this.#get(row + HANDLE) as HandleId;
      this.#rows.set(handle, row);
      const unique = this.#get(row + REQUEST);
      if (unique !== 0) this.#openedBy.set(unique, handle);
    }
    this.#suspect();
  }

  /** Counts how often a process died while it served the same request. */
  #suspect(): void {
    const words = this.#words;
    if (this.#get(SERVED) === 0) return;
    const isSame = words[SERVED] === words[SUSPECT] && words[SERVED + 1] === words[SUSPECT + 1];
    words[SUSPECT_DEATHS] = isSame ? (words[SUSPECT_DEATHS] as number) + 1 : 1;
    words[SUSPECT] = words[SERVED] as number;
    words[SUSPECT + 1] = words[SERVED + 1] as number;
    this.end();
  }

  /** The content first: a row with a flag and the content of another one would lead to wrong bytes. */
  #setContent(row: number, content: ContentId | 'older' | null): void {
    this.#words[row + HAS_CONTENT] = content === 'older' ? CONTENTS.older : CONTENTS.none;
    if (content === null || content === 'older') return;
    this.#set(row + CONTENT, content);
    this.#words[row + HAS_CONTENT] = CONTENTS.known;
  }

  #contentOf(row: number): ContentId | 'older' | null {
    const has = this.#words[row + HAS_CONTENT];
    if (has === CONTENTS.older) return 'older';
    return has === CONTENTS.none ? null : (this.#get(row + CONTENT) as ContentId);
  }

  #get(word: number): number {
    return (this.#words[word] as number) + (this.#words[word + 1] as number) * TWO_32;
  }

  #set(word: number, value: number): void {
    this.#words[word + 1] = Math.floor(value / TWO_32);
    this.#words[word] = value % TWO_32;
  }
}
