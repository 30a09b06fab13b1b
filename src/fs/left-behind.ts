import type { Clock } from '../base/clock.ts';
import type { OpenFile } from '../content/open-file.ts';
import type { FileBytes } from '../store/tables.ts';

/** tail(1) looks every second. */
const LOOKS_APART_MS = 400;

/**
 * What programs have open of a file whose bytes somebody else replaced. They read on what they began with, to its end. But who has been
 * there, and then looks at the descriptor again and again without reading, waits for more (`tail -f`), and is shown the newest, once all who
 * have the same open have been there.
 */
export class LeftBehind {
  readonly file: OpenFile;
  readonly #users: () => number;
  readonly #newest: () => FileBytes | null;
  readonly #clock: Pick<Clock, 'elapsedMs'>;
  /** When somebody looked last, and how often had been read then; null since somebody was about to read. */
  #look: { readonly atMs: number; readonly reads: number } | null = null;

  constructor(deps: {
    file: OpenFile;
    /** How many have it open. */
    users: () => number;
    newest: () => FileBytes | null;
    clock: Pick<Clock, 'elapsedMs'>;
  }) {
    this.file = deps.file;
    this.#users = deps.users;
    this.#newest = deps.newest;
    this.#clock = deps.clock;
  }

  /** fstat(2): only a program that asks for it comes here so. */
  looked(): void {
    const atMs = this.#clock.elapsedMs();
    const { count: reads } = this.file.progress;
    if (this.#look === null || this.#look.reads !== reads) {
      this.#look = { atMs, reads };
      return;
    }
    if (atMs - this.#look.atMs < LOOKS_APART_MS || !this.file.progress.isOverFor(this.#users())) return;
    const newest = this.#newest();
    if (newest !== null && this.file.kept !== null && !isSame(newest, this.file.kept)) this.file.follow(newest);
  }

  /** The kernel asks on behalf of a read(2). */
  reading(): void {
    this.#look = null;
  }
}

function isSame(one: FileBytes, other: FileBytes): boolean {
  if (one.content !== null && other.content !== null) return one.content === other.content;
  const { mtime: a } = one;
  const { mtime: b } = other;
  return one.sizeBytes === other.sizeBytes && a.sec === b.sec && a.nsec === b.nsec;
}
