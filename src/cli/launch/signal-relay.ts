import type { LaunchedMount } from '../../mount/launch.ts';

const RELAYED: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/**
 * Takes the signals that would end this process and gives them to the mount, which ends in order. One that comes before there
 * is a mount is kept for it: a mount that is just being made cannot be given up halfway without leaving a dead one.
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

  /** Stays until the mount has ended; each signal reaches it once. @returns its exit code */
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
