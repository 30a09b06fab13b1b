import { expect, test } from 'vitest';
import { ServiceManager } from '../../src/cli/launch/service-manager.ts';

const signEveryMs = (microseconds: number): number | null | undefined =>
  ServiceManager.of({ NOTIFY_SOCKET: '/run/notify', WATCHDOG_USEC: `${microseconds}` })?.signEveryMs;

test('a sign of life is given twice in the time that systemd allows', () => {
  expect(signEveryMs(180e6)).toBe(90_000);
  expect(signEveryMs(0)).toBeNull();
});

test('a watchdog interval of months does not exceed the timer limit of Node', () => {
  expect(signEveryMs(60 * 86_400e6)).toBe(3_600_000);
});
