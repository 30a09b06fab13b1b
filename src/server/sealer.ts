import type { Logger } from '../base/log.ts';
import type { Blobs } from './blobs.ts';
import type { VersionRow } from './database.ts';
import type { Histories } from './histories.ts';

/** Gives long versions their SHA-256 after their senders have their answers: one at a time, from what the disk really has. */
export class Sealer {
  readonly #blobs: Blobs;
  readonly #histories: Histories;
  readonly #log: Logger;
  readonly #queue: VersionRow[] = [];
  #work: Promise<void> | null = null;
  #isClosed = false;

  constructor(deps: { blobs: Blobs; histories: Histories; log: Logger }) {
    this.#blobs = deps.blobs;
    this.#histories = deps.histories;
    this.#log = deps.log;
  }

  /** What has its hash already, or is not complete, is left alone. */
  add(version: VersionRow): void {
    if (!version.complete || version.sha256 !== null || this.#isClosed) return;
    this.#queue.push(version);
    this.#work ??= this.#seal().finally(() => {
      this.#work = null;
    });
  }

  /** Ends after the version at hand; the others are found again at the next start. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#work;
  }

  async #seal(): Promise<void> {
    for (let version = this.#queue.shift(); version !== undefined; version = this.#queue.shift()) {
      if (this.#isClosed) return;
      try {
        this.#histories.recordHash(version, await this.#blobs.sha256(version.blob));
      } catch (err) {
        // Deleted while it waited its turn, most often; damage would be found by the check.
        this.#log.debug({ err, version: version.version }, 'version not sealed');
      }
    }
  }
}
