import { setMaxListeners } from 'node:events';
import { expect, test } from 'vitest';
import type { Status } from '../../src/control/status-model.ts';
import { Activity } from '../../src/mount/activity.ts';
import { watchMount } from '../../src/mount/mount-watch.ts';
import { idleStatus } from '../control/idle-status.ts';
import { ManualClock } from '../tree/tree-fixture.ts';

/** What a follower of a mount costs: reads of its status. */

const NO_EVENTS = { lastSeq: 0, since: () => [], subscribe: () => () => {} } as never;
const TRANSFER: Status['transfers'][number] = {
  ...{ path: 'film', direction: 'up' },
  ...{ doneBytes: 1, totalBytes: 2, bytesPerSecond: 1, leftMs: 1 },
};

function followed() {
  const clock = new ManualClock();
  const activity = new Activity({ clock });
  const end = new AbortController();
  setMaxListeners(0, end.signal); // the sleeps of the clock leave theirs
  const mount = { status: idleStatus(), looks: 0, seen: [] as string[] };
  const status = async () => {
    mount.looks += 1;
    return mount.status;
  };
  const progress = (message: { readonly type: string }) => mount.seen.push(message.type);
  const call = { signal: end.signal, progress } as never;
  const params = { since: 0, follow: true, status: true };
  const over = watchMount({ events: NO_EVENTS, status, activity, clock }, params, call);
  const passed = async (seconds: number) => {
    for (let second = 0; second < seconds; second++) {
      for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
      clock.advance(1_000);
    }
    for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
  };
  const stop = () => {
    end.abort();
    return over;
  };
  return { mount, activity, passed, stop };
}

/** [S-idle-1] */
test('a follower of an idle mount reads its status twice in a minute', async () => {
  const { mount, passed, stop } = followed();
  await passed(1);
  const before = mount.looks;
  await passed(62);
  expect(mount.looks - before).toBe(2);
  await stop();
});

test('a change is shown within a second, and a busy mount is read once a second', async () => {
  const { mount, activity, passed, stop } = followed();
  await passed(10);
  const before = mount.looks;
  mount.status = idleStatus({ pending: { count: 1, bytes: 1, changes: [] } });
  activity.happened();
  await passed(0);
  expect(mount.looks - before).toBe(1);
  expect(mount.seen).toEqual(['transfers', 'status', 'status']);
  for (let i = 0; i < 5; i++) {
    activity.happened();
    activity.happened();
    await passed(1);
  }
  expect(mount.looks - before).toBe(6);
  await stop();
});

test('a running transfer is followed once a second, without a change of the store', async () => {
  const { mount, activity, passed, stop } = followed();
  await passed(10);
  mount.status = idleStatus({ transfers: [TRANSFER] });
  activity.happened();
  await passed(0);
  const before = mount.looks;
  await passed(10);
  expect(mount.looks - before).toBe(10);
  await stop();
});

test('the end of a follower ends its wait', async () => {
  const { passed, stop } = followed();
  await passed(5);
  await expect(stop()).resolves.toEqual({ seq: 0 });
});
