/**
 * Exponential back-off: the pause before the next attempt. Its limit doubles with each consecutive failure, and at least half of the limit is
 * waited. The other half is random ("equal jitter"): many mounts that lost one service do not all return at the same moment.
 *
 * @param failures consecutive failures so far, from 1 on
 * @param random a number in [0, 1), as `Clock.random`; 1 for a pause without jitter
 * @param retryAfterMs the pause that the service asked for, at most `RETRY_AFTER_MAX_MS`: waited in full, the back-off comes on top
 * @returns whole milliseconds
 */
export function backoffMs(
  failures: number,
  random: number,
  { firstMs, maxMs }: BackoffLimits,
  retryAfterMs: number | null = null,
): number {
  const limitMs = Math.min(maxMs, firstMs * 2 ** Math.min(failures - 1, DOUBLINGS_MAX));
  return Math.min(retryAfterMs ?? 0, RETRY_AFTER_MAX_MS) + Math.ceil((limitMs * (1 + random)) / 2);
}

/** The limit of the first pause, and of the longest. */
export interface BackoffLimits {
  readonly firstMs: number;
  readonly maxMs: number;
}

/** Longest pause that an answer of the service can cause. */
export const RETRY_AFTER_MAX_MS = 10 * 60_000;

/** More would overflow, and every maximum is reached before. */
const DOUBLINGS_MAX = 30;
