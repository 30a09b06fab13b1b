import type { Paths } from '../../config/paths.ts';
import { parseBytes } from '../../config/units.ts';
import { callControl } from '../../control/client.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { shownRate } from '../../mount/mount-event.ts';
import { chooseMount } from '../../mount/running-mounts.ts';

/** Bytes per second, or no limit. */
export type Rate = number | 'off';

/** `2MiB`, `off`. @throws RangeError that continues "--flag: …" */
export function parseRate(text: string): Rate {
  if (text === 'off') return 'off';
  const bytes = parseBytes(text);
  if (bytes === 0) throw new RangeError('0 would stop all transfers: say off for no limit, or use cfs pause');
  return bytes;
}

/** `cfs limit [--up RATE] [--down RATE]`: holds until the mount ends; without flags it prints the limits. */
export async function limitCommand(
  deps: { readonly paths: Paths; readonly print: (text: string) => void },
  flags: { readonly up: Rate | null; readonly down: Rate | null; readonly account: string | null },
): Promise<number> {
  const { socketPath } = await chooseMount(deps.paths, { directory: null, account: flags.account });
  const wanted = {
    ...(flags.up !== null && { up: flags.up === 'off' ? null : flags.up }),
    ...(flags.down !== null && { down: flags.down === 'off' ? null : flags.down }),
  };
  const { up, down } = await callControl(socketPath, 'limit', wanted);
  deps.print(`up ${shownRate(up)}, down ${shownRate(down)}\n`);
  return exitCode('ok');
}
