import { expect, test } from 'vitest';
import { togetherOrApart } from '../../../src/server/postgres/postgres-rows.ts';
import { notFound, Refusal } from '../../../src/server/refusal.ts';

const refusing = (error: Error) => {
  const runs: boolean[] = [];
  const run = async (apart: boolean): Promise<string[]> => {
    runs.push(apart);
    if (!apart) throw error;
    return ['apart'];
  };
  return { runs, run };
};

test('a group that one call makes a refusal of is run again with a change for each call', async () => {
  const { runs, run } = refusing(notFound());
  expect(await togetherOrApart(2, run)).toEqual(['apart']);
  expect(runs).toEqual([false, true]);
});

test('the refusal of a single call is its answer', async () => {
  const { runs, run } = refusing(notFound());
  await expect(togetherOrApart(1, run)).rejects.toMatchObject({ status: 404 });
  expect(runs).toEqual([false]);
});

test.each([new Refusal(503, 'The database does not answer'), new Error('of the program')])(
  'a group whose outcome is unknown is not run again (%s)',
  async (error) => {
    const { runs, run } = refusing(error);
    await expect(togetherOrApart(2, run)).rejects.toBe(error);
    expect(runs).toEqual([false]);
  },
);
