import fc from 'fast-check';
import { expect, test } from 'vitest';
import { RateLimit, type Urgency } from '../../src/transfer/rate-limit.ts';
import { ManualClock } from '../kernel/manual-clock.ts';

const MIB = 1024 * 1024;
const PIECES_PER_SECOND_MAX = 5000;
const { signal } = new AbortController();

async function settled(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

/** Takers that take `bytes` again and again; how much each has got. */
function endless(limit: RateLimit, takers: readonly { bytes: number; urgency: Urgency }[]): number[] {
  const got = takers.map(() => 0);
  takers.forEach(async ({ bytes, urgency }, index) => {
    for (;;) {
      await limit.take(bytes, urgency, signal);
      got[index] = (got[index] as number) + bytes;
    }
  });
  return got;
}

/** Time passes in steps in which everybody who was served asks again. */
async function pass(clock: ManualClock, ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 10) {
    clock.advance(10);
    await settled();
  }
}

test('over any time, the bytes are at most the limit and one burst, and hardly less', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1024, max: 8 * MIB }).chain((bytesPerSecond) => {
        // Single bytes at 8 MiB/s would be millions of pieces.
        const size = fc.integer({ min: Math.ceil(bytesPerSecond / PIECES_PER_SECOND_MAX), max: MIB });
        return fc.record({
          bytesPerSecond: fc.constant(bytesPerSecond),
          sizes: fc.array(size, { minLength: 1, maxLength: 3 }),
        });
      }),
      async ({ bytesPerSecond, sizes }) => {
        const clock = new ManualClock();
        const limit = new RateLimit({ clock, bytesPerSecond });
        const stop = new AbortController();
        let went = 0;
        for (const size of sizes) {
          void (async () => {
            const chunk = new Uint8Array(size);
            const forever = async function* () {
              for (;;) yield chunk;
            };
            for await (const part of limit.paced(forever(), 'now', stop.signal)) went += part.byteLength;
          })().catch(() => {});
        }
        await pass(clock, 2000);
        stop.abort();
        const burst = Math.max(bytesPerSecond / 10, 64 * 1024, 1024);
        expect(went).toBeLessThanOrEqual(2 * bytesPerSecond + 2 * burst);
        // Small pieces ask once in a step of this test only.
        if (Math.min(...sizes) * 100 >= bytesPerSecond) expect(went).toBeGreaterThan(2 * bytesPerSecond * 0.8 - burst);
      },
    ),
    { numRuns: 10 },
  );
});

test('transfers share the rate equally, whatever the length of their pieces', async () => {
  const clock = new ManualClock();
  const limit = new RateLimit({ clock, bytesPerSecond: MIB });
  const got = endless(limit, [
    { bytes: 512 * 1024, urgency: 'now' },
    { bytes: 64 * 1024, urgency: 'now' },
    { bytes: 64 * 1024, urgency: 'now' },
  ]);
  await pass(clock, 30_000);

  for (const each of got) expect(each / (10 * MIB)).toBeCloseTo(1, 0.8);
  expect(Math.max(...got) / Math.min(...got)).toBeLessThan(1.15);
});

test('bytes that a program waits for go first, and the others continue', async () => {
  const clock = new ManualClock();
  const limit = new RateLimit({ clock, bytesPerSecond: MIB });
  const got = endless(limit, [
    { bytes: 64 * 1024, urgency: 'later' },
    { bytes: 64 * 1024, urgency: 'now' },
    { bytes: 64 * 1024, urgency: 'now' },
  ]) as [number, number, number];
  await pass(clock, 20_000);

  expect(got[0]).toBeLessThan(0.12 * (got[1] + got[2]));
  expect(got[0]).toBeGreaterThanOrEqual(15 * 64 * 1024);
});

test('read-ahead gets the whole rate if it is alone', async () => {
  const clock = new ManualClock();
  const limit = new RateLimit({ clock, bytesPerSecond: MIB });
  const got = endless(limit, [{ bytes: 64 * 1024, urgency: 'later' }]) as [number];
  await pass(clock, 4000);

  expect(got[0] / (4 * MIB)).toBeCloseTo(1, 0.8);
});

test('an aborted transfer gets no turn, takes no tokens and leaves no timer', async () => {
  const clock = new ManualClock();
  const limit = new RateLimit({ clock, bytesPerSecond: 1024 });
  await limit.take(1024, 'now', signal);
  const controller = new AbortController();
  const given = limit.take(10 * MIB, 'now', controller.signal);
  controller.abort(new DOMException('enough', 'AbortError'));
  await expect(given).rejects.toMatchObject({ name: 'AbortError' });
  await expect(limit.take(1, 'now', controller.signal)).rejects.toMatchObject({ name: 'AbortError' });

  let served = false;
  void limit.take(512, 'now', signal).then(() => {
    served = true;
  });
  await pass(clock, 2000);
  expect(served).toBe(true);
  await pass(clock, 2000);
  expect(clock.timers).toBe(0);
});

/** [S-limit-1] */
test('a changed limit applies immediately, also to transfers that wait', async () => {
  const clock = new ManualClock();
  const limit = new RateLimit({ clock, bytesPerSecond: 1024 });
  const [got] = [endless(limit, [{ bytes: 1024, urgency: 'later' }])];
  await pass(clock, 2_000);
  expect(got[0]).toBeLessThanOrEqual(4 * 1024);

  limit.bytesPerSecond = MIB;
  const before = got[0] as number;
  await pass(clock, 2_000);
  expect((got[0] as number) - before).toBeGreaterThan(1.8 * MIB);
  expect((got[0] as number) - before).toBeLessThan(2.2 * MIB);
});

/** [S-limit-1] */
test('without a limit nothing waits, and chunks are not divided', async () => {
  const clock = new ManualClock();
  const limit = new RateLimit({ clock, bytesPerSecond: 1 });
  const waiting = limit.take(100 * MIB, 'later', signal);
  limit.bytesPerSecond = null;
  await waiting;
  async function* chunks(): AsyncGenerator<Uint8Array> {
    yield new Uint8Array(3 * MIB);
  }
  const sizes: number[] = [];
  for await (const chunk of limit.paced(chunks(), 'now', signal)) sizes.push(chunk.byteLength);
  expect(sizes).toEqual([3 * MIB]);
});
