import { rmSync } from 'node:fs';

const ENDING: readonly NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/** Temporary files of a command, removed even when a signal ends it. A half-written file in a mount would be pushed. */
export class CleanupOnSignal {
  readonly #paths = new Set<string>();
  readonly #end = (signal: NodeJS.Signals): void => {
    // Synchronous, so that no other work of this process runs in between.
    for (const path of this.#paths) {
      try {
        rmSync(path, { recursive: true, force: true });
      } catch {
        // The signal ends the process anyway.
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

  /** The file is complete and stays, or is already removed. */
  delete(path: string): void {
    this.#paths.delete(path);
  }

  /** Restores the default signal handling. The caller removes the remaining files. */
  dispose(): void {
    for (const signal of ENDING) process.removeListener(signal, this.#end);
  }
}
