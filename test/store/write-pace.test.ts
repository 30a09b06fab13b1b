import { expect, test } from 'vitest';
import { WritePace } from '../../src/bytes/write-pace.ts';
import { ManualClock } from '../tree/tree-fixture.ts';

test('a write that takes long is noticed, and the next ones go through the pool until it was quiet for a second', async () => {
  const clock = new ManualClock();
  const pace = new WritePace({ clock });
  const taking = (ms: number) => (): void => clock.advance(ms);

  pace.timed(taking(2));
  expect(pace.isHeldUp).toBe(false);
  pace.timed(taking(3));
  expect(pace.isHeldUp).toBe(true);

  clock.advance(900);
  await pace.timedLater(async () => clock.advance(50));
  clock.advance(900);
  await pace.timedLater(async () => clock.advance(1));
  expect(pace.isHeldUp).toBe(true);
  clock.advance(100);
  expect(pace.isHeldUp).toBe(false);
});

test('a write that fails holds nobody up', () => {
  const clock = new ManualClock();
  const pace = new WritePace({ clock });
  const failing = (): void => {
    clock.advance(10);
    throw new Error('no space');
  };

  expect(() => pace.timed(failing)).toThrow('no space');
  expect(pace.isHeldUp).toBe(false);
});
