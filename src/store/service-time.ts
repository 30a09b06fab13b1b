/**
 * How far `RemoteFacet.lastModifiedMs` is to be trusted. The service's times count seconds, or not much less, so two changes of the
 * same length may have one time: git calls such an entry racily clean. Whole milliseconds are what the service told; a fraction
 * says how to read the rest:
 *
 * | kept | when | what follows |
 * | --- | --- | --- |
 * | told − ½ | learnt so early that a second change may have the same time | once it has aged it is *doubted* |
 * | told − ¼ | *doubted*: somebody looked at the bytes while it was young | whoever opens the file asks which version is the newest |
 * | limit + ¼ | never told: the bytes were there at `limit` at the latest | a later time is somebody else's |
 */

/** How soon after the time itself, by the service's clock, a (size, time) is learnt too early. */
export const YOUNG_MS = 2000;

const YOUNG_MARK_MS = 0.5;
const DOUBT_MARK_MS = 0.25;
const LIMIT_MARK_MS = 0.25;

export function youngTime(toldMs: number): number {
  return toldMs - YOUNG_MARK_MS;
}

export function doubtedTime(toldMs: number): number {
  return toldMs - DOUBT_MARK_MS;
}

/**
 * For bytes that the service had when it answered at `serverTimeMs`. That is its Date header, which counts whole seconds, and the
 * clock that versions get their times from may be a bit ahead of the one that answers.
 */
export function timeLimit(serverTimeMs: number): number {
  return Math.floor(serverTimeMs) + YOUNG_MS + LIMIT_MARK_MS;
}

/** For bytes that the service had before those of `keptMs`. */
export function timeBefore(keptMs: number): number {
  return Math.ceil(keptMs) - 1 + LIMIT_MARK_MS;
}

export function isYoung(keptMs: number): boolean {
  return keptMs - Math.floor(keptMs) === 1 - YOUNG_MARK_MS;
}

export function isDoubted(keptMs: number): boolean {
  return keptMs - Math.floor(keptMs) === 1 - DOUBT_MARK_MS;
}

/** Whether the service never told the time. */
export function isLimit(keptMs: number): boolean {
  return keptMs - Math.floor(keptMs) === LIMIT_MARK_MS;
}

/** Somebody asked which version is the newest: there is nothing to doubt any more. */
export function undoubted(keptMs: number | null): number | null {
  return keptMs !== null && isDoubted(keptMs) ? Math.ceil(keptMs) : keptMs;
}

/**
 * Whether bytes of which `keptMs` is kept may be those that the service told `toldMs` of. Null: not known, so they may.
 *
 * To the millisecond, also where one of both is a whole second: a service that counts finer tells such times, too, and what somebody saved in
 * the same second would be buried. One that counts seconds in listings and finer in histories, or the reverse, costs a needless copy instead
 * (`judgeHistory`), where a file that nobody has read here is written over.
 */
export function mayBeTimeOf(keptMs: number | null, toldMs: number | null): boolean {
  if (keptMs === null || toldMs === null) return true;
  return isLimit(keptMs) ? toldMs <= keptMs : Math.ceil(keptMs) === toldMs;
}
