import type { Clock } from '../base/clock.ts';
import type { Logger } from '../base/log.ts';
import type { Blobs } from './blobs.ts';
import type { Database, VersionRow } from './database.ts';
import type { Histories } from './histories.ts';

/** Gives long versions their SHA-256 after their senders have their answers: one at a time, from what the disk really has. */
export class Sealer {
  readonly #database: Database;
  readonly #blobs: Blobs;
  readonly #histories: Histories;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #queue: VersionRow[] = [];
  #work: Promise<void> | null = null;
  #isClosed = false;

  constructor(deps: { database: Database; blobs: Blobs; histories: Histories; clock: Clock; log: Logger }) {
    this.#database = deps.database;
    this.#blobs = deps.blobs;
    this.#clock = deps.clock;
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
        const sha256 = await this.#blobs.sha256(version.blob, () => this.#givesWay());
        const hashed = version;
        await this.#database.changeTogether(() => this.#histories.recordHash(hashed, sha256));
      } catch (err) {
        // Deleted while it waited its turn, most often; damage would be found by the check.
        this.#log.debug({ err, version: version.version }, 'version not sealed');
      }
    }
  }

  /** Uploads come first: hashing costs them a third of their speed. Not for ever, on a server that is never quiet. */
  async #givesWay(): Promise<void> {
    for (let waits = 0; this.#blobs.isWriting && waits < WAITS_MAX && !this.#isClosed; waits += 1) {
      await this.#clock.sleep(WAIT_MS);
    }
  }
}

const WAIT_MS = 50;
/** Per piece: a gigabyte is then hashed in two hours of uploads without a pause. */
const WAITS_MAX = 60;
