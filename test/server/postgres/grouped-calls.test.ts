import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { GroupedCalls } from '../../../src/server/postgres/grouped-calls.ts';

interface Group {
  readonly calls: readonly string[];
  readonly gathers: boolean;
  end(answers?: readonly PromiseSettledResult<string>[]): void;
  fail(error: Error): void;
}

/** Calls whose groups a test ends. */
function grouped(): { readonly calls: GroupedCalls<string, string>; readonly groups: Group[] } {
  const groups: Group[] = [];
  const calls = new GroupedCalls<string, string>(
    (given, _, gathers) =>
      new Promise((resolve, reject) => {
        const answers = given.map((value) => ({ status: 'fulfilled' as const, value }));
        groups.push({ calls: given, gathers, end: (other) => resolve(other ?? answers), fail: reject });
      }),
  );
  return { calls, groups };
}

/** A few turns of the event loop: time for the next group to start. */
async function turns(): Promise<void> {
  for (let count = 0; count < 4; count += 1) await setImmediate();
}

test('calls of one key that arrive while a group runs form the next group', async () => {
  const { calls, groups } = grouped();
  const first = calls.call('key', 'a');
  await turns();
  const answers = [first, calls.call('key', 'b'), calls.call('key', 'c')];
  await turns();
  expect(groups.map((group) => group.calls)).toEqual([['a']]);
  groups[0]?.end();
  await turns();
  expect(groups.map((group) => group.calls)).toEqual([['a'], ['b', 'c']]);
  groups[1]?.end();
  expect(await Promise.all(answers)).toEqual(['a', 'b', 'c']);
});

test('calls of different keys run at the same time', async () => {
  const { calls, groups } = grouped();
  const answers = [calls.call('one', 'a'), calls.call('two', 'b')];
  await turns();
  expect(groups.map((group) => group.calls)).toEqual([['a'], ['b']]);
  for (const group of groups) group.end();
  expect(await Promise.all(answers)).toEqual(['a', 'b']);
});

test('a rejected call does not affect the others of its group', async () => {
  const { calls, groups } = grouped();
  const answers = Promise.allSettled(['a', 'b'].map((name) => calls.call('key', name)));
  await turns();
  groups[0]?.end([
    { status: 'rejected', reason: 'refused' },
    { status: 'fulfilled', value: 'b' },
  ]);
  expect((await answers).map(({ status }) => status)).toEqual(['rejected', 'fulfilled']);
});

test('a group that fails rejects all its calls, and the calls after it run', async () => {
  const { calls, groups } = grouped();
  const failed = Promise.allSettled([calls.call('key', 'a')]);
  await turns();
  const after = calls.call('key', 'b');
  groups[0]?.fail(new Error('the connection is lost'));
  expect((await failed)[0]?.status).toBe('rejected');
  await turns();
  groups[1]?.end();
  expect(await after).toBe('b');
  const later = calls.call('key', 'c');
  await turns();
  groups[2]?.end();
  expect(await later).toBe('c');
});

test('callers that a group answered call again in one group', async () => {
  const { calls, groups } = grouped();
  const caller = async (name: string, at: number): Promise<void> => {
    await calls.call('key', name);
    // As in handlers: promises, and not the same number of them, are between an answer and the next call.
    for (let count = 0; count < 10 * at; count += 1) await null;
    await calls.call('key', name);
  };
  const callers = Promise.all(['a', 'b', 'c'].map(caller));
  await turns();
  groups[0]?.end();
  await turns();
  groups[1]?.end();
  await callers;
  expect(groups.map((group) => group.calls.length)).toEqual([3, 3]);
});

test('the next group runs before the callers of the last one go on', async () => {
  const { calls, groups } = grouped();
  const first = calls.call('key', 'a').then(() => groups.length);
  await turns();
  const second = calls.call('key', 'b');
  groups[0]?.end();
  expect(await first).toBe(2);
  groups[1]?.end();
  await second;
});

test('a group that waited for its lock runs with the calls that arrived meanwhile, at most 64', async () => {
  const { calls, groups } = grouped();
  const answers = [calls.call('key', '0')];
  await turns();
  for (let at = 1; at < 70; at += 1) answers.push(calls.call('key', String(at)));
  groups[0]?.end([]);
  await turns();
  expect(groups.map((group) => [group.calls.length, group.gathers])).toEqual([
    [1, true],
    [64, false],
  ]);
  groups[1]?.end();
  await turns();
  groups[2]?.end();
  expect(await Promise.all(answers)).toEqual(answers.map((_, at) => String(at)));
});

test('a group has at most 64 calls', async () => {
  const { calls, groups } = grouped();
  const answers = Array.from({ length: 70 }, (_, at) => calls.call('key', String(at)));
  for (let at = 0; at < 2; at += 1) {
    await turns();
    groups[at]?.end();
  }
  expect(groups.map((group) => group.calls.length)).toEqual([64, 6]);
  expect(await Promise.all(answers)).toEqual(Array.from({ length: 70 }, (_, at) => String(at)));
});
