import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { UsageError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import type { ControlHandlers } from '../../src/control/methods.ts';
import { ControlServer } from '../../src/control/server.ts';
import type { Status } from '../../src/control/status-model.ts';
import { exitCode } from '../../src/mount/exit-codes.ts';
import { afterHandover } from '../../src/mount/handover.ts';
import { SCHEMA_VERSION } from '../../src/store/schema-version.ts';
import { idleStatus } from '../control/idle-status.ts';

/** A start in a session, and the mount that has the store: it drains until it is asked to put the store down. */
async function startBeside(owner: {
  readonly at: 'session' | 'boot';
  readonly status?: Partial<Status>;
}): Promise<{ opened: string; limits: unknown[] }> {
  const directory = mkdtempSync(join(tmpdir(), 'cfs-handover-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const sockets = { session: join(directory, 'session/s'), boot: join(directory, 'boot/s') };
  const limits: unknown[] = [];
  const handlers = {
    status: () => idleStatus({ phase: 'draining', storeLayout: SCHEMA_VERSION, ...owner.status }),
    umount: ({ timeoutMs }) => {
      limits.push(timeoutMs);
      return { pending: 0, parked: 0 } as never;
    },
  } as Partial<ControlHandlers> as ControlHandlers;
  const control = new ControlServer({ socketPath: sockets[owner.at], handlers, clock: systemClock, log: silentLogger });
  await control.listen();
  onTestFinished(() => control.close());
  const deadline = performance.now() + 2_000; // far before a start gives up by itself

  const deps = { socketPath: sockets.session, bootSocketPath: sockets.boot, clock: systemClock };
  const opened = await afterHandover(deps, async () => {
    if (limits.length > 0) return 'opened';
    const code = performance.now() < deadline ? 'alreadyMounted' : 'failure';
    throw new UsageError('the store is in use by process 1', exitCode(code));
  });
  return { opened, limits };
}

test.each(['session', 'boot'] as const)(
  'a mount that drains, made in a %s, is asked to put the store down',
  async (at) => {
    expect(await startBeside({ at })).toEqual({ opened: 'opened', limits: [0] });
  },
);

test.each(['draining', 'running'] as const)(
  'a mount that is %s and stores another layout is not taken over, in both directions',
  async (phase) => {
    for (const storeLayout of [SCHEMA_VERSION - 1, SCHEMA_VERSION + 1]) {
      const status = { phase, storeLayout, version: '9.9.9-1', directory: '/not/mounted' };
      await expect(startBeside({ at: 'session', status })).rejects.toMatchObject({
        message: expect.stringMatching(/^a mount of version 9\.9\.9-1 is ending .* another layout/),
        exitCode: exitCode('alreadyMounted'),
      });
    }
  },
);

test('a mount that reports no layout has layout 3', async () => {
  const started = startBeside({ at: 'session', status: { storeLayout: undefined as never } });

  await expect(started).rejects.toThrow('another layout');
});
