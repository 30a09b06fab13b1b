/**
 * Times of the service count seconds. A (size, time) learnt within the same second may hide a second change in it, of the
 * same length: git calls such an entry racily clean. The time of one learnt too early is stored half a millisecond less, so
 * that no listing equals it and the history is asked once when it has aged (test/tree/listing-merge.test.ts).
 */

/** How soon after the time itself, by the service's clock, a (size, time) is learnt too early. */
export const YOUNG_MS = 2000;

const MARK_MS = 0.5;

export function youngTime(toldMs: number): number {
  return toldMs - MARK_MS;
}

/** What the service said, of a stored `RemoteFacet.lastModifiedMs`, whether it is trusted or not. */
export function timeTold(lastModifiedMs: number): number {
  return Math.ceil(lastModifiedMs);
}

export function isYoung(lastModifiedMs: number): boolean {
  return !Number.isInteger(lastModifiedMs);
}
