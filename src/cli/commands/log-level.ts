import { LOG_LEVELS } from '../../base/log-level.ts';
import type { Paths } from '../../config/paths.ts';
import { callControl } from '../../control/client.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { chooseMount } from '../../mount/running-mounts.ts';

/** `cfs log-level [LEVEL]`: sets the log level of a running mount until it ends; without LEVEL it prints the level. */
export async function logLevelCommand(
  deps: { readonly paths: Paths; readonly print: (text: string) => void },
  flags: { readonly level: string | null; readonly account: string | null },
): Promise<number> {
  const { socketPath } = await chooseMount(deps.paths, { directory: null, account: flags.account });
  const wanted = LOG_LEVELS.find((level) => level === flags.level) ?? null;
  const { level } = await callControl(socketPath, 'logLevel', { level: wanted });
  deps.print(`${level}\n`);
  return exitCode('ok');
}
