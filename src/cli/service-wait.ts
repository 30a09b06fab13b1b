import type { Clock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import { formatDuration } from '../config/units.ts';
import { exitCode } from '../mount/exit-codes.ts';
import { visible } from '../mount/mount-event.ts';

/** How long a command waits before it prints a notice. */
const SILENT_MS_MAX = 2_000;

/**
 * The wait of one command for the service: after two seconds without progress it prints a notice, and `--timeout` ends it.
 * Every command that contacts the service, directly or through a mount, uses it.
 */
export class ServiceWait {
  readonly #clock: Pick<Clock, 'after'>;
  readonly #warn: (text: string) => void;
  readonly #timeoutMs: number | null;
  readonly #late = new AbortController();
  /** The current wait, for messages. */
  #waitsFor: string | null = null;
  #cancelNotice = (): void => {};
  #cancelEnd = (): void => {};

  /** @param timeoutMs from now on, over everything that the command waits for; null: as long as each request may take */
  constructor(
    deps: { readonly clock: Pick<Clock, 'after'>; readonly warn: (text: string) => void },
    timeoutMs: number | null,
  ) {
    this.#clock = deps.clock;
    this.#warn = deps.warn;
    this.#timeoutMs = timeoutMs;
    this.#armEnd();
  }

  /**
   * @param origin of the service
   * @param work gets a signal that aborts when the time is over; work that ignores it is abandoned then
   * @throws UsageError (unreachable) when the time is over
   */
  async for<T>(origin: string, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { signal } = this.#late;
    signal.throwIfAborted();
    this.#waitsFor = `the service at ${visible(origin)}`;
    this.#armNotice();
    let stop = (): void => {};
    const late = new Promise<never>((_resolve, reject) => {
      stop = () => reject(signal.reason as Error);
      signal.addEventListener('abort', stop, { once: true });
    });
    const done = work(signal);
    try {
      return await Promise.race([done, late]);
    } finally {
      done.catch(() => {}); // a result after the timeout is discarded
      signal.removeEventListener('abort', stop);
      this.#cancelNotice();
      this.#waitsFor = null;
    }
  }

  /** Progress: restarts the silence timer. */
  moved(): void {
    if (this.#waitsFor !== null) this.#armNotice();
  }

  /** Stops both timers during a prompt. */
  async paused<T>(ask: () => Promise<T>): Promise<T> {
    this.#cancelNotice();
    this.#cancelEnd();
    try {
      return await ask();
    } finally {
      this.#armEnd();
      this.moved();
    }
  }

  #armNotice(): void {
    this.#cancelNotice();
    const end = this.#timeoutMs === null ? 'Ctrl-C stops waiting, --timeout limits the wait' : 'Ctrl-C stops waiting';
    this.#cancelNotice = this.#clock.after(SILENT_MS_MAX, () =>
      this.#warn(`waiting for ${this.#waitsFor} to answer; ${end}\n`),
    );
  }

  #armEnd(): void {
    const timeoutMs = this.#timeoutMs;
    if (timeoutMs === null) return;
    this.#cancelEnd = this.#clock.after(timeoutMs, () => {
      const sentence = `${this.#waitsFor ?? 'the service'} did not answer within ${formatDuration(timeoutMs)} (--timeout)`;
      this.#late.abort(new UsageError(sentence, exitCode('unreachable')));
    });
  }
}
