/**
 * xs:dateTime in the service's form: `2011-08-28T23:03:48.000-07:00`, exactly three fraction digits and an offset with
 * a colon (docs/service.md 2.3 and 13.2: clients parse it with a fixed pattern and reject any other form).
 */

const PATTERN = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)$/;
const YEAR_9999_END_MS = Date.UTC(9999, 11, 31, 23, 59, 59, 999);
const YEAR_0001_START_MS = Date.parse('0001-01-01T00:00:00Z');
const DAYS_OF_MONTH = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/**
 * Milliseconds since the epoch, finer fractions truncated; null for a text that is not a complete dateTime with an
 * offset. Any number of fraction digits is accepted. An offset without a colon is not: the service never sends one, and
 * a wrong hour is worse than an error.
 *
 * Parsed by hand: `Date.parse` accepts 30 February as 2 March. Without captures: a listing has a date per file.
 */
export function parseInstant(text: string): number | null {
  if (!PATTERN.test(text)) return null;
  const year = digits(text, 0) * 100 + digits(text, 2);
  const month = digits(text, 5);
  const day = digits(text, 8);
  const [hour, minute, second] = [digits(text, 11), digits(text, 14), digits(text, 17)];
  if (month < 1 || month > 12 || day < 1 || day > daysOf(year, month)) return null;
  if (hour > 23 || minute > 59 || second > 59) return null;
  const isUtc = text.endsWith('Z');
  const offsetMinutes = isUtc ? 0 : parseOffset(text);
  if (offsetMinutes === null) return null;
  const fraction = text.charAt(19) === '.' ? text.slice(20, isUtc ? -1 : -6) : '';
  const ms = fraction === '' ? 0 : Number(`${fraction}00`.slice(0, 3));
  // Date.UTC maps years below 100 to the 20th century.
  const startOfDay = year >= 100 ? Date.UTC(year, month - 1, day) : new Date(0).setUTCFullYear(year, month - 1, day);
  return startOfDay + ((hour * 60 + minute - offsetMinutes) * 60 + second) * 1000 + ms;
}

/** @throws RangeError for a time outside the years 1 to 9999, which has no such form */
export function formatInstant(ms: number, offsetMinutes = 0): string {
  if (!(ms >= YEAR_0001_START_MS && ms <= YEAR_9999_END_MS)) throw new RangeError(`no dateTime for ${ms} ms`);
  const local = new Date(Math.floor(ms) + offsetMinutes * 60_000).toISOString().slice(0, 23);
  const absolute = Math.abs(offsetMinutes);
  const hours = String(Math.floor(absolute / 60)).padStart(2, '0');
  const minutes = String(absolute % 60).padStart(2, '0');
  return `${local}${offsetMinutes < 0 ? '-' : '+'}${hours}:${minutes}`;
}

/** Minutes east of Greenwich, from the last six characters. */
function parseOffset(text: string): number | null {
  const at = text.length - 6;
  const hours = digits(text, at + 1);
  const minutes = digits(text, at + 4);
  // xs:dateTime: at most fourteen hours.
  if (minutes > 59 || hours * 60 + minutes > 14 * 60) return null;
  return (text.charAt(at) === '-' ? -1 : 1) * (hours * 60 + minutes);
}

function daysOf(year: number, month: number): number {
  const isLeap = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
  return month === 2 && isLeap ? 29 : (DAYS_OF_MONTH[month - 1] as number);
}

/** The value of two digits. */
function digits(text: string, at: number): number {
  return (text.charCodeAt(at) - 48) * 10 + text.charCodeAt(at + 1) - 48;
}
