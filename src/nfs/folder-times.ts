import type { Clock } from '../base/clock.ts';
import { type Inode, laterOf, type Timespec, timespecOfMs } from '../base/vocabulary.ts';
import type { Attributes } from '../kernel/binding.ts';

const FOLDERS_MAX = 100_000;

interface Shown {
  time: Timespec;
  /** The folder's own ctime when it was last read; null: not read since the change. */
  own: Timespec | null;
}

/**
 * The times of folders as a client gets them. A client trusts its cached entries while the folder's times stay the same: ctime on Linux, mtime
 * on macOS. Entries of the service may appear without a change of these times, or within the millisecond of another change. A folder therefore
 * shows the moment of its last such change, until its own ctime is later. No moment is shown twice.
 */
export class FolderTimes {
  readonly #clock: Pick<Clock, 'nowMs'>;
  readonly #changesMtime: boolean;
  readonly #shown = new Map<Inode, Shown>();
  /** The least ctime of all other folders; null: their own. */
  #least: Timespec | null = null;
  #last: Timespec = { sec: 0, nsec: 0 };

  /** @param deps.changesMtime the client looks at mtime; `isContinued`: an earlier process may have shown any moment before now */
  constructor(deps: {
    readonly clock: Pick<Clock, 'nowMs'>;
    readonly changesMtime: boolean;
    readonly isContinued: boolean;
  }) {
    this.#clock = deps.clock;
    this.#changesMtime = deps.changesMtime;
    if (deps.isContinued) this.#least = this.#next();
  }

  /** Entries of the folder appeared or disappeared without a request of the client. */
  entriesChanged(folder: Inode): void {
    this.#shown.delete(folder);
    if (this.#shown.size >= FOLDERS_MAX) {
      this.#shown.clear();
      this.#least = this.#next();
    }
    this.#shown.set(folder, { time: this.#next(), own: null });
  }

  /** @param attributes of any node */
  asShown(attributes: Attributes): Attributes {
    if (attributes.kind !== 'folder' || (this.#shown.size === 0 && this.#least === null)) return attributes;
    const time = this.#timeOf(attributes);
    if (time === null) return attributes;
    return { ...attributes, ctime: time, ...(this.#changesMtime && { mtime: time }) };
  }

  /** Null: the folder's own. */
  #timeOf({ ino, ctime }: Attributes): Timespec | null {
    const shown = this.#shown.get(ino);
    if (shown === undefined) return this.#least !== null && isLater(this.#least, ctime) ? this.#least : null;
    if (!isLater(shown.time, ctime)) {
      this.#shown.delete(ino);
      return null;
    }
    if (shown.own !== null && !isSame(shown.own, ctime)) shown.time = this.#next();
    shown.own = ctime;
    return shown.time;
  }

  /** Between two milliseconds, because the own times of folders are whole ones: a change in the millisecond of the folder's own one is seen. */
  #next(): Timespec {
    const ms = timespecOfMs(Math.floor(this.#clock.nowMs()));
    const now = { sec: ms.sec, nsec: ms.nsec + 1 };
    const { sec, nsec } = this.#last;
    const after = nsec < 999_999_999 ? { sec, nsec: nsec + 1 } : { sec: sec + 1, nsec: 0 };
    this.#last = laterOf(now, after);
    return this.#last;
  }
}

function isSame(one: Timespec, other: Timespec): boolean {
  return one.sec === other.sec && one.nsec === other.nsec;
}

function isLater(one: Timespec, other: Timespec): boolean {
  return one.sec > other.sec || (one.sec === other.sec && one.nsec > other.nsec);
}
