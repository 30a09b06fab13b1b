import type { Clock } from '../../base/clock.ts';
import { localTime } from '../../base/local-time.ts';
import type { Paths } from '../../config/paths.ts';
import { callControl } from '../../control/client.ts';
import { exitCode } from '../../mount/exit-codes.ts';

import { chooseMount } from '../../mount/running-mounts.ts';
import type { CommandOutput } from '../command-output.ts';

/**
 * `cfs pause [--for DURATION]`: the mount pushes nothing and fetches no pinned files from now on. Reads still fetch what is
 * not here. A second call gives the pause another end.
 */
export async function pauseCommand(
  deps: CommandOutput & { readonly paths: Paths; readonly clock: Clock },
  flags: { readonly account: string | null; readonly forMs: number | null },
): Promise<number> {
  const { socketPath } = await chooseMount(deps.paths, { directory: null, account: flags.account });
  const untilMs = flags.forMs === null ? null : deps.clock.nowMs() + flags.forMs;
  const { waiting } = await callControl(socketPath, 'pause', { untilMs });
  const until = untilMs === null ? 'until cfs resume' : `until ${localTime(untilMs)}`;
  deps.print(`pushing is paused ${until}; ${changes(waiting)}\n`);
  return exitCode('ok');
}

/** `cfs resume`: ends the pause; what waits is pushed. */
export async function resumeCommand(
  deps: CommandOutput & { readonly paths: Paths },
  flags: { readonly account: string | null },
): Promise<number> {
  const { socketPath } = await chooseMount(deps.paths, { directory: null, account: flags.account });
  const { wasPaused, waiting } = await callControl(socketPath, 'resume', {});
  deps.print(wasPaused ? `pushing is resumed; ${changes(waiting)}\n` : 'pushing is not paused\n');
  return exitCode('ok');
}

function changes(count: number): string {
  return count === 1 ? '1 change waits' : `${count} changes wait`;
}
