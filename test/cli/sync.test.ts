import { mkdirSync } from 'node:fs';
import { afterEach, beforeEach, expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { UsageError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import { syncCommand } from '../../src/cli/commands/sync.ts';
import { pathsOf } from '../../src/config/paths.ts';
import type { ControlHandlers } from '../../src/control/methods.ts';
import { ControlServer } from '../../src/control/server.ts';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { idleStatus } from '../control/idle-status.ts';
import { ManualClock } from '../kernel/manual-clock.ts';
import { CommandHome } from './cli-harness.ts';

const DAY_MS = 86_400_000;

let home: CommandHome;
beforeEach(() => {
  home = new CommandHome();
  mkdirSync(home.path('state/cfs'));
});
afterEach(() => home.dispose());

/** `cfs sync --wait --timeout` beside a mount that has been asked, and answers when it is told to. */
async function waiting(timeoutMs: number) {
  const clock = new ManualClock();
  const { socketPath } = home.plantAccount();
  let answer = (): void => {};
  let sync: ControlHandlers['sync'] = () => ({ pushed: 0, parked: [], open: 0 });
  const asked = new Promise<void>((resolve) => {
    sync = () => {
      resolve();
      return new Promise((give) => {
        answer = () => give({ pushed: 1, parked: [], open: 0 });
      });
    };
  });
  const handlers = { status: () => idleStatus(), sync } as unknown as ControlHandlers;
  const control = new ControlServer({ socketPath, handlers, clock: systemClock, log: silentLogger });
  await control.listen();
  onTestFinished(async () => {
    answer();
    await control.close();
  });
  const output = { print: () => {}, warn: () => {}, redraw: null };
  const flags = { file: null, account: null, wait: true, timeoutMs };
  const ended = syncCommand({ ...output, paths: pathsOf(home.env), clock }, flags);
  await Promise.race([asked, ended]);
  return { clock, ended, answer };
}

// More than one timer of Node can wait, and more than `AbortSignal.timeout` takes.
const TIMEOUTS_MS = [60_000, 25 * DAY_MS, 60 * DAY_MS];

test.each(TIMEOUTS_MS)('cfs sync --wait with a --timeout of %i ms waits until that is over', async (timeoutMs) => {
  const { clock, ended, answer } = await waiting(timeoutMs);

  clock.advance(timeoutMs - 1);
  expect(clock.timers).toBe(1);
  answer();

  expect(await ended).toBe(0);
  expect(clock.timers).toBe(0);
});

test.each(TIMEOUTS_MS)('cfs sync --wait with a --timeout of %i ms waits no longer', async (timeoutMs) => {
  const { clock, ended } = await waiting(timeoutMs);
  expect(clock.timers).toBe(1);

  clock.advance(timeoutMs);

  await expect(ended).rejects.toBeInstanceOf(UsageError);
  await expect(ended).rejects.toMatchObject({ exitCode: exitCode('pending') });
});
