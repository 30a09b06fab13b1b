import type { ContentId, HandleId, Inode } from '../base/vocabulary.ts';
import type { HandleRecord, InheritedHandle, OpenHandle } from './binding.ts';
import { DRAFT_ROWS_BYTES, DraftRows } from './draft-rows.ts';
import { FOLDER_ID_ROWS_BYTES, FolderIdRows } from './folder-id-rows.ts';
import type { KernelOffer } from './negotiation.ts';
import { NOTICE_ROWS_BYTES, NoticeRows } from './notice-rows.ts';
import { Opcode } from './protocol.ts';
import { REMOVED_ROWS_BYTES, RemovedRows } from './removed-rows.ts';

/**
 * What a mounting process leaves to its successor, in the keeper's memory behind the region of the connection. It survives SIGKILL, like
 * everything that was stored before. Numbers are doubles: each is stored at once, so that SIGKILL leaves the former one or the new one.
 *
 * | part | rows | what |
 * | --- | --- | --- |
 * | header | 1 | the kernel's offer of INIT, the request that is being served, the request that a process died of |
 * | changes | 8,192, a ring | the latest changes that must not be made twice: request, journal record, inode |
 * | handles | 65,536 | the handles that the kernel has |
 * | drafts | 1,024 | the changes that no journal record holds (draft-rows.ts) |
 * | removals | 1,024 and 8,192 | what was removed while programs use it (removed-rows.ts) |
 * | notices | 4,096 | the notifications that the kernel did not get yet (notice-rows.ts) |
 * | folder ids | 1,024 | the node ids of folders that reappeared (folder-id-rows.ts) |
 *
 * A change is written here before its journal record. The successor compares its number with the last record of the journal, before any new
 * record is written: a change beyond it was not made.
 */

const HEADER = 512;
const CHANGES = 8192;
const CHANGE = 4;
const HANDLES_MAX = 65_536;
const HANDLE = 10;
const CHANGES_START = HEADER;
const HANDLES_START = CHANGES_START + CHANGES * CHANGE;
const HANDLES_LIMIT = HANDLES_START + HANDLES_MAX * HANDLE;

const DRAFTS_START_BYTES = HANDLES_LIMIT * 8;

const REMOVED_START_BYTES = DRAFTS_START_BYTES + DRAFT_ROWS_BYTES;

const NOTICES_START_BYTES = REMOVED_START_BYTES + REMOVED_ROWS_BYTES;

const FOLDER_IDS_START_BYTES = NOTICES_START_BYTES + NOTICE_ROWS_BYTES;

export const HANDOVER_BYTES = FOLDER_IDS_START_BYTES + FOLDER_ID_ROWS_BYTES;

/** Numbers of the header. */
const AGREED = 0;
const OFFER = 1; // major, minor, read-ahead, flags, flags2
const SERVED = 6;
const SUSPECT = 7;
const SUSPECT_DEATHS = 8;
const NEXT_CHANGE = 9;
/** The end of the rows that were ever used: reading a page behind it would allocate it. */
const HANDLES_END = 10;

/** Numbers of a change; UNIQUE is written last. 0: none. */
const UNIQUE = 0;
const RECORD = 1;
const MADE = 2;

/** Numbers of a handle; KIND is written last. */
const KIND = 0;
const NUMBER = 1;
const INODE = 2;
const FLAGS = 3;
const HAS_CONTENT = 4;
const CONTENT = 5; // of a folder: `InheritedHandle.leftFrom`
const IS_UNSTORED = 6;
const REQUEST = 7;
const NODE_ID = 8;
const HAS_CHANGED = 9;
/** Values of HAS_CONTENT. */
const CONTENTS = { none: 0, known: 1, older: 2 } as const;
const KINDS = { file: 1, folder: 2 } as const;

/** Handles of one process: its generation is above them. No number is used twice, so that a repeated RELEASE does no harm. */
const HANDLES_OF_GENERATION = 0x1_0000_0000;
/** A request that two processes died of is not tried again. */
const POISON_DEATHS = 2;

/** The requests that fail, or do something else, when they are carried out again. Each is one journal record. */
const ONCE: ReadonlySet<number> = new Set([
  ...[Opcode.CREATE, Opcode.MKNOD, Opcode.MKDIR, Opcode.SYMLINK, Opcode.LINK],
  ...[Opcode.UNLINK, Opcode.RMDIR, Opcode.RENAME, Opcode.RENAME2, Opcode.SETXATTR, Opcode.REMOVEXATTR],
]);

/** A folder, and a name in it that appeared, was removed or leads to another node. */
export type ChangedName = readonly [folder: Inode, name: string];

/** A request as its record names it. */
export interface ServedRequest {
  readonly opcode: number;
  /** Without the bit of a resent request. */
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
  readonly notices: NoticeRows;
  readonly folderIds: FolderIdRows;
  readonly #numbers: Float64Array;
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
    this.#numbers = new Float64Array(region, recordsStart, HANDOVER_BYTES / 8);
    this.firstHandle = generation * HANDLES_OF_GENERATION + 1;
    this.drafts = new DraftRows(region, recordsStart + DRAFTS_START_BYTES, generation > 0);
    this.removals = new RemovedRows(region, recordsStart + REMOVED_START_BYTES, generation > 0);
    this.notices = new NoticeRows(region, recordsStart + NOTICES_START_BYTES);
    this.folderIds = new FolderIdRows(region, recordsStart + FOLDER_IDS_START_BYTES);
    if (generation > 0) this.#takeOver();
  }

  /** What the kernel offered at INIT; null before that. */
  get offer(): KernelOffer | null {
    if (this.#numbers[AGREED] === 0) return null;
    const [major = 0, minor = 0, readAheadBytesMax = 0, flags = 0, flags2 = 0] = this.#numbers.subarray(
      OFFER,
      OFFER + 5,
    );
    return { major, minor, readAheadBytesMax, flags, flags2 };
  }

  agreed({ major, minor, readAheadBytesMax, flags, flags2 }: KernelOffer): void {
    this.#numbers.set([major, minor, readAheadBytesMax, flags, flags2], OFFER);
    this.#numbers[AGREED] = 1;
  }

  /** From here on `request` is served; changes are recorded as its own. */
  begin(request: ServedRequest): void {
    this.#numbers[SERVED] = request.unique;
    this.#served = request;
    this.drafts.begin();
  }

  end(): void {
    this.#numbers[SERVED] = 0;
    this.#served = null;
  }

  // The changes

  /** Whether the next record is the change of the request that is being served. */
  get needsInode(): boolean {
    const request = this.#served;
    return request !== null && request !== this.#recorded && ONCE.has(request.opcode);
  }

  /**
   * A record is about to be written.
   *
   * @param inode the newest inode in it; null: not asked for
   * @param names returns the names that it changes
   */
  writing(sequence: number, inode: number | null, names: () => Iterable<ChangedName>): void {
    const request = this.#served;
    this.drafts.writing(sequence);
    this.#writing = -1;
    if (request === null) this.#noteNames(sequence, names());
    if (request === null || inode === null) return;
    const numbers = this.#numbers;
    const next = numbers[NEXT_CHANGE] as number;
    const row = CHANGES_START + next * CHANGE;
    numbers[NEXT_CHANGE] = next + 1 === CHANGES ? 0 : next + 1;
    numbers[row + UNIQUE] = 0;
    numbers[row + RECORD] = sequence;
    numbers[row + MADE] = inode;
    numbers[row + UNIQUE] = request.unique;
    this.#recorded = request;
    this.#writing = row;
  }

  /**
   * The kernel does not know of these changes. Their notifications follow the record: until then a successor would not know of them. The rows are
   * free as soon as the code that writes the record has noted its own.
   */
  #noteNames(record: number, names: Iterable<ChangedName>): void {
    const rows: number[] = [];
    const child = 0 as Inode;
    for (const [ino, name] of names)
      rows.push(this.notices.note({ kind: 'entry', ino, child, name, offset: 0, length: 0 }, record));
    if (rows.length > 0)
      queueMicrotask(() => {
        for (const row of rows) this.notices.drop(row);
      });
  }

  /** The record could not be written: the next one gets its number. */
  refused(): void {
    this.drafts.refused();
    if (this.#writing < 0) return;
    this.#numbers[this.#writing + UNIQUE] = 0;
    this.#recorded = null;
    this.#writing = -1;
  }

  /** Decides which changes of predecessors were made: those up to the last record that the journal had at the start. */
  judge(lastRecord: number): void {
    this.drafts.judge(lastRecord);
    const numbers = this.#numbers;
    for (let row = CHANGES_START; row < HANDLES_START; row += CHANGE) {
      const unique = numbers[row + UNIQUE] as number;
      if (unique === 0) continue;
      if ((numbers[row + RECORD] as number) > lastRecord) numbers[row + UNIQUE] = 0;
      else this.#made.set(unique, numbers[row + MADE] as Inode);
    }
  }

  /** For a repeated request: the inode of its change if a predecessor has made it; null if it must be carried out. */
  madeBy({ unique }: ServedRequest): Inode | null {
    return this.#made.get(unique) ?? null;
  }

  /** Whether predecessors died of the request. */
  isPoison({ unique }: ServedRequest): boolean {
    return this.#numbers[SUSPECT] === unique && (this.#numbers[SUSPECT_DEATHS] as number) >= POISON_DEATHS;
  }

  // The handles

  /** For a repeated request: the handle that it opened, and that the kernel perhaps never got. Returned once. */
  undelivered({ unique }: ServedRequest): { readonly handle: HandleId; readonly ino: Inode } | null {
    const handle = this.#openedBy.get(unique);
    const row = handle === undefined ? undefined : this.#rows.get(handle);
    if (handle === undefined || row === undefined) return null;
    this.#openedBy.delete(unique);
    return { handle, ino: this.#numbers[row + INODE] as Inode };
  }

  *inherited(): Generator<InheritedHandle> {
    const numbers = this.#numbers;
    for (const [handle, row] of this.#rows)
      yield {
        handle,
        ino: numbers[row + INODE] as Inode,
        kind: numbers[row + KIND] === KINDS.folder ? 'folder' : 'file',
        flags: numbers[row + FLAGS] as number,
        content: this.#contentOf(row),
        hasChanged: numbers[row + HAS_CHANGED] !== 0,
        isUnstored: numbers[row + IS_UNSTORED] !== 0,
        leftFrom: numbers[row + KIND] === KINDS.folder ? (numbers[row + CONTENT] as number) : 0,
      };
  }

  opened({ handle, ino, kind, flags, content, hasChanged, isUnstored }: OpenHandle): void {
    const row = this.#free.pop() ?? this.#nextRow;
    if (row >= HANDLES_LIMIT) return; // it does not outlive this process
    const numbers = this.#numbers;
    if (row === this.#nextRow) {
      this.#nextRow += HANDLE;
      numbers[HANDLES_END] = this.#nextRow;
    }
    const served = this.#served;
    this.#rows.set(handle, row);
    numbers[row + NUMBER] = handle;
    numbers[row + INODE] = ino;
    numbers[row + FLAGS] = flags;
    numbers[row + IS_UNSTORED] = isUnstored ? 1 : 0;
    numbers[row + HAS_CHANGED] = hasChanged ? 1 : 0;
    this.#setContent(row, content);
    if (kind === 'folder') numbers[row + CONTENT] = this.removals.nextOrder;
    numbers[row + REQUEST] = served === null ? 0 : served.unique;
    numbers[row + NODE_ID] = served?.opcode === Opcode.OPEN ? served.nodeId : ino;
    numbers[row + KIND] = KINDS[kind];
  }

  changed(handle: HandleId): void {
    const row = this.#rows.get(handle);
    if (row !== undefined) this.#numbers[row + HAS_CHANGED] = 1;
  }

  unstored(handle: HandleId, isUnstored: boolean): void {
    const row = this.#rows.get(handle);
    if (row !== undefined) this.#numbers[row + IS_UNSTORED] = isUnstored ? 1 : 0;
  }

  /** The node ids of the files of inherited handles, in the order of the handles. */
  nodeIds(): readonly { readonly nodeId: number; readonly ino: Inode }[] {
    return [...this.#rows]
      .sort(([one], [other]) => one - other)
      .map(([, row]) => ({
        nodeId: this.#numbers[row + NODE_ID] as number,
        ino: this.#numbers[row + INODE] as Inode,
      }));
  }

  reads(handle: HandleId, content: ContentId | 'older'): void {
    const row = this.#rows.get(handle);
    if (row !== undefined) this.#setContent(row, content);
  }

  rewound(handle: HandleId): void {
    const row = this.#rows.get(handle);
    if (row !== undefined) this.#numbers[row + CONTENT] = this.removals.nextOrder;
  }

  closed(handle: HandleId): void {
    const row = this.#rows.get(handle);
    if (row === undefined) return;
    this.#rows.delete(handle);
    this.#numbers[row + KIND] = 0;
    this.#free.push(row);
  }

  #takeOver(): void {
    const numbers = this.#numbers;
    this.#nextRow = Math.max(HANDLES_START, numbers[HANDLES_END] as number);
    for (let row = HANDLES_START; row < this.#nextRow; row += HANDLE) {
      if (numbers[row + KIND] === 0) {
        this.#free.push(row);
        continue;
      }
      const handle = numbers[row + NUMBER] as HandleId;
      this.#rows.set(handle, row);
      const unique = numbers[row + REQUEST] as number;
      if (unique !== 0) this.#openedBy.set(unique, handle);
    }
    this.#suspect();
  }

  /** Counts how often a process died while it served the same request. */
  #suspect(): void {
    const numbers = this.#numbers;
    const served = numbers[SERVED] as number;
    if (served === 0) return;
    numbers[SUSPECT_DEATHS] = served === numbers[SUSPECT] ? (numbers[SUSPECT_DEATHS] as number) + 1 : 1;
    numbers[SUSPECT] = served;
    this.end();
  }

  /** The content first: a row with a flag and the content of another one would lead to wrong bytes. */
  #setContent(row: number, content: ContentId | 'older' | null): void {
    this.#numbers[row + HAS_CONTENT] = content === 'older' ? CONTENTS.older : CONTENTS.none;
    if (content === null || content === 'older') return;
    this.#numbers[row + CONTENT] = content;
    this.#numbers[row + HAS_CONTENT] = CONTENTS.known;
  }

  #contentOf(row: number): ContentId | 'older' | null {
    const has = this.#numbers[row + HAS_CONTENT];
    if (has === CONTENTS.older) return 'older';
    return has === CONTENTS.none ? null : (this.#numbers[row + CONTENT] as ContentId);
  }
}
