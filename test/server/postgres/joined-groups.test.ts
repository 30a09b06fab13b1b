import { setImmediate } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { type JoinedGroup, JoinedGroups } from '../../../src/server/postgres/joined-groups.ts';

interface Statement {
  readonly groups: readonly JoinedGroup<string>[];
  end(outcomes?: readonly (string | null)[]): void;
  fail(error: Error): void;
}

/** A time that no test reaches. */
const NEVER_MS = 600_000;

/** Groups of one call, whose statements a test ends. */
function joined({ callsMax = 64, waitMsMax = NEVER_MS } = {}) {
  const statements: Statement[] = [];
  const alone: string[] = [];
  const groups = new JoinedGroups<string, string>(
    (given) =>
      new Promise((resolve, reject) => {
        const answers = given.map(({ key }) => `${key} joined`);
        statements.push({ groups: given, end: (outcomes = answers) => resolve(outcomes), fail: reject });
      }),
    { callsMax, waitMsMax },
  );
  const run = (key: string, calls: readonly string[] = [key]): Promise<string> =>
    groups.outcome({
      key,
      take: (max) => calls.slice(0, max),
      alone: async () => {
        alone.push(key);
        return `${key} alone`;
      },
    });
  return { run, statements, alone, keys: () => statements.map(({ groups: given }) => given.map(({ key }) => key)) };
}

async function turns(): Promise<void> {
  for (let count = 0; count < 4; count += 1) await setImmediate();
}

test('groups that are ready at the same time share a statement, in the order of their keys', async () => {
  const { run, statements, keys } = joined();
  const outcomes = Promise.all([run('c'), run('a'), run('b')]);
  await turns();
  expect(keys()).toEqual([['a', 'b', 'c']]);
  statements[0]?.end();
  expect(await outcomes).toEqual(['c joined', 'a joined', 'b joined']);
});

test('a group that no other one joins runs alone', async () => {
  const { run, statements } = joined();
  expect(await run('a')).toBe('a alone');
  expect(statements).toEqual([]);
});

test('groups that are ready while a statement runs share the next one with those of its callers', async () => {
  const { run, statements, keys } = joined();
  const first = Promise.all([run('a'), run('b')]);
  await turns();
  const second = run('c');
  await turns();
  expect(keys()).toEqual([['a', 'b']]);
  statements[0]?.end();
  await first;
  const again = Promise.all([second, run('a'), run('b')]);
  await turns();
  expect(keys()).toEqual([
    ['a', 'b'],
    ['a', 'b', 'c'],
  ]);
  statements[1]?.end();
  await again;
});

test('a statement that hangs holds up only its own groups', async () => {
  const { run, statements } = joined({ waitMsMax: 1 });
  const hanging = Promise.all([run('a'), run('b')]);
  await turns();
  const others = Promise.all([run('c'), run('d')]);
  await vi.waitFor(() => expect(statements.length).toBe(2));
  statements[1]?.end();
  expect(await others).toEqual(['c joined', 'd joined']);
  statements[0]?.end();
  await hanging;
});

test('a group without an outcome runs alone, and the others keep theirs', async () => {
  const { run, statements, alone } = joined();
  const outcomes = Promise.all([run('a'), run('b')]);
  await turns();
  statements[0]?.end([null, 'b joined']);
  expect(await outcomes).toEqual(['a alone', 'b joined']);
  expect(alone).toEqual(['a']);
});

test('a statement that fails rejects its groups, and runs none of them again', async () => {
  const { run, statements, alone } = joined();
  const outcomes = Promise.allSettled([run('a'), run('b')]);
  await turns();
  statements[0]?.fail(new Error('the connection is lost'));
  expect((await outcomes).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  expect(alone).toEqual([]);
  const later = Promise.all([run('c'), run('d')]);
  await turns();
  statements[1]?.end();
  expect(await later).toEqual(['c joined', 'd joined']);
});

test('a statement has at most as many calls as allowed, and groups that find no room run alone', async () => {
  const { run, statements } = joined({ callsMax: 3 });
  const outcomes = Promise.all([run('a', ['1', '2']), run('b', ['3', '4']), run('c')]);
  await turns();
  expect(statements[0]?.groups).toEqual([
    { key: 'a', calls: ['1', '2'] },
    { key: 'b', calls: ['3'] },
  ]);
  statements[0]?.end();
  expect(await outcomes).toEqual(['a joined', 'b joined', 'c alone']);
});
