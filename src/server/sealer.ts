import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { Blobs } from './blobs.ts';
import type { Database } from './database.ts';
import type { Histories } from './histories.ts';
import type { VersionRow } from './rows.ts';

/**
 * Computes the SHA-256 of long versions after the response, one at a time, from the bytes on disk. Passes on every
 * complete version once it has a hash.
 */
export class Sealer {
  readonly #database: Database;
  readonly #blobs: Blobs;
  readonly #histories: Histories;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #sealed: (version: VersionRow) => void;
  readonly #queue: VersionRow[] = [];
  #work: Promise<void> | null = null;
  #isClosed = false;

  constructor(deps: {
    database: Database;
    blobs: Blobs;
    histories: Histories;
    clock: Clock;
    log: Logger;
    sealed: (version: VersionRow) => void;
  }) {
    this.#database = deps.database;
    this.#blobs = deps.blobs;
    this.#clock = deps.clock;
    this.#histories = deps.histories;
    this.#log = deps.log;
    this.#sealed = deps.sealed;
  }

  /** Ignores incomplete versions. */
  add(version: VersionRow): void {
    if (!version.complete || this.#isClosed) return;
    if (version.sha256 !== null) {
      this.#sealed(version);
      return;
    }
    this.#queue.push(version);
    this.#work ??= this.#seal().finally(() => {
      this.#work = null;
    });
  }

  /** Stops after the current version; the next start finds the others again. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#work;
  }

  async #seal(): Promise<void> {
    for (let version = this.#queue.shift(); version !== undefined; version = this.#queue.shift()) {
      if (this.#isClosed) return;
      try {
        const sha256 = await this.#blobs.sha256(version.blob, () => this.#givesWay());
        const hashed = version;
        await this.#database.changeTogether(() => this.#histories.recordHash(hashed, sha256));
        this.#sealed({ ...hashed, sha256 });
      } catch (err) {
        // Usually deleted while queued; damage is found by the check.
        this.#log.debug({ err, version: version.version }, 'version not sealed');
      }
    }
  }

  /**
   * Yields to uploads, because hashing costs them a third of their speed; limited, because a busy server may never be
   * idle.
   */
  async #givesWay(): Promise<void> {
    for (let waits = 0; this.#blobs.isWriting && waits < WAITS_MAX && !this.#isClosed; waits += 1) {
      await this.#clock.sleep(WAIT_MS);
    }
  }
}

const WAIT_MS = 50;
/** Per chunk: a gigabyte is then hashed in two hours of continuous uploads. */
const WAITS_MAX = 60;
