import { beforeEach, describe, expect, test } from 'vitest';
import { SignInError, TransportError } from '../../src/base/errors.ts';
import { ServiceHealth } from '../../src/base/service-health.ts';
import { ManualClock } from '../tree/tree-fixture.ts';

const offline = () => new TransportError('no route', { neverSent: true });

let clock: ManualClock;
let health: ServiceHealth;
/** Notices that the service is reachable again. */
let notices: number;

beforeEach(() => {
  clock = new ManualClock();
  clock.random = () => 1;
  health = new ServiceHealth({ clock });
  notices = 0;
  health.onReachable(() => {
    notices++;
  });
});

const pushPauseMs = () => Math.max(0, health.retryAtMs - clock.elapsedMs());

/** Lets the pause of listings end. @returns its length, ms */
function passPause(): number {
  const begunMs = clock.elapsedMs();
  while (health.pausing !== null) clock.advance(100);
  return clock.elapsedMs() - begunMs;
}

describe('a service that does not answer', () => {
  test('pauses listings and pushes; failures during one pause do not extend it, the next failure doubles it', () => {
    const pauses: number[] = [];
    for (let round = 0; round < 7; round++) {
      for (let listing = 0; listing < 8; listing++) health.unanswered(offline());
      clock.advance(500);
      health.unanswered(offline());
      expect(pushPauseMs()).toBeGreaterThan(0);
      pauses.push(500 + passPause());
      expect(pushPauseMs()).toBe(0);
    }
    expect(pauses).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
  });

  test('is probed by one push at a time until a request is answered', () => {
    health.unanswered(offline());
    passPause();
    expect([health.isProbing, health.failure]).toEqual([true, expect.any(TransportError)]);
    health.answered('reader');
    expect([health.isProbing, health.failure, notices]).toEqual([false, null, 1]);
  });

  test('is retried immediately after an answer to another request, and the pauses start at the first again', () => {
    for (let round = 0; round < 4; round++) {
      health.unanswered(offline());
      passPause();
    }
    health.unanswered(offline());
    health.reachable();
    expect([health.pausing, pushPauseMs(), notices]).toEqual([null, 0, 1]);
    health.unanswered(offline());
    expect(passPause()).toBe(1_000);
  });

  test('is retried when a person asks; without an answer the next pause is longer', () => {
    health.unanswered(offline());
    health.retryNow();
    expect([health.pausing, pushPauseMs(), health.isProbing]).toEqual([null, 0, true]);
    health.unanswered(offline());
    expect(passPause()).toBe(2_000);
  });

  test('gives the last failure as the reason of the pause', () => {
    health.unanswered(offline());
    const refused = new SignInError('not signed in');
    health.unanswered(refused);
    expect(health.pausing).toBe(refused);
  });
});

describe('an overloaded service', () => {
  test('pauses pushes, but not listings, and an answer to a listing does not end that', () => {
    health.overloaded(null);
    health.answered('opener');
    expect([health.pausing, pushPauseMs(), health.isProbing, notices]).toEqual([null, 1_000, true, 0]);
    health.pushed();
    expect([pushPauseMs(), health.isProbing]).toEqual([0, false]);
  });

  test('is left alone for the time that it asked for, except by a person', () => {
    health.overloaded(120_000);
    health.reachable();
    health.pushed();
    expect(pushPauseMs()).toBe(120_000);
    health.retryNow();
    expect(pushPauseMs()).toBe(0);
  });

  test('that asks for a pause of years is asked again after ten minutes', () => {
    health.overloaded(999_999_999_000);
    expect(pushPauseMs()).toBe(10 * 60_000);
  });

  test('is a service that answers several files in a row with errors; one file alone may be the cause itself', () => {
    for (let push = 0; push < 5; push++) health.erred('one file');
    health.erred('second file');
    health.pushed();
    health.erred('third file');
    expect([pushPauseMs(), health.isProbing]).toEqual([0, false]);
    for (const file of ['fourth', 'fifth']) health.erred(file);
    expect([pushPauseMs(), health.isProbing]).toEqual([1_000, true]);
  });
});

test('a wait that timed out shortens the next one of its kind, until a request of that kind is answered', () => {
  health.timedOut('reader');
  health.timedOut('opener');
  health.answered('opener');
  expect([health.hasTimedOut('reader'), health.hasTimedOut('opener')]).toEqual([true, false]);
  health.bytesCame();
  expect([health.hasTimedOut('reader'), health.bytesCameMs]).toEqual([false, clock.elapsedMs()]);
  health.timedOut('reader');
  health.timedOut('opener');
  health.reachable();
  expect([health.hasTimedOut('reader'), health.hasTimedOut('opener')]).toEqual([false, false]);
});
