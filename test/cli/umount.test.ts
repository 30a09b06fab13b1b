import { mkdirSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { umountCommand } from '../../src/cli/commands/umount.ts';
import { pathsOf } from '../../src/config/paths.ts';
import type { ControlHandlers } from '../../src/control/methods.ts';
import { ControlServer } from '../../src/control/server.ts';
import { idleStatus } from '../control/idle-status.ts';
import { type DeadButListed, deadButListed } from '../harness/dead-but-listed.ts';
import { CommandHome } from './cli-harness.ts';

let home: CommandHome;
let ended: DeadButListed;
beforeEach(async () => {
  home = new CommandHome();
  mkdirSync(home.path('state/cfs'));
  ended = await deadButListed();
});
afterEach(async () => {
  await ended.dispose();
  home.dispose();
});

test('cfs umount does not wait until somebody has asked for the process that ended', async () => {
  const { socketPath } = home.plantAccount();
  const handlers = {
    status: () => idleStatus({ pid: ended.pid }),
    umount: () => ({ pending: 0, parked: 0, left: [], busy: false }),
  } as unknown as ControlHandlers;
  const control = new ControlServer({ socketPath, handlers, clock: systemClock, log: silentLogger });
  await control.listen();
  try {
    const output = { print: () => {}, warn: () => {}, redraw: null };
    // No wait of its own is ever over.
    const clock = { ...systemClock, elapsedMs: () => 0 };
    const flags = { directory: null, account: null, timeoutMs: null };

    expect(await umountCommand({ ...output, paths: pathsOf(home.env), clock }, flags)).toBe(0);
  } finally {
    await control.close();
  }
});
