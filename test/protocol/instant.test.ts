import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { errorPage, errorPageMessage } from '../../src/protocol/error-page.ts';
import { formatInstant, parseInstant } from '../../src/protocol/instant.ts';

describe('a dateTime', () => {
  test.each([
    ['2011-08-28T23:03:48.000-07:00', Date.UTC(2011, 7, 29, 6, 3, 48)],
    ['2011-08-28T23:03:48Z', Date.UTC(2011, 7, 28, 23, 3, 48)],
    ['2011-08-28T23:03:48.1234567+00:00', Date.UTC(2011, 7, 28, 23, 3, 48, 123)],
    ['2012-02-29T00:00:00.5+14:00', Date.UTC(2012, 1, 28, 10, 0, 0, 500)],
    ['1969-12-31T23:59:59.999+00:00', -1],
    ['2000-02-29T12:00:00.7Z', Date.UTC(2000, 1, 29, 12, 0, 0, 700)],
    ['0099-01-01T00:00:00Z', Date.parse('0099-01-01T00:00:00Z')],
  ])('%s is understood', (text, ms) => {
    expect(parseInstant(text)).toBe(ms);
  });

  test.each([
    '',
    '2011-08-28',
    '2011-08-28T23:03:48',
    '2011-08-28T23:03:48.000-0700',
    '2011-8-28T23:03:48Z',
    '2011-02-29T00:00:00Z',
    '1900-02-29T00:00:00Z',
    '2011-04-31T00:00:00Z',
    '2011-00-01T00:00:00Z',
    '2011-01-00T00:00:00Z',
    '2011-13-01T00:00:00Z',
    '2011-08-28T24:00:00Z',
    '2011-08-28T23:60:00Z',
    '2011-08-28T23:03:61Z',
    '2011-08-28T23:03:48+15:00',
    '2011-08-28T23:03:48+01:60',
    ' 2011-08-28T23:03:48Z',
    '2011-08-28T23:03:48.Z',
  ])('%j is none', (text) => {
    expect(parseInstant(text)).toBeNull();
  });

  test('a dateTime is parsed as Date parses it', () => {
    fc.assert(
      fc.property(
        fc.date({ min: new Date('0001-01-02T00:00:00Z'), max: new Date('9999-12-30T00:00:00Z'), noInvalidDate: true }),
        (date) => {
          expect(parseInstant(date.toISOString())).toBe(date.getTime());
        },
      ),
    );
  });

  test('a dateTime is written with milliseconds and a colon, and can be parsed again', () => {
    expect(formatInstant(Date.UTC(2011, 7, 29, 6, 3, 48), -420)).toBe('2011-08-28T23:03:48.000-07:00');
    expect(formatInstant(0, 330)).toBe('1970-01-01T05:30:00.000+05:30');
    fc.assert(
      fc.property(
        fc.integer({ min: Date.UTC(1000, 0), max: Date.UTC(9999, 0) }),
        fc.integer({ min: -840, max: 840 }),
        (ms, offset) => {
          const text = formatInstant(ms, offset);
          expect(text).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d$/);
          expect(parseInstant(text)).toBe(ms);
        },
      ),
    );
  });

  test.each([Number.NaN, Number.POSITIVE_INFINITY, 1e17])('a dateTime cannot be written for %d', (ms) => {
    expect(() => formatInstant(ms)).toThrow(RangeError);
  });
});

describe('a status page', () => {
  test('has its message in the third heading', () => {
    const page = errorPage(403, 'Can not move <sync> folder & "more"');

    expect(page).toContain('<h3>Can not move &lt;sync&gt; folder &amp; &quot;more&quot;</h3>');
    expect(page).toContain('sec10.4.4">here</a>');
    expect(errorPageMessage(page)).toBe('Can not move <sync> folder & "more"');
  });

  test.each([
    ['<h3></h3><h3>second</h3>', 'second'],
    ['<H3>loud</H3>', 'loud'],
    ['<h3>two\nlines</h3>', null],
    ['Service Unavailable', null],
    ['', null],
  ])('%j says %j', (page, message) => {
    expect(errorPageMessage(page)).toBe(message);
  });

  test('a status page with any message is parsed to that message', () => {
    fc.assert(
      fc.property(fc.string(), (message) => {
        const oneLine = message.replace(/\s+/g, ' ').trim();
        expect(errorPageMessage(errorPage(400, message))).toBe(oneLine === '' ? null : oneLine);
      }),
    );
  });
});
