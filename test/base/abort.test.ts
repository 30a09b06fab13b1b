import { getEventListeners } from 'node:events';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { unlessAborted } from '../../src/base/abort.ts';
import { watchUnhandled } from '../harness/unhandled.ts';

const WORK_ENDS = ['resolves', 'rejects', 'never ends'] as const;
const ABORTS = ['before it is asked', 'while it waits', 'after the work', 'never'] as const;
const CASES = WORK_ENDS.flatMap((end) =>
  ABORTS.filter((abort) => end !== 'never ends' || abort === 'before it is asked' || abort === 'while it waits').map(
    (abort) => [end, abort] as const,
  ),
);

describe('work that', () => {
  test.each(CASES)('%s, with a signal that aborts %s', async (end, abort) => {
    const unhandled = watchUnhandled();
    const controller = new AbortController();
    const giveUp = (): void => controller.abort(new Error('given up'));
    const { promise, settle } = workThat(end);
    if (abort === 'before it is asked') giveUp();

    const outcome = unlessAborted(promise, controller.signal).then(
      (value) => value,
      (error: Error) => error.message,
    );
    if (abort === 'while it waits') giveUp();
    settle();
    await nextTurn();
    if (abort === 'after the work') giveUp();
    await nextTurn();

    const isGivenUp = abort === 'before it is asked' || abort === 'while it waits';
    expect(await outcome).toBe(isGivenUp ? 'given up' : end === 'resolves' ? 'done' : 'failed');
    expect(unhandled).toEqual([]);
    if (end !== 'never ends') expect(getEventListeners(controller.signal, 'abort')).toEqual([]);
  });
});

function workThat(end: (typeof WORK_ENDS)[number]): { promise: Promise<string>; settle: () => void } {
  let resolve: (value: string) => void = () => {};
  let reject: (error: Error) => void = () => {};
  const promise = new Promise<string>((...both) => {
    [resolve, reject] = both;
  });
  const settle = (): void => {
    if (end === 'resolves') resolve('done');
    if (end === 'rejects') reject(new Error('failed'));
  };
  return { promise, settle };
}
