import { expect, test } from 'vitest';
import type { MountEvent } from '../../src/control/event-model.ts';
import { ConnectionWatch } from '../../src/mount/connection-watch.ts';
import type { ConnectivityState } from '../../src/transfer/connectivity.ts';
import { ManualClock } from '../kernel/manual-clock.ts';

/** A connection whose service comes and goes by `online`, and what it caused. */
function connection({ signInRequired = false } = {}) {
  const service = { signInRequired };
  const clock = new ManualClock();
  const happened: string[] = [];
  let state: ConnectivityState = { online: null, lastAnswerMs: null, offlineSinceMs: null, failure: null };
  let changed = (_state: ConnectivityState): void => {};
  const watch = new ConnectionWatch({
    service,
    connectivity: {
      get state() {
        return state;
      },
      onChange: (listener) => {
        changed = listener;
        return () => {};
      },
    },
    route: { proxy: null },
    signIns: { start: () => happened.push('looks for sign-ins'), stop: () => happened.push('looks no more') },
    mount: {
      reachable: async () => void happened.push('reachable'),
      unreachable: async () => void happened.push('unreachable'),
    },
    onEvent: (event: MountEvent) => happened.push(JSON.stringify(event)),
    onChange: () => {},
    clock,
  });
  const online = (isOnline: boolean): void => {
    state = { ...state, online: isOnline };
    changed(state);
  };
  return { watch, service, clock, online, happened };
}

test('an outage and its end are events with a reason and a duration, each once', () => {
  const { watch, clock, online, happened } = connection();
  watch.report();
  online(true);
  online(false);
  online(false);
  clock.advance(5_000);
  online(true);
  online(true);
  expect(happened).toEqual([
    'reachable',
    'unreachable',
    '{"type":"offline","reason":"the service does not answer"}',
    'reachable',
    '{"type":"online","offlineMs":5000}',
  ]);
});

test('before the mount has reported its first state, the Worker hears of changes and people do not', () => {
  const { watch, online, happened } = connection();
  online(false);
  expect(watch.status).toMatchObject({ state: 'offline', reason: 'the service does not answer' });
  expect(happened).toEqual(['unreachable']);
});

test('a refused sign-in is reported once, stays through an outage, and ends with an accepted one', () => {
  const { watch, service, online, happened } = connection();
  watch.report();
  online(true);
  happened.length = 0;
  service.signInRequired = true;
  watch.signInRequired();
  watch.signInRequired();
  online(false);
  online(true); // reachable, and refuses still
  expect(watch.status).toMatchObject({ state: 'sign-in-needed', reason: 'the service refuses the saved sign-in' });
  expect(happened.filter((what) => what.startsWith('{'))).toEqual(['{"type":"sign-in-needed"}']);
  service.signInRequired = false;
  watch.signedIn();
  expect(watch.status.state).toBe('online');
  expect(happened.slice(-3)).toEqual(['looks no more', 'reachable', '{"type":"online","offlineMs":0}']);
});
