/**
 * How long to wait before trying again: a random time between nothing and a limit that doubles with each failure in a row
 * ("full jitter"), so that many mounts that lost one service do not all come back at the same moment.
 *
 * @param failures how many in a row so far, from 1 on
 * @param random a number in [0, 1)
 * @param retryAfterMs what the service asked for: waited in full, the random part comes on top
 */
export function backoffMs(
  failures: number,
  random: number,
  limits: BackoffLimits,
  retryAfterMs: number | null = null,
): number {
  const limitMs = Math.min(limits.maxMs, limits.firstMs * 2 ** Math.min(failures - 1, 30));
  return Math.min(retryAfterMs ?? 0, RETRY_AFTER_MAX_MS) + Math.ceil(random * limitMs);
}

export interface BackoffLimits {
  readonly firstMs: number;
  readonly maxMs: number;
}

/** No answer of the service makes us wait longer than this. */
export const RETRY_AFTER_MAX_MS = 10 * 60_000;
