import { writeSync } from 'node:fs';
import { isatty } from 'node:tty';
import type { Clock } from '../base/clock.ts';
import { openLog } from '../base/log-file.ts';
import type { MountEvent } from '../control/event-model.ts';
import { eventLine } from './mount-event.ts';

/** Limit of the unread output; further lines are dropped. */
const UNREAD_BYTES_MAX = 256 * 1024;
const TRY_AGAIN_MS = 250;

/**
 * Prints events on standard output, a line each, and never waits for the reader. Node writes to a terminal with blocking calls:
 * one that was stopped (Ctrl-S), or whose line hangs, would hold the thread that pushes, answers `cfs status`, and ends the mount.
 */
export class EventPrinter {
  readonly #clock: Pick<Clock, 'after'>;
  readonly #terminal: number | null;
  #unread: Uint8Array = new Uint8Array();
  #isWaiting = false;

  /** @param terminal a descriptor that says EAGAIN; null: standard output is none, and Node does not wait for it */
  constructor(clock: Pick<Clock, 'after'>, terminal: number | null = openTerminal()) {
    this.#clock = clock;
    this.#terminal = terminal;
  }

  print(event: MountEvent): void {
    const line = Buffer.from(`${eventLine(event)}\n`);
    const unreadBytes = this.#terminal === null ? process.stdout.writableLength : this.#unread.length;
    if (unreadBytes + line.length > UNREAD_BYTES_MAX) return;
    if (this.#terminal === null) {
      process.stdout.write(line);
      return;
    }
    this.#unread = Buffer.concat([this.#unread, line]);
    if (!this.#isWaiting) this.#writeTo(this.#terminal);
  }

  #writeTo(terminal: number): void {
    this.#isWaiting = false;
    try {
      while (this.#unread.length > 0) this.#unread = this.#unread.subarray(writeSync(terminal, this.#unread));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EAGAIN') {
        this.#isWaiting = true;
        this.#clock.after(TRY_AGAIN_MS, () => this.#writeTo(terminal));
      } else this.#unread = new Uint8Array(); // the reader is gone
    }
  }
}

/**
 * Opens the terminal again. The inherited descriptor is shared with a shell, which expects blocking writes. null if standard output is no
 * terminal, or another user's.
 */
function openTerminal(): number | null {
  if (!isatty(1)) return null;
  try {
    return openLog('/proc/self/fd/1');
  } catch {
    return null;
  }
}
