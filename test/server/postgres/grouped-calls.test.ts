import { setImmediate } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { GroupedCalls, type GroupOutcome } from '../../../src/server/postgres/grouped-calls.ts';

interface Group {
  readonly calls: readonly string[];
  readonly gathers: boolean;
  end(outcome?: Partial<GroupOutcome<string>>): void;
  fail(error: Error): void;
}

/** A time that no test reaches. */
const NEVER_MS = 600_000;

/** Calls whose groups a test ends. */
function grouped(heldBackMs = NEVER_MS): { readonly calls: GroupedCalls<string, string>; readonly groups: Group[] } {
  const groups: Group[] = [];
  const calls = new GroupedCalls<string, string>(
    (given, _, gathers) =>
      new Promise((resolve, reject) => {
        const answers = given.map((value) => ({ status: 'fulfilled' as const, value }));
        const end = (outcome = {}): void => resolve({ answers, hasWaited: false, ...outcome });
        groups.push({ calls: given, gathers, end, fail: reject });
      }),
    { heldBackMs },
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
  groups[0]?.end({
    answers: [
      { status: 'rejected', reason: 'refused' },
      { status: 'fulfilled', value: 'b' },
    ],
  });
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
  const { calls, groups } = grouped(1);
  const answers = [calls.call('key', '0')];
  await turns();
  for (let at = 1; at < 70; at += 1) answers.push(calls.call('key', String(at)));
  groups[0]?.end({ answers: [], hasWaited: true });
  await turns();
  expect(groups.map((group) => [group.calls.length, group.gathers])).toEqual([
    [1, true],
    [64, false],
  ]);
  groups[1]?.end();
  await vi.waitFor(() => expect(groups.length).toBe(3));
  groups[2]?.end();
  expect(await Promise.all(answers)).toEqual(answers.map((_, at) => String(at)));
});

test('after a group that waited, the next one is held back for as many calls as were there, and waits only once', async () => {
  const { calls, groups } = grouped();
  const first = calls.call('key', 'a');
  await turns();
  const answers = [first, calls.call('key', 'b')];
  groups[0]?.end({ hasWaited: true });
  await first;
  await turns();
  expect(groups.length).toBe(1);
  answers.push(calls.call('key', 'c'));
  await turns();
  expect(groups.map((group) => [group.calls, group.gathers])).toEqual([
    [['a'], true],
    [['b', 'c'], false],
  ]);
  groups[1]?.end();
  expect(await Promise.all(answers)).toEqual(['a', 'b', 'c']);
});

test('a lone caller is never held back', async () => {
  const { calls, groups } = grouped();
  for (let at = 0; at < 3; at += 1) {
    const answer = calls.call('key', String(at));
    await turns();
    groups[at]?.end({ hasWaited: true });
    expect(await answer).toBe(String(at));
  }
  expect(groups.map(({ gathers }) => gathers)).toEqual([true, false, false]);
});

test('a group that is held back runs without callers that do not come, and the next one is not held back for them', async () => {
  const { calls, groups } = grouped(1);
  const answers = ['a', 'b'].map((name) => calls.call('key', name));
  await turns();
  groups[0]?.end({ hasWaited: true });
  await Promise.all(answers);
  const alone = calls.call('key', 'c');
  await vi.waitFor(() => expect(groups.length).toBe(2));
  expect(groups[1]).toMatchObject({ calls: ['c'], gathers: true });
  groups[1]?.end({ hasWaited: true });
  await alone;
  const again = calls.call('key', 'd');
  await turns();
  expect(groups[2]).toMatchObject({ calls: ['d'], gathers: false });
  groups[2]?.end();
  await again;
});

test('groups are no longer held back after eight of them that did not wait', async () => {
  const { calls, groups } = grouped();
  const callTwice = (): Promise<unknown> => Promise.all(['a', 'b'].map((name) => calls.call('key', name)));
  for (let at = 0; at < 9; at += 1) {
    const answers = callTwice();
    await turns();
    groups[at]?.end({ hasWaited: at === 0 });
    await answers;
  }
  const alone = calls.call('key', 'alone');
  await turns();
  expect(groups.map(({ gathers }) => gathers)).toEqual([true, ...Array<boolean>(8).fill(false), true]);
  groups[9]?.end();
  expect(await alone).toBe('alone');
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
