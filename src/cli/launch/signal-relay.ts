import type { LaunchedMount } from '../../mount/launch.ts';

const RELAYED: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/**
 * Catches the signals that would end this process and passes them on to the mount, which ends in order. A signal that comes before
 * the mount exists is passed on later: to abort a mount while it is being made would leave a dead one.
 */
export class SignalRelay {
  readonly #noticed: () => void;
  #received: NodeJS.Signals | null = null;
  #mount: LaunchedMount | null = null;
  readonly #listener = (signal: NodeJS.Signals): void => {
    this.#received = signal;
    this.#noticed();
    this.#mount?.signal(signal);
  };

  /** @param noticed called at each signal, before it is passed on */
  constructor(noticed: () => void = () => {}) {
    this.#noticed = noticed;
    for (const signal of RELAYED) process.on(signal, this.#listener);
  }

  /** Whether a signal asked for the end. */
  get interrupted(): boolean {
    return this.#received !== null;
  }

  /** Waits until the mount has ended, and passes each signal on once. @returns the exit code of the mount */
  async passTo(mount: LaunchedMount): Promise<number> {
    this.#mount = mount;
    if (this.#received !== null) mount.signal(this.#received);
    return await mount.ended;
  }

  /** From now on signals end this process again. */
  dispose(): void {
    for (const signal of RELAYED) process.removeListener(signal, this.#listener);
  }
}
