import { createHash } from 'node:crypto';
import type { Clock } from '../../base/clock.ts';
import type { Logger } from '../../base/log.ts';
import type { ObjectStore } from '../object-store.ts';
import { FORGOTTEN_MS } from '../password-guesses.ts';
import type { BlobRules } from '../rules.ts';
import type { Postgres } from './postgres.ts';

/**
 * Work in the background that any number of servers share: objects without a reference, abandoned uploads, expired
 * tokens, and the SHA-256 of versions that arrived in several requests.
 */
export class PostgresHousekeeping {
  readonly #postgres: Postgres;
  readonly #store: ObjectStore;
  readonly #blobs: BlobRules;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #uploadKeptMs: number;
  readonly #deletedAfter: string;
  readonly #closing = new AbortController();
  #running: Promise<unknown> = Promise.resolve();
  #cancel = (): void => {};
  #rounds = 0;

  /** @param deps.deletedAfterMs how long a download may go on after a deletion */
  constructor(deps: {
    postgres: Postgres;
    store: ObjectStore;
    blobs: BlobRules;
    clock: Clock;
    log: Logger;
    uploadKeptMs: number;
    deletedAfterMs?: number;
  }) {
    this.#postgres = deps.postgres;
    this.#store = deps.store;
    this.#blobs = deps.blobs;
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#uploadKeptMs = deps.uploadKeptMs;
    this.#deletedAfter = `${deps.deletedAfterMs ?? DELETED_AFTER_MS} milliseconds`;
  }

  start(): void {
    this.#cancel = this.#clock.after(INTERVAL_MS, () => {
      this.#running = this.#round()
        .catch((err: unknown) => {
          if (!this.#closing.signal.aborted) this.#log.warn({ err }, 'garbage not collected');
        })
        .finally(() => {
          if (!this.#closing.signal.aborted) this.start();
        });
    });
  }

  async close(): Promise<void> {
    this.#closing.abort();
    this.#cancel();
    await this.#running;
  }

  /** Deletes objects without a reference. @returns how many */
  async collectObjects(): Promise<number> {
    for (let deleted = 0; ; ) {
      const keys = await this.#postgres.rows<{ key: string }>(
        'SELECT take_dying AS key FROM take_dying($1, $2, $3)',
        this.#deletedAfter,
        ARRIVING_FOR,
        TAKEN_AT_ONCE,
      );
      if (keys.length === 0) return deleted;
      for (const { key } of keys) {
        await this.#store.remove(key, true, this.#closing.signal);
        await this.#postgres.rows("DELETE FROM objects WHERE key = $1 AND state = 'dying'", key);
        deleted += 1;
      }
    }
  }

  /** Deletes uploads that were given up, and in one step those that were cut. @returns how many */
  async dropAbandoned(): Promise<number> {
    const beforeMs = this.#clock.nowMs() - this.#uploadKeptMs;
    const accounts = await this.#postgres.rows<{ uid: string }>(
      `SELECT DISTINCT uid FROM versions
      WHERE NOT complete AND lease_until < clock_timestamp() AND (hidden OR last_modified_ms < $1)`,
      beforeMs,
    );
    let dropped = 0;
    // One change for each account: a change locks one account only.
    for (const { uid } of accounts) {
      const { count } = await this.#postgres.one<{ count: number }>(
        'SELECT drop_abandoned($1, $2) AS count',
        uid,
        beforeMs,
      );
      dropped += count;
    }
    return dropped;
  }

  /** Computes missing hashes. Two servers may compute the same one. @returns how many */
  async seal(): Promise<number> {
    const rows = await this.#postgres.rows<{ blob: string }>(
      `SELECT DISTINCT blob FROM (
        SELECT blob FROM versions WHERE complete AND sha256 IS NULL ORDER BY last_modified_ms LIMIT $1
      ) AS oldest`,
      SEALED_AT_ONCE,
    );
    let sealed = 0;
    for (const { blob } of rows) {
      const sizeBytes = await this.#blobs.sizeBytes(blob);
      if (sizeBytes === null || this.#closing.signal.aborted) continue;
      const hash = createHash('sha256');
      for await (const chunk of await this.#blobs.read(blob, 0, sizeBytes)) {
        hash.update(chunk);
        this.#closing.signal.throwIfAborted();
      }
      await this.#postgres.rows(
        'UPDATE versions SET sha256 = $2 WHERE blob = $1 AND complete',
        blob,
        hash.digest('hex'),
      );
      sealed += 1;
    }
    return sealed;
  }

  async #round(): Promise<void> {
    await this.collectObjects();
    await this.seal();
    if (this.#rounds++ % ROUNDS_PER_HOUR !== 0) return;
    const uploads = await this.dropAbandoned();
    const nowMs = this.#clock.nowMs();
    await this.#postgres.rows('DELETE FROM access_tokens WHERE expires_ms < $1', nowMs);
    await this.#postgres.rows('DELETE FROM guesses WHERE not_before_ms < $1', nowMs - FORGOTTEN_MS);
    if (uploads > 0) this.#log.info({ uploads }, 'garbage collected');
  }
}

const INTERVAL_MS = 60_000;
const ROUNDS_PER_HOUR = 60;
/** A download that began before a deletion ends within this time, or fails. */
const DELETED_AFTER_MS = 3600_000;
/** Longer than a part takes to be stored. */
const ARRIVING_FOR = '2 hours';
/** All of them are deleted within a minute. */
const TAKEN_AT_ONCE = 100;
const SEALED_AT_ONCE = 20;
