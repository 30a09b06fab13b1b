import type { Paths } from '../../config/paths.ts';
import { callControl } from '../../control/client.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { heldText, visible } from '../../mount/mount-event.ts';
import type { CommandOutput } from '../command-output.ts';
import type { ServiceWait } from '../service-wait.ts';
import { mountAndPath } from './sync.ts';

export interface PathFlags {
  /** A file or folder in the mount; null: everything. */
  readonly file: string | null;
  readonly account: string | null;
}

/**
 * `cfs refresh [PATH]`: lists a folder again (without a path: all folders in use), and returns when the
 * mount shows the result. Names removals that wait for confirmation; `accept` confirms them.
 */
export async function refreshCommand(
  deps: CommandOutput & { readonly paths: Paths; readonly wait: ServiceWait },
  flags: PathFlags & { readonly accept: boolean },
): Promise<number> {
  const { mount, path } = await mountAndPath(deps.paths, flags);
  const { held } = await deps.wait.for(mount.status.account.origin, (signal) =>
    callControl(mount.socketPath, 'refresh', { path, accept: flags.accept }, { signal }),
  );
  for (const each of held) deps.warn(`held back: ${heldText(each)}\n`);
  const shown = visible(flags.file ?? mount.status.directory);
  deps.print(
    `${shown} shows the state of the service${held.length > 0 ? ', except for the removals that are held back' : ''}\n`,
  );
  return exitCode('ok');
}

/** `cfs retry [PATH]`: retries parked changes. */
export async function retryCommand(deps: CommandOutput & { paths: Paths }, flags: PathFlags): Promise<number> {
  const { mount, path } = await mountAndPath(deps.paths, flags);
  const { retried } = await callControl(mount.socketPath, 'retry', { path });
  deps.print(
    retried === 0 ? 'nothing is parked\n' : `retrying ${retried} parked ${retried === 1 ? 'change' : 'changes'}\n`,
  );
  return exitCode('ok');
}
