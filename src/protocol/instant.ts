/**
 * xs:dateTime as the service writes it: `2011-08-28T23:03:48.000-07:00`, exactly three fraction digits and an offset with a
 * colon (wire-facts 1: clients parse it with a fixed pattern and reject anything else).
 */

const PATTERN = /^(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:\.(\d+))?(Z|[+-]\d{2}:\d{2})$/;
const YEAR_9999_END_MS = Date.UTC(9999, 11, 31, 23, 59, 59, 999);
const YEAR_0001_START_MS = Date.parse('0001-01-01T00:00:00Z');

/**
 * Milliseconds since the epoch, finer fractions cut off; null for a text that is not a complete dateTime with an offset.
 * Any number of fraction digits is understood, one offset without a colon is not: what is read here has been sent by a
 * service that never does so, and a guess about the hour is worse than an error.
 */
export function parseInstant(text: string): number | null {
  const match = PATTERN.exec(text);
  if (match === null) return null;
  const [, year, month, day, hour, minute, second, fraction = '', zone = 'Z'] = match;
  const ms = Number(`${fraction}000`.slice(0, 3));
  const moment = new Date(0);
  moment.setUTCFullYear(Number(year), Number(month) - 1, Number(day));
  moment.setUTCHours(Number(hour), Number(minute), Number(second), ms);
  // Date rolls 30 February over into March; such a day was never meant.
  const exact =
    moment.getUTCMonth() === Number(month) - 1 &&
    moment.getUTCDate() === Number(day) &&
    moment.getUTCHours() === Number(hour) &&
    moment.getUTCMinutes() === Number(minute) &&
    moment.getUTCSeconds() === Number(second);
  if (!exact) return null;
  const offsetMinutes = zone === 'Z' ? 0 : parseOffset(zone);
  return offsetMinutes === null ? null : moment.getTime() - offsetMinutes * 60_000;
}

/** @throws RangeError for a moment outside the years 1 to 9999, which has no such form */
export function formatInstant(ms: number, offsetMinutes = 0): string {
  if (!(ms >= YEAR_0001_START_MS && ms <= YEAR_9999_END_MS)) throw new RangeError(`no dateTime for ${ms} ms`);
  const local = new Date(Math.floor(ms) + offsetMinutes * 60_000).toISOString().slice(0, 23);
  const absolute = Math.abs(offsetMinutes);
  const hours = String(Math.floor(absolute / 60)).padStart(2, '0');
  const minutes = String(absolute % 60).padStart(2, '0');
  return `${local}${offsetMinutes < 0 ? '-' : '+'}${hours}:${minutes}`;
}

function parseOffset(zone: string): number | null {
  const hours = Number(zone.slice(1, 3));
  const minutes = Number(zone.slice(4, 6));
  // xs:dateTime: at most fourteen hours.
  if (minutes > 59 || hours * 60 + minutes > 14 * 60) return null;
  return (zone.startsWith('-') ? -1 : 1) * (hours * 60 + minutes);
}
