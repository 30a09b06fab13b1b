import type { Clock } from '../base/clock.ts';
import type { Inode } from '../base/vocabulary.ts';
import type { Invalidator } from './binding.ts';
import type { AddonConnection } from './kernel-addon.ts';
import type { NodeIds, OlderAttributes } from './node-ids.ts';
import * as P from './protocol.ts';
import type { Wire } from './wire.ts';

/**
 * Notifications to the kernel, by these rules:
 *
 * - Threads of the addon write them, never the thread that replies. During that write the kernel waits for locks that a pending request
 *   may hold (fuse_reverse_inval_entry: the folder's; invalidate_inode_pages2_range: the pages').
 * - A notification about an inode with pending requests would surely block. It is queued here and sent after the last of their replies, so
 *   that those threads are free for the others.
 * - No notification is dropped. When too many wait, broader ones replace them, and that is counted:
 *   · all names by one message that makes the kernel revalidate every cached one (FUSE_NOTIFY_INC_EPOCH, Linux 6.16);
 *   · without that message, the names in a folder by the folder's own, which includes everything below it (d_invalidate, fs/dcache.c) and
 *     takes the lock of the folder *above*. In the root, which has no name, each name is queued once;
 *   · several ranges of one file by the whole file.
 */

/** The longest queue in the addon. */
const QUEUE_MAX = 4096;
/** Notifications queued here, for busy inodes or because the addon's queue is full, before an epoch replaces them. */
const HELD_MAX = 20_000;
/** Without epochs: a folder with more waiting names than this is invalidated as a whole. */
const NAMES_OF_FOLDER_MAX = 64;
/** Delay before notifications that found the addon's queue full are sent again. */
const RETRY_MS = 10;

interface Notice {
  readonly kind: 'inode' | 'entry' | 'deleted';
  readonly ino: Inode;
  readonly child: Inode;
  readonly name: string;
  readonly offset: number;
  readonly length: number;
}

type PlaceOf = (folder: Inode) => { readonly parent: Inode; readonly name: string } | null;

export class KernelInvalidator implements Invalidator {
  readonly #connection: AddonConnection;
  readonly #wire: Wire;
  readonly #nodeIds: NodeIds;
  readonly #messageStart: number;
  readonly #clock: Clock;
  readonly #hasEpoch: () => boolean;
  readonly #placeOf: PlaceOf;
  /** How many unanswered requests each inode has. */
  readonly #busy = new Map<Inode, number>();
  /** Notices that wait for the inode's last reply. */
  readonly #held = new Map<Inode, Notice[]>();
  /** Notices that found the addon's queue full. */
  #overflow: Notice[] = [];
  #heldCount = 0;
  #epochsSent = 0;
  #foldersSent = 0;
  /** The number that may wait before broader notifications replace them. */
  #keptMax = HELD_MAX;
  #retry: (() => void) | null = null;
  #closed = false;

  constructor(deps: {
    connection: AddonConnection;
    wire: Wire;
    nodeIds: NodeIds;
    clock: Clock;
    messageStart: number;
    /** Whether the kernel knows FUSE_NOTIFY_INC_EPOCH. */
    hasEpoch: () => boolean;
    placeOf: PlaceOf;
  }) {
    this.#connection = deps.connection;
    this.#wire = deps.wire;
    this.#nodeIds = deps.nodeIds;
    this.#messageStart = deps.messageStart;
    this.#clock = deps.clock;
    this.#hasEpoch = deps.hasEpoch;
    this.#placeOf = deps.placeOf;
  }

  /** How often the queue overflowed and all names were invalidated. */
  get epochsSent(): number {
    return this.#epochsSent;
  }

  /** How often too many names of one folder waited, and the folder was invalidated instead. */
  get foldersSent(): number {
    return this.#foldersSent;
  }

  get heldCount(): number {
    return this.#heldCount;
  }

  inode(ino: Inode, offset: number, length: number): void {
    this.#submit({ kind: 'inode', ino, child: 0 as Inode, name: '', offset, length });
  }

  entry(parent: Inode, name: string): void {
    this.#submit({ kind: 'entry', ino: parent, child: 0 as Inode, name, offset: 0, length: 0 });
  }

  deleted(parent: Inode, child: Inode, name: string): void {
    this.#submit({ kind: 'deleted', ino: parent, child, name, offset: 0, length: 0 });
  }

  replaced(parent: Inode, name: string, ino: Inode, older: OlderAttributes): boolean {
    const before = this.#nodeIds.currentOf(ino) as Inode;
    if (this.#closed || !this.#nodeIds.replace(ino, older)) return false;
    this.entry(parent, name);
    // Handles of the old file revalidate their size here from now on.
    this.#submit({ kind: 'inode', ino, child: before, name: '', offset: -1, length: 0 });
    return true;
  }

  folderRemoved(folder: Inode): void {
    this.#nodeIds.folderRemoved(folder);
  }

  allNames(): boolean {
    return this.#hasEpoch() && this.#sendEpoch();
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

  #submit(notice: Notice): void {
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
    let kept = [...this.#overflow, ...[...this.#held.values()].flat()];
    this.#overflow = [];
    this.#held.clear();
    this.#heldCount = 0;
    // The epoch makes the kernel look up names anew; notifications about bytes and attributes remain.
    if (this.#hasEpoch() && this.#sendEpoch()) {
      this.#epochsSent++;
      kept = kept.filter(({ kind }) => kind === 'inode');
    } else kept = this.#byFolders(kept);
    this.#keptMax = Number.POSITIVE_INFINITY;
    for (const notice of onceEach(kept)) this.#submit(notice);
    this.#keptMax = Math.max(HELD_MAX, this.#heldCount * 2);
  }

  /** Replaces the many waiting names of a folder by the folder itself. */
  #byFolders(notices: readonly Notice[]): Notice[] {
    const names = new Map<Inode, number>();
    for (const { kind, ino } of notices) if (kind !== 'inode') names.set(ino, (names.get(ino) ?? 0) + 1);
    const whole = new Map<Inode, Notice>();
    for (const [ino, count] of names) {
      const place = count > NAMES_OF_FOLDER_MAX ? this.#placeOf(ino) : null;
      if (place === null) continue;
      whole.set(ino, { kind: 'entry', ino: place.parent, child: 0 as Inode, name: place.name, offset: 0, length: 0 });
      this.#foldersSent++;
    }
    return [...notices.filter(({ kind, ino }) => kind === 'inode' || !whole.has(ino)), ...whole.values()];
  }

  #sendEpoch(): boolean {
    this.#wire.header(this.#messageStart, P.OUT_HEADER_BYTES, P.Notify.INC_EPOCH, 0, 0);
    return this.#connection.notify(this.#messageStart, P.OUT_HEADER_BYTES, QUEUE_MAX * 2) !== 0;
  }

  #send(notice: Notice): boolean {
    const wire = this.#wire;
    const at = this.#messageStart;
    const body = at + P.OUT_HEADER_BYTES;
    let length = P.OUT_HEADER_BYTES;
    let code: number;
    if (notice.kind === 'inode') {
      code = P.Notify.INVAL_INODE;
      wire.setU64(body, notice.child !== 0 ? notice.child : this.#nodeIds.currentOf(notice.ino));
      wire.setU64(body + 8, notice.offset);
      wire.setU64(body + 16, notice.length);
      length += 24;
    } else {
      // The kernel cannot have cached a name that is too long.
      const nameAt = body + (notice.kind === 'entry' ? 16 : 24);
      const nameBytes = Buffer.byteLength(notice.name);
      if (nameBytes > P.NAME_BYTES_MAX) return true;
      wire.setU64(body, this.#nodeIds.currentOf(notice.ino));
      if (notice.kind === 'entry') {
        code = P.Notify.INVAL_ENTRY;
        wire.setU32(body + 8, nameBytes);
        wire.setU32(body + 12, 0);
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
    return this.#connection.notify(at, length, QUEUE_MAX) !== 0;
  }
}

/** Each name once, with its latest notification; each inode once, over all of its ranges. */
function onceEach(notices: readonly Notice[]): Iterable<Notice> {
  const byKey = new Map<string, Notice>();
  for (const notice of notices) {
    const key = notice.kind === 'inode' ? `i${notice.ino}/${notice.child}` : `n${notice.ino}/${notice.name}`;
    const before = byKey.get(key);
    const sameRange = before?.offset === notice.offset && before.length === notice.length;
    byKey.set(key, before === undefined || sameRange ? notice : { ...notice, offset: 0, length: 0 });
  }
  return byKey.values();
}
