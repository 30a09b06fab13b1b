import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLogger } from '../../src/base/log.ts';
import { accountPaths, pathsOf } from '../../src/config/paths.ts';
import type { ControlHandlers } from '../../src/control/methods.ts';
import { ControlServer } from '../../src/control/server.ts';
import { idleStatus } from '../control/idle-status.ts';
import type { CommandHome } from './cli-harness.ts';

/** A mount as far as commands speak with it: it answers at the socket of the account (or that of one made at boot), and its directory is a plain one. */
export async function answeringMount(
  home: CommandHome,
  mount: { readonly name: string; readonly directory: string },
  handlers: Partial<ControlHandlers> = {},
  at: 'in a session' | 'at boot' = 'in a session',
): Promise<void> {
  const files = accountPaths(pathsOf(home.env), mount.name);
  const socketPath = at === 'at boot' ? files.bootSocketPath : files.socketPath;
  mkdirSync(join(socketPath, '..'), { recursive: true, mode: 0o700 });
  const all = { status: () => idleStatus({ directory: mount.directory }), ...handlers } as ControlHandlers;
  const control = new ControlServer({ socketPath, handlers: all, clock: systemClock, log: silentLogger });
  await control.listen();
  onTestFinished(() => control.close());
}
