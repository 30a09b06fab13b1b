import type { Clock } from '../base/clock.ts';

/** The values of `read_awake` (native-deps/fuse-kernel/connection.c), with the same reasons (ADR 15). */
const AWAKE_MS = 0.05;
const TURN_MS = 0.5;
const TRUST_MAX = 16;
const TRUST_LOST = 4;
/** Memory for several receptions: records share it. */
const POOL_BYTES = 128 * 1024;
const RECEIVED_BYTES_MIN = 16 * 1024;

/** Waits awake for the next call of a busy client: to wake a sleeping thread takes longer than most replies. It pays only while it succeeds. */
export class BusyWait {
  readonly #clock: Pick<Clock, 'elapsedMs'>;
  readonly #receive: (target: Buffer, waitNs: number) => number;
  #trust = 0;
  #repliedMs = Number.NEGATIVE_INFINITY;
  #pool = Buffer.alloc(0);

  /** @param deps.receive waits for bytes. @returns their number; 0: none came in time */
  constructor(deps: {
    readonly clock: Pick<Clock, 'elapsedMs'>;
    readonly receive: (target: Buffer, waitNs: number) => number;
  }) {
    this.#clock = deps.clock;
    this.#receive = deps.receive;
  }

  /** Calls arrived by the event loop: answers them, and those that follow soon. @param canGoOn whether a further call may be received */
  answer(chunk: Buffer, reply: (chunk: Buffer) => void, canGoOn: () => boolean): void {
    const startedMs = this.#clock.elapsedMs();
    if (this.#trust <= 0) this.#trust = startedMs - this.#repliedMs < AWAKE_MS ? this.#trust + 1 : 0;
    reply(chunk);
    this.#repliedMs = this.#clock.elapsedMs();
    while (this.#trust > 0 && canGoOn() && this.#repliedMs - startedMs < TURN_MS) {
      const target = this.#memory();
      const bytes = this.#receive(target, AWAKE_MS * 1e6);
      if (bytes === 0) {
        this.#trust -= TRUST_LOST;
        return;
      }
      if (this.#trust < TRUST_MAX) this.#trust++;
      this.#pool = this.#pool.subarray(bytes);
      reply(target.subarray(0, bytes));
      this.#repliedMs = this.#clock.elapsedMs();
    }
  }

  #memory(): Buffer {
    if (this.#pool.byteLength < RECEIVED_BYTES_MIN) this.#pool = Buffer.allocUnsafeSlow(POOL_BYTES);
    return this.#pool;
  }
}
