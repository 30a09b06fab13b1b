import { expect, test } from 'vitest';
import { Turns } from '../../src/server/turns.ts';

/** Work whose end the test says. */
function work() {
  const begun: number[] = [];
  const ends: (() => void)[] = [];
  const begin = (nth: number) => (): Promise<number> => {
    begun.push(nth);
    return new Promise((resolve) => void ends.push(() => resolve(nth)));
  };
  return { begun, ends, begin };
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

test('a limited number runs at once, and the others follow in order', async () => {
  const turns = new Turns({ atOnceMax: 2, waitingMax: 10 });
  const { begun, ends, begin } = work();

  const done = [0, 1, 2, 3].map((nth) => turns.inTurn(begin(nth)));
  await settled();
  expect(begun).toEqual([0, 1]);

  ends[1]?.();
  await settled();
  expect(begun).toEqual([0, 1, 2]);

  ends[0]?.();
  ends[2]?.();
  await settled();
  ends[3]?.();
  expect(await Promise.all(done)).toEqual([0, 1, 2, 3]);
});

test('one too many is told to come again, and takes nobody’s turn', async () => {
  const turns = new Turns({ atOnceMax: 1, waitingMax: 1 });
  const { begun, ends, begin } = work();
  const done = [0, 1].map((nth) => turns.inTurn(begin(nth)));

  await expect(turns.inTurn(begin(2))).rejects.toMatchObject({ status: 503, headers: { 'Retry-After': '1' } });

  ends[0]?.();
  await settled();
  ends[1]?.();
  await Promise.all(done);
  const later = turns.inTurn(begin(3));
  ends[2]?.();
  expect(await later).toBe(3);
  expect(begun).toEqual([0, 1, 3]);
});

test('what fails gives its turn on', async () => {
  const turns = new Turns({ atOnceMax: 1, waitingMax: 1 });
  const failing = turns.inTurn(() => Promise.reject(new Error('no')));
  const next = turns.inTurn(async () => 'yes');

  await expect(failing).rejects.toThrow('no');
  expect(await next).toBe('yes');
});
