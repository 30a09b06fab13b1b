import { setImmediate as nextTurn } from 'node:timers/promises';
import { beforeEach, describe, expect, test } from 'vitest';
import { silentLogger } from '../../src/base/log.ts';
import { QuotaWatch } from '../../src/mount/quota-watch.ts';
import { ManualClock } from '../kernel/manual-clock.ts';

let clock: ManualClock;
/** Answers to the questions that wait for one. */
let asked: { answer: (usedBytes: number | null) => void; fail: () => void }[];
let told: number[];
let warned: number[];
let watch: QuotaWatch;

beforeEach(() => {
  clock = new ManualClock();
  asked = [];
  told = [];
  warned = [];
  watch = new QuotaWatch({
    question: () =>
      new Promise((resolve, reject) => {
        asked.push({
          answer: (usedBytes) => resolve(usedBytes === null ? null : { limitBytes: 1_000, usedBytes }),
          fail: () => reject(new Error('no service')),
        });
      }),
    onQuota: async ({ usedBytes }) => void told.push(usedBytes),
    onLow: ({ usedBytes }) => void warned.push(usedBytes),
    clock,
    log: silentLogger,
  });
});

async function answer(usedBytes: number): Promise<void> {
  asked.at(-1)?.answer(usedBytes);
  await nextTurn();
}

/** [S-events-4] */
test('a nearly full storage is reported once, and again after there was room in between', async () => {
  for (const usedBytes of [899, 900, 990, 1_000, 870, 950, 100, 999, 1_000]) {
    void watch.ask();
    await answer(usedBytes);
  }
  expect(warned).toEqual([900, 999]);
});

test('what the service told is known from then on, and told on', async () => {
  void watch.ask();
  expect(watch.known).toBeNull();

  await answer(7);

  expect(watch.known).toEqual({ limitBytes: 1_000, usedBytes: 7, atMs: clock.nowMs() });
  expect(told).toEqual([7]);
});

test('one question at a time, and a failed one does not end the asking', async () => {
  void watch.ask();
  void watch.ask();
  expect(asked).toHaveLength(1);

  asked[0]?.fail();
  await nextTurn();
  expect(watch.known).toBeNull();
  void watch.ask();
  await answer(3);

  expect(told).toEqual([3]);
});

test('an account without a quota stays without one', async () => {
  void watch.ask();
  asked[0]?.answer(null);
  await nextTurn();

  expect([watch.known, told]).toEqual([null, []]);
});

test('a row of pushes is one question, after its end, and the next not sooner than five seconds after it', async () => {
  for (let n = 0; n < 100; n++) watch.pushed();
  expect(clock.timers).toBe(1);
  clock.advance(999);
  expect(asked).toHaveLength(0);
  clock.advance(1);
  expect(asked).toHaveLength(1);
  await answer(1);

  watch.pushed();
  clock.advance(4_999);
  expect(asked).toHaveLength(1);
  clock.advance(1);
  expect(asked).toHaveLength(2);
});

test('a look at the quota requests it if it is older than five minutes, and never waits', async () => {
  watch.looked();
  expect(asked).toHaveLength(1);
  await answer(1);

  clock.advance(300_000);
  watch.looked();
  expect(asked).toHaveLength(1);
  clock.advance(1);
  watch.looked();
  expect(asked).toHaveLength(2);
  expect(watch.known?.usedBytes).toBe(1);
});

describe.each(['fails', 'brings no quota'])('after a question that %s', (what) => {
  beforeEach(async () => {
    void watch.ask();
    if (what === 'fails') asked[0]?.fail();
    else asked[0]?.answer(null);
    await nextTurn();
  });

  test('a look at the quota requests it five minutes after a failed request', () => {
    for (let second = 0; second <= 300; second++) {
      watch.looked();
      expect(asked).toHaveLength(1);
      clock.advance(1_000);
    }
    watch.looked();
    expect(asked).toHaveLength(2);
  });

  test('what is pushed has it asked for after five seconds, as after any other', () => {
    watch.pushed();
    clock.advance(4_999);
    expect(asked).toHaveLength(1);
    clock.advance(1);
    expect(asked).toHaveLength(2);
  });
});

test('the pause counts from the question, not from its answer', async () => {
  void watch.ask();
  clock.advance(4_000);
  await answer(1);

  watch.pushed();
  clock.advance(1_000);
  expect(asked).toHaveLength(2);
});

test.each([
  ['pushed', 5_000],
  ['looked', 300_001],
] as const)('a wall clock that is set back puts no question off: %s', async (how, pauseMs) => {
  void watch.ask();
  await answer(1);
  const before = clock.nowMs.bind(clock);
  clock.nowMs = () => before() - 3_600_000;

  if (how === 'pushed') watch.pushed();
  clock.advance(pauseMs);
  if (how === 'looked') watch.looked();
  expect(asked).toHaveLength(2);
});
