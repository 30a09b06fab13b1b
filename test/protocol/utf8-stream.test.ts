import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Utf8Stream } from '../../src/protocol/utf8-stream.ts';

/** All pieces of `bytes`, cut at `cuts`, decoded; null for what is refused. */
function decoded(bytes: Uint8Array, cuts: readonly number[]): string | null {
  const stream = new Utf8Stream();
  const places = [0, ...cuts.map((cut) => cut % (bytes.byteLength + 1)).sort((a, b) => a - b), bytes.byteLength];
  try {
    const pieces = places.slice(1).map((place, index) => stream.decode(bytes.subarray(places[index], place)));
    stream.end();
    return pieces.join('');
  } catch (error) {
    expect(error).toBeInstanceOf(TypeError);
    return null;
  }
}

function reference(bytes: Uint8Array): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

const cuts = fc.array(fc.nat(), { maxLength: 8 });

test('text is the same in whatever pieces it comes', () => {
  const text = fc.string({
    unit: fc.oneof(
      fc.constantFrom('\ufeff', 'a', 'é', '日', '😀'),
      fc.string({ unit: 'binary', minLength: 1, maxLength: 1 }),
    ),
  });
  fc.assert(
    fc.property(text, cuts, (whole, places) => {
      const bytes = Buffer.from(whole);
      expect(decoded(bytes, places)).toBe(reference(bytes));
    }),
    { numRuns: 1000 },
  );
});

test('what is not UTF-8 is refused in whatever pieces it comes', () => {
  const broken = fc.oneof(
    fc.uint8Array({ maxLength: 12 }),
    fc
      .array(fc.constantFrom(0x61, 0x80, 0xbf, 0xc0, 0xc3, 0xe2, 0x82, 0xac, 0xed, 0xa0, 0xf0, 0x9f, 0xf5, 0xff))
      .map((bytes) => Uint8Array.from(bytes)),
  );
  fc.assert(
    fc.property(broken, cuts, (bytes, places) => {
      expect(decoded(bytes, places)).toBe(reference(bytes));
    }),
    { numRuns: 2000 },
  );
});
