import { rmSync } from 'node:fs';

const ENDING: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/** What a command has on the disk for the moment: taken away also where a signal ends it, and half a file in a mount would be pushed. */
export class LeftBehind {
  readonly #paths = new Set<string>();
  readonly #end = (signal: NodeJS.Signals): void => {
    // At once, before anything that this process does beside it goes on.
    for (const path of this.#paths) {
      try {
        rmSync(path, { recursive: true, force: true });
      } catch {
        // The end is what was asked for.
      }
    }
    this.dispose();
    process.kill(process.pid, signal);
  };

  constructor() {
    for (const signal of ENDING) process.on(signal, this.#end);
  }

  add(path: string): void {
    this.#paths.add(path);
  }

  /** It is whole, and stays, or is gone. */
  delete(path: string): void {
    this.#paths.delete(path);
  }

  /** Signals end the process again as they do. What is there still is the caller's affair. */
  dispose(): void {
    for (const signal of ENDING) process.removeListener(signal, this.#end);
  }
}
