import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ProtocolError } from '../../src/base/errors.ts';
import { rootName } from '../../src/protocol/xml.ts';
import { DOCUMENTS, recorded } from './recorded.ts';

/** CFS_RUNS=100000 for a long run; the seed of a failure is printed by fast-check. */
const RUNS = Number(process.env.CFS_RUNS ?? 3_000);
const SLOW_MS = 100;
const LARGE_BYTES = 50 * 1024 * 1024;

const bytesOf = new Map(DOCUMENTS.map(({ name }) => [name, Buffer.from(recorded(name))]));

/** Pieces that mean something to a parser somewhere. */
const VENOM = [
  '<', '>', '&', ';', '"', "'", '/', '<!--', '-->', '<![CDATA[', ']]>', '<!DOCTYPE a [', '<!ENTITY a "b">', '<?xml ', '?>', '&#0;',
  '&#xD800;', '&#x10FFFF;', '&amp;', '&a;', '\0', '\ud800', '\ufeff', '\uffff', ' xmlns="x"', '__proto__', 'constructor', '<file>', '</file>',
  '<displayName>', '</displayName>', '-1', '1e999', '99999999999999999999', 'NaN', 'true', '0000-00-00T00:00:00Z', '\r\n', 'é', '😀',
]; // biome-ignore format: a list of words

const edit = fc.record({
  // Without bias: towards the ends, where fast-check likes to be, every mutation breaks the document.
  at: fc.noBias(fc.integer({ min: 0, max: 999_999 })).map((ppm) => ppm / 1e6),
  cut: fc.oneof(
    { weight: 6, arbitrary: fc.constantFrom(0, 1) },
    { weight: 2, arbitrary: fc.nat({ max: 8 }) },
    { weight: 1, arbitrary: fc.nat({ max: 400 }) },
  ),
  put: fc.oneof(
    { weight: 4, arbitrary: fc.constantFrom('x', '1', ' ', 'é').map((text) => Buffer.from(text)) },
    { weight: 4, arbitrary: fc.constantFrom(...VENOM).map((text) => Buffer.from(text)) },
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 6 }).map((bytes) => Buffer.from(bytes)) },
    // Its own middle again: entries twice, tags nested.
    { weight: 1, arbitrary: fc.constant(null) },
  ),
});

function mutated(bytes: Buffer, edits: readonly { at: number; cut: number; put: Buffer | null }[]): Buffer {
  return edits.reduce((body, { at, cut, put }) => {
    const from = Math.floor(at * body.byteLength);
    const middle = put ?? body.subarray(body.byteLength >> 2, (body.byteLength >> 2) + 200);
    return Buffer.concat([body.subarray(0, from), middle, body.subarray(from + cut)]);
  }, bytes);
}

test(`a mutated document ends in a value or a ProtocolError, soon and in little memory (${RUNS} documents)`, () => {
  let slowestMs = 0;
  const attempt = (act: () => unknown) => {
    const before = process.memoryUsage.rss();
    const startMs = performance.now();
    try {
      act();
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
    }
    const ms = performance.now() - startMs;
    return { ms, bytes: process.memoryUsage.rss() - before };
  };

  fc.assert(
    fc.property(
      fc.constantFrom(...DOCUMENTS),
      fc.array(edit, { minLength: 1, maxLength: 4 }),
      ({ name, decode }, edits) => {
        const body = mutated(bytesOf.get(name) as Buffer, edits);
        for (const act of [() => decode(body), () => rootName(body)]) {
          let { ms, bytes } = attempt(act);
          // A collection of garbage, or another thread's test, is not the document's doing: then it is fast and small another time.
          for (let again = 0; (ms > SLOW_MS || bytes > LARGE_BYTES) && again < 10; again++)
            ({ ms, bytes } = attempt(act));
          expect(ms).toBeLessThan(SLOW_MS);
          expect(bytes).toBeLessThan(LARGE_BYTES);
          slowestMs = Math.max(slowestMs, ms);
        }
      },
    ),
    { numRuns: RUNS },
  );

  expect(slowestMs).toBeLessThan(SLOW_MS);
}, 600_000);

// Mutations that are never harmless would show nothing about the decoders, and harmless ones nothing about the parser. No dice here.
test.each(DOCUMENTS)('some small insertions into $name are harmless and some are rejected', ({ name, decode }) => {
  const bytes = bytesOf.get(name) as Buffer;
  const outcomes = { values: 0, refusals: 0 };
  for (let step = 0; step < 100; step++) {
    for (const put of [' ', 'x', '<']) {
      try {
        decode(mutated(bytes, [{ at: step / 100, cut: 0, put: Buffer.from(put) }]));
        outcomes.values += 1;
      } catch (error) {
        expect(error).toBeInstanceOf(ProtocolError);
        outcomes.refusals += 1;
      }
    }
  }

  expect(outcomes.values).toBeGreaterThan(0);
  // At the least those of `<`: none of these places is inside a comment.
  expect(outcomes.refusals).toBeGreaterThanOrEqual(100);
});
