import type { Clock } from '../base/clock.ts';
import type { OpenFile } from '../content/open-file.ts';
import type { FileBytes } from '../store/tables.ts';

/** tail(1) polls every second. */
const POLLS_APART_MS = 400;

/**
 * The readers of a file whose bytes were replaced on the service. They read the old version to its end. A program at the end that polls
 * fstat(2) without reading waits for more (`tail -f`): it is switched to the newest version once all readers have reached the end.
 */
export class StaleReaders {
  readonly file: OpenFile;
  readonly #users: () => number;
  readonly #newest: () => FileBytes | null;
  readonly #clock: Pick<Clock, 'elapsedMs'>;
  /** Time and read count of the last poll; null since a read began. */
  #poll: { readonly atMs: number; readonly reads: number } | null = null;

  constructor(deps: {
    file: OpenFile;
    /** The number of handles that have it open. */
    users: () => number;
    newest: () => FileBytes | null;
    clock: Pick<Clock, 'elapsedMs'>;
  }) {
    this.file = deps.file;
    this.#users = deps.users;
    this.#newest = deps.newest;
    this.#clock = deps.clock;
  }

  /** fstat(2): only a request of a program arrives here. */
  polled(): void {
    const atMs = this.#clock.elapsedMs();
    const { count: reads } = this.file.progress;
    if (this.#poll === null || this.#poll.reads !== reads) {
      this.#poll = { atMs, reads };
      return;
    }
    if (atMs - this.#poll.atMs < POLLS_APART_MS || !this.file.progress.isOverFor(this.#users())) return;
    const newest = this.#newest();
    if (newest !== null && this.file.kept !== null && !isSame(newest, this.file.kept)) this.file.follow(newest);
  }

  /** The kernel asks for attributes as part of a read(2). */
  reading(): void {
    this.#poll = null;
  }
}

function isSame(one: FileBytes, other: FileBytes): boolean {
  if (one.content !== null && other.content !== null) return one.content === other.content;
  const { mtime: a } = one;
  const { mtime: b } = other;
  return one.sizeBytes === other.sizeBytes && a.sec === b.sec && a.nsec === b.nsec;
}
