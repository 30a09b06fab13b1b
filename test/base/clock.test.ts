import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';

/** What one timer of Node can wait at most; with more it calls back at once, and warns. */
const TIMER_MS_MAX = 2 ** 31 - 1;
const LONG_MS = 3 * TIMER_MS_MAX + 1_000;

describe('a wait that is longer than one timer of Node can be', () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  test.each([TIMER_MS_MAX, TIMER_MS_MAX + 1, 2 * TIMER_MS_MAX, 3e9, LONG_MS])('calls back after %i ms', (ms) => {
    const called = vi.fn();
    systemClock.after(ms, called);

    vi.advanceTimersByTime(ms - 1);
    expect(called).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1);
    expect(called).toHaveBeenCalledOnce();
    expect(vi.getTimerCount()).toBe(0);
  });

  test.each([0, TIMER_MS_MAX, 2 * TIMER_MS_MAX + 1])(
    'a wait beyond the timer limit of Node is cancelled %i ms after its start',
    (ms) => {
      const called = vi.fn();
      const cancel = systemClock.after(LONG_MS, called);
      vi.advanceTimersByTime(ms);

      cancel();

      expect(vi.getTimerCount()).toBe(0);
      vi.advanceTimersByTime(LONG_MS);
      expect(called).not.toHaveBeenCalled();
    },
  );

  test('a sleep beyond the timer limit of Node ends on time', async () => {
    const awake = vi.fn();
    const signal = new AbortController().signal;
    const slept = systemClock.sleep(LONG_MS, signal).then(awake);

    await vi.advanceTimersByTimeAsync(LONG_MS - 1);
    expect(awake).not.toHaveBeenCalled();
    await vi.advanceTimersByTimeAsync(1);
    await slept;
    expect(vi.getTimerCount()).toBe(0);
  });

  test.each([0, 2 * TIMER_MS_MAX + 1])(
    'a sleep beyond the timer limit of Node ends when it is aborted %i ms after its start',
    async (ms) => {
      const impatient = new AbortController();
      const slept = systemClock.sleep(LONG_MS, impatient.signal);
      slept.catch(() => {});
      await vi.advanceTimersByTimeAsync(ms);

      impatient.abort(new Error('enough'));

      await expect(slept).rejects.toThrow('enough');
      expect(vi.getTimerCount()).toBe(0);
    },
  );
});

test('no timer of Node is asked for more than it can, and none keeps the process alive', () => {
  const asked = vi.spyOn(globalThis, 'setTimeout');
  onTestFinished(() => asked.mockRestore());
  const impatient = new AbortController();

  const cancel = systemClock.after(3e9, () => {});
  systemClock.sleep(3e9, impatient.signal).catch(() => {});

  expect(asked.mock.calls.map(([, ms]) => ms)).toEqual([TIMER_MS_MAX, TIMER_MS_MAX]);
  expect(asked.mock.results.map(({ value }) => (value as NodeJS.Timeout).hasRef())).toEqual([false, false]);
  cancel();
  impatient.abort(new Error('enough'));
});

test('a sleep with an aborted signal rejects immediately', async () => {
  await expect(systemClock.sleep(3e9, AbortSignal.abort(new Error('enough')))).rejects.toThrow('enough');
});
