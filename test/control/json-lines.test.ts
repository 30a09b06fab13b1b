import fc from 'fast-check';
import { expect, test } from 'vitest';
import { JsonLines, LineError } from '../../src/control/json-lines.ts';

/** However the bytes are cut, also in the middle of a character, the same values come out. */
test('lines are the same however the stream is cut', () => {
  fc.assert(
    fc.property(fc.array(fc.jsonValue()), fc.array(fc.nat({ max: 200 })), (values, cuts) => {
      const bytes = Buffer.from(values.map((value) => `${JSON.stringify(value)}\n`).join(''));
      const lines = new JsonLines({ lineBytesMax: 100_000 });
      const places = [...new Set(cuts.map((cut) => Math.min(cut, bytes.length)))].sort((a, b) => a - b);
      const pieces = [0, ...places].map((start, index) => bytes.subarray(start, places[index] ?? bytes.length));

      const found = pieces.flatMap((piece) => [...lines.push(piece)]);

      expect(found).toEqual(values.map((value) => JSON.parse(JSON.stringify(value))));
    }),
  );
});

test('a line that never ends is not kept', () => {
  const lines = new JsonLines({ lineBytesMax: 10 });

  expect(() => [...lines.push(Buffer.from('"12345678'))]).not.toThrow();
  expect(() => [...lines.push(Buffer.from('90'))]).toThrow(LineError);
});

test('what is not JSON is refused', () => {
  expect(() => [...new JsonLines({ lineBytesMax: 100 }).push(Buffer.from('GET / HTTP/1.1\n'))]).toThrow(LineError);
});
