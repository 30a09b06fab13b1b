import { expect, test } from 'vitest';
import { SignInError, TransportError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import { Reachability } from '../../src/tree/reachability.ts';
import { ManualClock } from './tree-fixture.ts';

const offline = () => new TransportError('no route', { neverSent: true });

/** How long it pauses from now on. */
function pauseMs(reachability: Reachability, clock: ManualClock): number {
  const begunMs = clock.elapsedMs();
  while (reachability.pausing !== null) clock.advance(100);
  return clock.elapsedMs() - begunMs;
}

test('listings that fail together, or during the pause, are one failure; the next one after it makes the pause longer', () => {
  const clock = new ManualClock();
  const reachability = new Reachability({ clock, log: silentLogger });
  const pauses: number[] = [];

  for (let round = 0; round < 7; round++) {
    for (let listing = 0; listing < 8; listing++) reachability.unanswered(offline());
    clock.advance(500);
    reachability.unanswered(offline());
    pauses.push(500 + pauseMs(reachability, clock));
  }

  expect(pauses).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
});

test('a pause that somebody ended early is followed by one when that was in vain', () => {
  const clock = new ManualClock();
  const reachability = new Reachability({ clock, log: silentLogger });
  const sinceMs = clock.nowMs();
  reachability.unanswered(offline());

  reachability.tryNow();
  expect(reachability.pausing).toBeNull();
  reachability.unanswered(offline());

  expect(pauseMs(reachability, clock)).toBe(2_000);
  expect(reachability.awaySinceMs).toBe(sinceMs);
});

test('during a pause the last failure says why', () => {
  const reachability = new Reachability({ clock: new ManualClock(), log: silentLogger });
  reachability.unanswered(offline());
  const refused = new SignInError('not signed in');

  reachability.unanswered(refused);

  expect(reachability.pausing).toBe(refused);
});
