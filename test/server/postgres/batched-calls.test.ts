import { setImmediate } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { BatchedCalls } from '../../../src/server/postgres/batched-calls.ts';

/** A time that no test reaches. */
const NEVER_MS = 600_000;

/** Calls whose batches a test ends. */
function batched(waitMsMax = NEVER_MS) {
  const batches: string[][] = [];
  const ends: (() => void)[] = [];
  const calls = new BatchedCalls<string, string>(async (given) => {
    batches.push([...given]);
    await new Promise<void>((resolve) => void ends.push(resolve));
    return given.map((call) => call.toUpperCase());
  }, waitMsMax);
  const both = (first: string, second: string) => Promise.all([calls.call(first), calls.call(second)]);
  return { calls, batches, ends, both };
}

async function turns(): Promise<void> {
  for (let count = 0; count < 4; count += 1) await setImmediate();
}

test('calls of one turn run together', async () => {
  const { batches, ends, both } = batched();
  const answers = both('a', 'b');
  await turns();
  expect(batches).toEqual([['a', 'b']]);
  ends[0]?.();
  expect(await answers).toEqual(['A', 'B']);
});

test('the only caller waits for no other', async () => {
  const { calls, batches, ends } = batched();
  for (const [at, call] of ['a', 'b', 'c'].entries()) {
    const answer = calls.call(call);
    await turns();
    ends[at]?.();
    expect(await answer).toBe(call.toUpperCase());
  }
  expect(batches).toEqual([['a'], ['b'], ['c']]);
});

test('a call that arrives while a batch runs waits for its end, and for its callers to call again', async () => {
  const { calls, batches, ends, both } = batched();
  const first = both('a', 'b');
  await turns();
  const answers = [calls.call('c')];
  await turns();
  expect(batches).toEqual([['a', 'b']]);
  ends[0]?.();
  await first;
  answers.push(calls.call('d'));
  await turns();
  expect(batches).toEqual([['a', 'b']]);
  answers.push(calls.call('e'));
  await turns();
  expect(batches).toEqual([
    ['a', 'b'],
    ['c', 'd', 'e'],
  ]);
  ends[1]?.();
  expect(await Promise.all(answers)).toEqual(['C', 'D', 'E']);
});

test('a batch that hangs holds up no other calls', async () => {
  const { batches, ends, both } = batched(1);
  const hanging = both('a', 'b');
  await turns();
  const others = both('c', 'd');
  await vi.waitFor(() => expect(batches.length).toBe(2));
  ends[1]?.();
  expect(await others).toEqual(['C', 'D']);
  ends[0]?.();
  expect(await hanging).toEqual(['A', 'B']);
});

test('a batch runs without callers that do not come, and the next one does not wait for them', async () => {
  const { calls, batches, ends, both } = batched(1);
  const first = both('a', 'b');
  await turns();
  ends[0]?.();
  await first;
  const alone = calls.call('c');
  await vi.waitFor(() => expect(batches.length).toBe(2));
  ends[1]?.();
  await alone;
  const again = calls.call('d');
  await turns();
  expect(batches.length).toBe(3);
  ends[2]?.();
  expect(await again).toBe('D');
});

test('without a time to wait, a batch does not wait for the last one', async () => {
  const { batches, ends, both } = batched(0);
  const first = both('a', 'b');
  await turns();
  const second = both('c', 'd');
  await turns();
  expect(batches).toEqual([
    ['a', 'b'],
    ['c', 'd'],
  ]);
  ends[1]?.();
  expect(await second).toEqual(['C', 'D']);
  ends[0]?.();
  expect(await first).toEqual(['A', 'B']);
});

test('a batch that fails rejects all its calls, and no others', async () => {
  let isFirst = true;
  const calls = new BatchedCalls<string, string>(async (given) => {
    if (!isFirst) return given;
    isFirst = false;
    throw new Error('the connection is lost');
  });
  const failed = await Promise.allSettled([calls.call('a'), calls.call('b')]);
  expect(failed.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  expect(await calls.call('c')).toBe('c');
});
