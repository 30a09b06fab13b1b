import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { ContentId, Inode } from '../base/vocabulary.ts';
import type { OpenFile } from '../content/open-file.ts';
import type { Writing } from '../content/writing.ts';
import { isContentDirty } from '../store/node-table.ts';
import type { StoreReader } from '../store/tables.ts';
import type { OpenFiles } from './open-files.ts';

const LOOK_EVERY_MS = 5_000;
const IDLE_MS = 30_000;

/**
 * Pushes files that programs keep open (logs, databases): after 30 s without a write, after an fsync(2), and for busy files every
 * `openPushMs`; never more often than that.
 *
 * An incomplete file is not a version. A file qualifies if it has a complete version and was not emptied since, was fsynced, or was written
 * for longer than `openPushMs`. A stalled copy does not qualify.
 */
export class OpenPush {
  readonly #deps: OpenPushDeps;
  /** The draft that may be pushed while its file is open. Later writes go to another draft, which may not. */
  readonly #given = new Map<Inode, { readonly content: ContentId; readonly atMs: number }>();

  constructor(deps: OpenPushDeps) {
    this.#deps = deps;
  }

  start(until: AbortSignal): void {
    if (until.aborted) return;
    const cancel = this.#deps.clock.after(LOOK_EVERY_MS, () => {
      until.removeEventListener('abort', cancel);
      for (const file of this.#deps.files.files) {
        try {
          this.#look(file);
        } catch (err) {
          // A full disk or a damaged record: an exception from a timer would end the mount.
          this.#deps.log.warn({ ino: file.ino, err }, 'open file not pushed');
        }
      }
      for (const ino of this.#given.keys()) if (!this.#deps.files.isOpen(ino)) this.#given.delete(ino);
      this.start(until);
    });
    until.addEventListener('abort', cancel, { once: true });
  }

  /**
   * Whether the file must not be pushed now: a writer has unclosed changes. A handle that is open for writing without writes (an office
   * program, a database) does not hold the file back: its last closed state is complete.
   */
  isHeldBack(ino: Inode): boolean {
    const { files, store } = this.#deps;
    if (!files.isBeingChanged(ino)) return false;
    const given = this.#given.get(ino);
    return given === undefined || given.content !== store.get('node', ino)?.local?.content;
  }

  #look(file: OpenFile): void {
    const { files, store, clock, push } = this.#deps;
    const { ino, writing } = file;
    if (writing === null || !files.isBeingWritten(ino) || !this.#isDue(ino, writing)) return;
    file.flush();
    const node = store.get('node', ino);
    if (!node?.local?.content || !isContentDirty(node)) return;
    this.#given.set(ino, { content: node.local.content, atMs: clock.elapsedMs() });
    push(ino);
  }

  #isDue(ino: Inode, { sinceMs, lastMs, syncedMs, wasEmptied }: Writing): boolean {
    const { store, clock, openPushMs } = this.#deps;
    const nowMs = clock.elapsedMs();
    const givenMs = this.#given.get(ino)?.atMs ?? null;
    if (givenMs !== null && (lastMs <= givenMs || nowMs - givenMs < openPushMs)) return false;
    const node = store.get('node', ino);
    if (node === undefined || node.local === null || node.localOnly) return false;
    // A file that was emptied and not written since is the start of a rewrite, however long that takes.
    // An earlier push may be older than a rewrite that has begun since.
    const isLong = sinceMs !== null && nowMs - Math.max(givenMs ?? 0, sinceMs) >= openPushMs;
    const hasVersion = (node.remote?.sizeBytes ?? null) !== null && !wasEmptied;
    const isWhole = hasVersion || syncedMs !== null || isLong;
    return isWhole && (isLong || nowMs - lastMs >= IDLE_MS || (syncedMs ?? Number.NEGATIVE_INFINITY) >= lastMs);
  }
}

export interface OpenPushDeps {
  readonly files: OpenFiles;
  readonly store: StoreReader;
  readonly clock: Clock;
  readonly log: Logger;
  /** Called when an open file becomes eligible for upload. */
  readonly push: (ino: Inode) => void;
  readonly openPushMs: number;
}
