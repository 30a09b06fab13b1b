import { expect, test } from 'vitest';
import { BatchedCalls } from '../../../src/server/postgres/batched-calls.ts';

test('calls of one turn run together, and those of the next turn do not wait for them', async () => {
  const batches: string[][] = [];
  const ends: (() => void)[] = [];
  const calls = new BatchedCalls<string, string>(async (given) => {
    batches.push([...given]);
    await new Promise<void>((resolve) => void ends.push(resolve));
    return given.map((call) => call.toUpperCase());
  });
  const first = Promise.all([calls.call('a'), calls.call('b')]);
  await new Promise((resolve) => setImmediate(resolve));
  const second = calls.call('c');
  await new Promise((resolve) => setImmediate(resolve));
  expect(batches).toEqual([['a', 'b'], ['c']]);
  ends[1]?.();
  expect(await second).toBe('C');
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
