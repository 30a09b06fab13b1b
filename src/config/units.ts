/**
 * Parses and formats sizes and durations. The text contains the unit (`64MiB`, `5s`), so that no option has an implicit unit.
 * All functions throw RangeError with a message that continues "--flag: …".
 */

const BYTES_OF_UNIT: ReadonlyMap<string, number> = new Map([
  ['', 1],
  ['b', 1],
  ['k', 1024],
  ['kb', 1000],
  ['kib', 1024],
  ['m', 1024 ** 2],
  ['mb', 1000 ** 2],
  ['mib', 1024 ** 2],
  ['g', 1024 ** 3],
  ['gb', 1000 ** 3],
  ['gib', 1024 ** 3],
  ['t', 1024 ** 4],
  ['tb', 1000 ** 4],
  ['tib', 1024 ** 4],
  ['p', 1024 ** 5],
  ['pb', 1000 ** 5],
  ['pib', 1024 ** 5],
]);

const MS_OF_UNIT: ReadonlyMap<string, number> = new Map([
  ['ms', 1],
  ['s', 1000],
  ['m', 60_000],
  ['min', 60_000],
  ['h', 3_600_000],
  ['d', 86_400_000],
]);

const MEASURE = /^(\d+(?:\.\d+)?)\s*([a-z]*)$/;

/** `64MiB`, `1.5 GiB`, `4096`: whole bytes, rounded down. A bare letter is binary (`64M` is `64MiB`). */
export function parseBytes(text: string): number {
  const [, number = '', unit = ''] = MEASURE.exec(text.trim().toLowerCase()) ?? [];
  const factor = BYTES_OF_UNIT.get(unit);
  if (number === '' || factor === undefined) throw new RangeError(`"${text}" is not a size such as 64MiB or 20GiB`);
  const bytes = Math.floor(Number(number) * factor);
  if (!Number.isSafeInteger(bytes)) throw new RangeError(`"${text}" is too large`);
  return bytes;
}

/** `500ms`, `5s`, `2min`, `1h`: milliseconds. A number without a unit is ambiguous and rejected. */
export function parseDuration(text: string): number {
  const [, number = '', unit = ''] = MEASURE.exec(text.trim().toLowerCase()) ?? [];
  if (number === '0' && unit === '') return 0;
  const factor = MS_OF_UNIT.get(unit);
  if (number === '' || factor === undefined)
    throw new RangeError(`"${text}" is not a duration such as 500ms, 5s or 2min`);
  return Math.round(Number(number) * factor);
}

/** Bytes for people: `0 B`, `12 KiB`, `1.4 GiB`. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let value = bytes;
  let step = 0;
  while (Math.abs(value) >= 1024 && step < units.length - 1) {
    value /= 1024;
    step++;
  }
  const digits = step > 0 && value < 10 && !Number.isInteger(value) ? 1 : 0;
  return `${value.toFixed(digits)} ${units[step]}`;
}

/** A duration for people: `350 ms`, `12 s`, `3 min`, `5 h`, `2 d`. A negative duration (the clock was set back) counts as zero. */
export function formatDuration(ms: number): string {
  if (ms < 0) return '0 ms';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}
