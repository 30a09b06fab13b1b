import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { formatBytes, formatDuration, parseBytes, parseDuration } from '../../src/config/units.ts';

describe('sizes', () => {
  test.each([
    ['0', 0],
    ['4096', 4096],
    ['64MiB', 64 * 1024 ** 2],
    ['64M', 64 * 1024 ** 2],
    ['1.5 GiB', 1.5 * 1024 ** 3],
    ['20gib', 20 * 1024 ** 3],
    ['1kB', 1000],
    ['2 TB', 2e12],
    ['1 PiB', 2 ** 50],
  ])('%s is %i bytes', (text, bytes) => {
    expect(parseBytes(text)).toBe(bytes);
  });

  test.each(['', 'x', '-1', '1..5M', '5 apples', '1e3', '0x10', '9999999PiB', 'MiB', '64 M iB'])(
    '"%s" is not a size',
    (text) => {
      expect(() => parseBytes(text)).toThrow(RangeError);
    },
  );

  test('a formatted size can be parsed again, within rounding', () => {
    fc.assert(
      fc.property(fc.nat({ max: 2 ** 50 }), (bytes) => {
        const again = parseBytes(formatBytes(bytes));
        expect(Math.abs(again - bytes)).toBeLessThanOrEqual(bytes * 0.06);
      }),
    );
  });
});

describe('durations', () => {
  test.each([
    ['500ms', 500],
    ['5s', 5000],
    ['0', 0],
    ['0s', 0],
    ['1.5 s', 1500],
    ['2min', 120_000],
    ['2m', 120_000],
    ['1h', 3_600_000],
    ['1d', 86_400_000],
  ])('%s is %i ms', (text, ms) => {
    expect(parseDuration(text)).toBe(ms);
  });

  // Seconds or milliseconds? A number alone is refused rather than guessed.
  test.each(['30', '', '-1s', '5 fortnights', 's'])('"%s" is not a duration', (text) => {
    expect(() => parseDuration(text)).toThrow(RangeError);
  });

  test.each([
    [350, '350 ms'],
    [12_000, '12 s'],
    [185_000, '3 min'],
    [5 * 3_600_000, '5 h'],
    [3 * 86_400_000, '3 d'],
  ])('%i ms are shown as %s', (ms, text) => {
    expect(formatDuration(ms)).toBe(text);
  });

  test('what began by a clock that was set back since is no time ago', () => {
    expect(formatDuration(-3_600_000)).toBe('0 ms');
  });
});
