import type { Clock } from '../base/clock.ts';
import type { Extent, Inode } from '../base/vocabulary.ts';
import type { Invalidator } from './binding.ts';
import { DroppedPages } from './dropped-pages.ts';
import type { AddonConnection } from './kernel-addon.ts';
import type { NodeIds, OlderAttributes } from './node-ids.ts';
import type { InheritedNotice, Notice, NoticeRows } from './notice-rows.ts';
import * as P from './protocol.ts';
import type { Wire } from './wire.ts';

/**
 * Notifications to the kernel, by these rules:
 *
 * - Threads of the addon write them, never the thread that replies. During that write the kernel waits for locks that a pending request
 *   may hold (fuse_reverse_inval_entry: the folder's; invalidate_inode_pages2_range: the pages').
 * - A notification about an inode with pending requests would surely block. It is queued here and sent after the last of their replies, so
 *   that those threads are free for the others.
 * - No notification is dropped. When too many wait, each name remains once, and several ranges of one file become the whole file.
 * - A name is revalidated, not dropped, where the kernel can (FUSE_EXPIRE_ONLY, Linux 6.2). Dropping the name of a folder (d_invalidate,
 *   fs/dcache.c) takes its path from the processes in it: getcwd(2) fails with ENOENT until a lookup finds the folder again. So does
 *   FUSE_NOTIFY_INC_EPOCH (Linux 6.16), for all folders. Older kernels therefore get notifications about names that have changed, and no others.
 */

/** The longest queue in the addon. */
const QUEUE_MAX = 4096;
/** Notifications queued here, for busy inodes or because the addon's queue is full, before those that repeat others are dropped. */
const HELD_MAX = 20_000;
/** How long the reply to a WRITE waits. The kernel may hold one of the pages if it has dropped it for lack of memory. */
const ONCE_MORE_MS_MAX = 1_000;
/** In the control area of the region, behind the message (linux.ts). */
const CELLS_START = 3072;
const CELLS_END = 4096;
/** Delay before notifications that found the addon's queue full are sent again. */
const RETRY_MS = 10;

/** A notice, and the place of its row in the keeper's memory (0: none). */
interface Noted extends InheritedNotice {
  /** For pages that were dropped before (`DroppedPages`). */
  readonly isOnceMore?: boolean;
}

export class KernelInvalidator implements Invalidator {
  readonly #connection: AddonConnection;
  readonly #wire: Wire;
  readonly #nodeIds: NodeIds;
  readonly #messageStart: number;
  readonly #clock: Clock;
  readonly #canExpire: () => boolean;
  readonly #rows: NoticeRows | null;
  readonly #pages: DroppedPages;
  /** How many unanswered requests each inode has. */
  readonly #busy = new Map<Inode, number>();
  /** Notices that wait for the inode's last reply. */
  readonly #held = new Map<Inode, Noted[]>();
  /** Notices that found the addon's queue full. */
  #overflow: Noted[] = [];
  #heldCount = 0;
  /** The number that may wait before those that repeat others are dropped. */
  #keptMax = HELD_MAX;
  #retry: (() => void) | null = null;
  #closed = false;

  constructor(deps: {
    connection: AddonConnection;
    wire: Wire;
    nodeIds: NodeIds;
    clock: Clock;
    messageStart: number;
    /** Whether the kernel knows FUSE_EXPIRE_ONLY. */
    canExpire: () => boolean;
    /** What a successor of this process sends; absent without a keeper. */
    rows?: NoticeRows | null;
  }) {
    this.#connection = deps.connection;
    this.#wire = deps.wire;
    this.#nodeIds = deps.nodeIds;
    this.#messageStart = deps.messageStart;
    this.#clock = deps.clock;
    this.#canExpire = deps.canExpire;
    this.#rows = deps.rows ?? null;
    this.#pages = new DroppedPages({ clock: deps.clock });
  }

  get heldCount(): number {
    return this.#heldCount;
  }

  inode(ino: Inode, offset: number, length: number): void {
    this.#note({ kind: 'inode', ino, child: 0 as Inode, name: '', offset, length });
  }

  entry(parent: Inode, name: string): void {
    this.#note({ kind: 'entry', ino: parent, child: 0 as Inode, name, offset: 0, length: 0 });
  }

  deleted(parent: Inode, child: Inode, name: string): void {
    this.#note({ kind: 'deleted', ino: parent, child, name, offset: 0, length: 0 });
  }

  replaced(parent: Inode, name: string, ino: Inode, older: OlderAttributes): boolean {
    const before = this.#nodeIds.currentOf(ino) as Inode;
    if (this.#closed || !this.#nodeIds.replace(ino, older)) return false;
    this.entry(parent, name);
    // Handles of the old file revalidate their size here from now on.
    this.#note({ kind: 'inode', ino, child: before, name: '', offset: -1, length: 0 });
    return true;
  }

  /** A program gets a descriptor. @param drops whether the reply to its open(2) drops the pages */
  opened(ino: Inode, isWriter: boolean, drops: boolean): void {
    if (drops) this.#pages.dropped(ino);
    if (isWriter) this.#pages.openedToWrite(ino);
  }

  /** RELEASE of a descriptor that could write. */
  closedByWriter(ino: Inode): void {
    this.#pages.closedByWriter(ino);
  }

  /** Whether `read` and `written` must be called. */
  get hasDropped(): boolean {
    return !this.#pages.isEmpty;
  }

  /** A READ arrived. */
  read(ino: Inode, offset: number, length: number): void {
    this.#pages.read(ino, offset, length);
  }

  /**
   * A WRITE was carried out.
   *
   * @returns null: it may be replied to. Otherwise only when the promise resolves: until then the kernel may have stale pages of it
   */
  written(ino: Inode, offset: number, length: number): Promise<void> | null {
    const stale = this.#closed ? [] : this.#pages.written(ino, offset, length);
    return stale.length === 0 ? null : this.#dropOnceMore(ino, stale);
  }

  /** At once, although the WRITE has no reply: the kernel does not hold pages that were read meanwhile. */
  async #dropOnceMore(ino: Inode, stale: readonly Extent[]): Promise<void> {
    const rows: number[] = [];
    for (const { start, end } of stale) {
      const notice: Notice = { kind: 'inode', ino, child: 0 as Inode, name: '', offset: start, length: end - start };
      const row = this.#rows?.note(notice) || this.#takeCell();
      if (!this.#send({ ...notice, row, isOnceMore: true })) this.#submit({ ...notice, row, isOnceMore: true });
      else if (row !== 0) rows.push(row);
    }
    const endMs = this.#clock.elapsedMs() + ONCE_MORE_MS_MAX;
    const isWritten = (row: number): boolean => this.#wire.u64(row) === 0;
    while (!this.#closed && !rows.every(isWritten) && this.#clock.elapsedMs() < endMs) await this.#clock.sleep(1);
  }

  /** A number of the region that the addon sets to 0 when the message is written. 0: none is free. */
  #takeCell(): number {
    for (let cell = CELLS_START; cell < CELLS_END; cell += 8) {
      if (this.#wire.u64(cell) !== 0) continue;
      this.#wire.setU64(cell, 1);
      return cell;
    }
    return 0;
  }

  folderRemoved(folder: Inode): void {
    this.#nodeIds.folderRemoved(folder);
  }

  /** Sends what an earlier process did not send. */
  inherit(notices: readonly InheritedNotice[]): void {
    for (const notice of notices) this.#submit(notice);
  }

  /** A request about `ino` has no reply yet. */
  began(ino: Inode): void {
    this.#busy.set(ino, (this.#busy.get(ino) ?? 0) + 1);
  }

  /** Its reply has been written. */
  ended(ino: Inode): void {
    const left = (this.#busy.get(ino) ?? 1) - 1;
    if (left > 0) {
      this.#busy.set(ino, left);
      return;
    }
    this.#busy.delete(ino);
    const held = this.#held.get(ino);
    if (held !== undefined) {
      this.#held.delete(ino);
      this.#heldCount -= held.length;
      for (const notice of held) this.#submit(notice);
    }
  }

  /** Unmounted: no caches are left to invalidate. */
  close(): void {
    this.#closed = true;
    this.#retry?.();
    this.#retry = null;
    this.#held.clear();
    this.#overflow = [];
    this.#heldCount = 0;
  }

  /** Resends the notifications that found the addon's queue full. */
  #flush(): void {
    this.#retry = null;
    const overflow = this.#overflow;
    this.#overflow = [];
    this.#heldCount -= overflow.length;
    for (const notice of overflow) this.#submit(notice);
  }

  #note(notice: Notice): void {
    if (!this.#closed) this.#submit({ ...notice, row: this.#rows?.note(notice) ?? 0 });
  }

  #submit(notice: Noted): void {
    if (this.#closed) return;
    const busy = this.#busy.has(notice.ino) ? notice.ino : this.#busy.has(notice.child) ? notice.child : null;
    if (busy !== null) {
      const held = this.#held.get(busy);
      if (held === undefined) this.#held.set(busy, [notice]);
      else held.push(notice);
      this.#keep();
    } else if (this.#overflow.length > 0 || !this.#send(notice)) {
      this.#overflow.push(notice);
      this.#retry ??= this.#clock.after(RETRY_MS, () => this.#flush());
      this.#keep();
    }
  }

  #keep(): void {
    this.#heldCount++;
    if (this.#heldCount < this.#keptMax) return;
    const waiting = [...this.#overflow, ...[...this.#held.values()].flat()];
    this.#overflow = [];
    this.#held.clear();
    this.#heldCount = 0;
    this.#keptMax = Number.POSITIVE_INFINITY;
    for (const notice of this.#onceEach(waiting)) this.#submit(notice);
    this.#keptMax = Math.max(HELD_MAX, this.#heldCount * 2);
  }

  /** Each name once, with its latest notification; each inode once, over all of its ranges. */
  #onceEach(notices: readonly Noted[]): Iterable<Noted> {
    const byKey = new Map<string, Noted>();
    for (const notice of notices) {
      const key = notice.kind === 'inode' ? `i${notice.ino}/${notice.child}` : `n${notice.ino}/${notice.name}`;
      const before = byKey.get(key);
      const isSameRange = before?.offset === notice.offset && before.length === notice.length;
      if (before === undefined || isSameRange) byKey.set(key, notice);
      else {
        const whole = { ...notice, offset: 0, length: 0 };
        byKey.set(key, { ...whole, row: this.#rows?.note(whole) ?? 0 });
        this.#rows?.drop(notice.row);
      }
      if (before !== undefined) this.#rows?.drop(before.row);
    }
    return byKey.values();
  }

  #send(notice: Noted): boolean {
    const wire = this.#wire;
    const at = this.#messageStart;
    const body = at + P.OUT_HEADER_BYTES;
    let length = P.OUT_HEADER_BYTES;
    let code: number;
    if (notice.kind === 'inode') {
      if (notice.offset >= 0 && notice.isOnceMore !== true) this.#pages.dropped(notice.ino);
      code = P.Notify.INVAL_INODE;
      wire.setU64(body, notice.child !== 0 ? notice.child : this.#nodeIds.currentOf(notice.ino));
      wire.setU64(body + 8, notice.offset);
      wire.setU64(body + 16, notice.length);
      length += 24;
    } else {
      // The kernel cannot have cached a name that is too long.
      const nameAt = body + (notice.kind === 'entry' ? 16 : 24);
      const nameBytes = Buffer.byteLength(notice.name);
      if (nameBytes > P.NAME_BYTES_MAX) return true; // it has no row
      wire.setU64(body, this.#nodeIds.currentOf(notice.ino));
      if (notice.kind === 'entry') {
        code = P.Notify.INVAL_ENTRY;
        wire.setU32(body + 8, nameBytes);
        wire.setU32(body + 12, this.#canExpire() ? P.INVAL_ENTRY_EXPIRE_ONLY : 0);
      } else {
        code = P.Notify.DELETE;
        wire.setU64(body + 8, this.#nodeIds.currentOf(notice.child));
        wire.setU32(body + 16, nameBytes);
        wire.setU32(body + 20, 0);
      }
      wire.bytes.write(notice.name, nameAt);
      wire.bytes[nameAt + nameBytes] = 0;
      length = nameAt + nameBytes + 1 - at;
    }
    wire.header(at, length, code, 0, 0);
    return this.#connection.notify(at, length, QUEUE_MAX, notice.row) !== 0;
  }
}
