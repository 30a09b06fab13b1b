import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { MountedAt } from './mount-seam.ts';

/** Long, because each tick wakes the processor of an idle machine. */
const TICK_MS = 5_000;
/** After this the log reports a silent Worker. */
const SILENT_TICKS_NOTED = 3;
/**
 * A Worker that was silent for so many ticks has failed. The limit is far above hard work (a listing of a hundred thousand
 * entries, a stalled disk): a slow mount must not be removed.
 */
const SILENT_TICKS_MAX = 12;
/** Limit for the end of a failed Worker. After that it is stuck in native code, and process.exit() would wait for it. */
const LAST_BREATH_MS = 500;

/** The part of a Worker that shows its end. */
export interface MortalWorker {
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'exit', listener: (code: number) => void): unknown;
}

/**
 * Watches the thread that answers the kernel, from the main thread. When that thread has died or is silent, it abandons the connection, so that
 * programs that wait in the mount get an error immediately. Then `onDeath` ends the process.
 *
 * Silence is counted in ticks of the main thread, not in time. A stopped process (SIGSTOP, a suspended machine) or a busy main
 * thread misses answers too, which proves nothing.
 */
export class WorkerWatch {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #abandon: (mount: MountedAt) => void;
  readonly #onDeath: (error: Error, isStuck: boolean) => void;
  #mount: MountedAt | null = null;
  #silentTicks = 0;
  #over = false;
  #cancel: () => void = () => {};

  /**
   * @param deps.abandon ends the kernel connection of a mount whose thread has ended
   * @param deps.onDeath once, after `abandon`; `isStuck`: the thread still runs, only SIGKILL ends this process
   */
  constructor(deps: {
    worker: MortalWorker;
    clock: Clock;
    log: Logger;
    abandon: (mount: MountedAt) => void;
    onDeath: (error: Error, isStuck: boolean) => void;
  }) {
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#abandon = deps.abandon;
    this.#onDeath = deps.onDeath;
    deps.worker.on('error', (error) => this.#failed(error));
    deps.worker.on('exit', (code) => this.#dead(new Error(`the worker ended with ${code}`), false));
  }

  /** The mount exists: from now on silence counts. */
  mounted(mount: MountedAt): void {
    this.#mount = mount;
    this.#silentTicks = 0;
    if (!this.#over) this.#cancel = this.#clock.after(TICK_MS, () => this.#tick());
  }

  /** A message of the Worker arrived. */
  heard(): void {
    if (this.#silentTicks >= SILENT_TICKS_NOTED)
      this.#log.info({ silentTicks: this.#silentTicks }, 'the worker is back');
    this.#silentTicks = 0;
  }

  /** The Worker ends in order. */
  stop(): void {
    this.#over = true;
    this.#cancel();
  }

  #tick(): void {
    this.#silentTicks++;
    if (this.#silentTicks === SILENT_TICKS_NOTED)
      this.#log.warn({ silentTicks: this.#silentTicks }, 'the worker does not answer');
    if (this.#silentTicks >= SILENT_TICKS_MAX) {
      this.#dead(new Error(`the worker did not answer for ${(SILENT_TICKS_MAX * TICK_MS) / 1000} s`), true);
      return;
    }
    this.#cancel = this.#clock.after(TICK_MS, () => this.#tick());
  }

  /** An uncaught exception: the thread is ending, but may not finish. */
  #failed(error: Error): void {
    if (this.#over) return;
    this.#log.error({ err: error }, 'the worker failed');
    this.#giveUp();
    this.#cancel();
    this.#cancel = this.#clock.after(LAST_BREATH_MS, () => this.#dead(error, true));
  }

  #dead(error: Error, isStuck: boolean): void {
    if (this.#over) return;
    this.stop();
    this.#log.error({ err: error, isStuck }, 'the worker died');
    this.#giveUp();
    this.#onDeath(error, isStuck);
  }

  #giveUp(): void {
    const mount = this.#mount;
    this.#mount = null;
    if (mount === null) return;
    try {
      this.#abandon(mount);
    } catch (err) {
      this.#log.error({ err, directory: mount.directory }, 'the mount could not be given up');
    }
  }
}
