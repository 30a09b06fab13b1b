/**
 * A modification time by the service's clock. Its resolution is a second or little less, so two versions of the same length can have
 * the same time: git calls such an entry racily clean. `certainty` says what the time proves about the bytes:
 *
 * | certainty | origin | consequence |
 * | --- | --- | --- |
 * | `exact` | reported once the time had aged, or confirmed by a history | another time means other bytes, the same time the same bytes |
 * | `racy` | reported within `RACY_MS` of the time itself: a second change may have the same time | `suspect` once it has aged |
 * | `suspect` | the bytes were read while the time was racy | open(2) requests the newest version |
 * | `upper-bound` | never reported: the bytes existed at `ms` at the latest | a later time is a remote change |
 * | `suspect-bound` | an upper bound, and an upload with an unknown outcome may have replaced the bytes | a listing with any time is a remote change |
 */
export interface ServiceTime {
  /** Milliseconds since the epoch, whole. */
  readonly ms: number;
  readonly certainty: 'exact' | 'racy' | 'suspect' | 'upper-bound' | 'suspect-bound';
}

/** Ticks of the service's clock last up to a second, its Date header is cut to whole seconds, and its clocks differ a little. */
export const RACY_MS = 2000;

/** Later than any time of a service, in the year 6429; exact in a float also with the fraction of a certainty. */
const NEVER_MS = 2 ** 47;

export type Certainty = ServiceTime['certainty'];

export function reportedTime(reportedMs: number | null, certainty: Certainty = 'exact'): ServiceTime | null {
  return reportedMs === null ? null : { ms: reportedMs, certainty };
}

/** For bytes that the service had when it answered at `serverTimeMs`, its Date header. */
export function boundOf(serverTimeMs: number): ServiceTime {
  return { ms: Math.floor(serverTimeMs) + RACY_MS, certainty: 'upper-bound' };
}

/** For bytes that precede those of `time`. */
export function boundBefore(time: ServiceTime): ServiceTime {
  return { ms: isBound(time) ? time.ms : time.ms - 1, certainty: 'upper-bound' };
}

/** For bytes that an upload with an unknown outcome may have replaced. */
export function suspected(time: ServiceTime | null): ServiceTime {
  if (time === null) return { ms: NEVER_MS, certainty: 'suspect-bound' };
  return { ...time, certainty: isBound(time) ? 'suspect-bound' : 'suspect' };
}

/** After the history named the newest version. */
export function revalidated(time: ServiceTime | null): ServiceTime | null {
  if (time === null || !isSuspectTime(time)) return time;
  return { ...time, certainty: isBound(time) ? 'upper-bound' : 'exact' };
}

/** Whether the time was never reported. */
export function isBound({ certainty }: ServiceTime): boolean {
  return certainty === 'upper-bound' || certainty === 'suspect-bound';
}

export function isSuspectTime({ certainty }: ServiceTime): boolean {
  return certainty === 'suspect' || certainty === 'suspect-bound';
}

/** Whether no reported time can confirm the bytes: only a history can. */
export function needsHistory(time: ServiceTime | null): boolean {
  return time?.certainty === 'suspect-bound';
}

export function isSameServiceTime(one: ServiceTime | null, other: ServiceTime | null): boolean {
  return one?.ms === other?.ms && one?.certainty === other?.certainty;
}

/**
 * Whether bytes with `time` can be those that the service reports with `reportedMs`. True if one of them is unknown (null).
 *
 * Compares to the millisecond, even if one time is a whole second. A service with a finer clock reports whole seconds too, and a tolerance
 * would overwrite a remote save of the same second. The price: a service with different resolutions in listings and histories causes a
 * needless conflicted copy (`judgeHistory`) when a file that was never read here is overwritten.
 */
export function mayBeTimeOf(time: ServiceTime | null, reportedMs: number | null): boolean {
  if (time === null || reportedMs === null) return true;
  if (needsHistory(time)) return false;
  return time.certainty === 'upper-bound' ? reportedMs <= time.ms : reportedMs === time.ms;
}

/** The same in a history, where the bytes and those that may have replaced them are two versions. */
export function mayBeVersionTimeOf(time: ServiceTime | null, reportedMs: number | null): boolean {
  return mayBeTimeOf(revalidated(time), reportedMs);
}
