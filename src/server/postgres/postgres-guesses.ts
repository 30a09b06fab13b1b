import type { Clock } from '../../base/clock.ts';
import { FORGOTTEN_MS, type GuessCounter, type GuessTable, pauseMs } from '../password-guesses.ts';
import type { Postgres } from './postgres.ts';

/** Wrong guesses that all servers count together. */
export class PostgresGuesses implements GuessTable {
  readonly #postgres: Postgres;
  readonly #clock: Clock;

  constructor(deps: { postgres: Postgres; clock: Clock }) {
    this.#postgres = deps.postgres;
    this.#clock = deps.clock;
  }

  async waitMs(keys: readonly string[]): Promise<number> {
    const { until } = await this.#postgres.one<{ until: number | null }>(
      'SELECT max(not_before_ms) AS until FROM guesses WHERE key = ANY ($1)',
      keys,
    );
    return until === null ? 0 : until - this.#clock.nowMs();
  }

  async failed({ key, free }: GuessCounter): Promise<void> {
    const nowMs = this.#clock.nowMs();
    const { count } = await this.#postgres.one<{ count: number }>(
      `INSERT INTO guesses VALUES ($1, 1, $2) ON CONFLICT (key) DO UPDATE
      SET count = CASE WHEN guesses.not_before_ms + $3 < $2 THEN 1 ELSE guesses.count + 1 END RETURNING count`,
      key,
      nowMs,
      FORGOTTEN_MS,
    );
    await this.#postgres.rows(
      'UPDATE guesses SET not_before_ms = greatest(not_before_ms, $2) WHERE key = $1',
      key,
      nowMs + pauseMs(count, free),
    );
  }

  async forget(key: string): Promise<void> {
    await this.#postgres.rows('DELETE FROM guesses WHERE key = $1', key);
  }
}
