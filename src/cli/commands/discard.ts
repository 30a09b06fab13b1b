import type { Paths } from '../../config/paths.ts';
import { callControl } from '../../control/client.ts';
import type { DiscardedChange } from '../../control/status-model.ts';
import { exitCode } from '../exit-codes.ts';
import { visible } from '../mount-event.ts';
import { type CommandOutput, mountAndPath } from './sync.ts';

export interface DiscardFlags {
  readonly file: string;
  readonly account: string | null;
  /** Without it nothing is given up: what would be is shown. */
  readonly isSure: boolean;
}

const WORDS: Readonly<Record<DiscardedChange['change'], string>> = {
  made: 'is on this machine only, and goes',
  changed: 'becomes what the service has',
  moved: 'goes back to its place',
  deleted: 'comes back',
};

/**
 * `cfs discard PATH --yes`: gives up what is pending or parked there; what is here becomes what the service has. Without
 * `--yes` it says what that would be, and what would be lost with it (pending).
 */
export async function discardCommand(deps: CommandOutput & { paths: Paths }, flags: DiscardFlags): Promise<number> {
  const { mount, path } = await mountAndPath(deps.paths, flags);
  const { given } = await callControl(mount.socketPath, 'discard', { path, isSure: flags.isSure });
  for (const { path, change, lostBytes } of given) {
    const lost = lostBytes > 0 ? ` (${lostBytes} bytes that are nowhere else)` : '';
    deps.print(`${visible(path)} ${WORDS[change]}${lost}\n`);
  }
  if (given.length === 0) {
    deps.print('nothing to give up there\n');
    return exitCode('ok');
  }
  if (flags.isSure) return exitCode('ok');
  const lostBytes = given.reduce((sum, each) => sum + each.lostBytes, 0);
  deps.warn(
    lostBytes > 0
      ? `nothing was done: ${lostBytes} bytes would be lost for good; say --yes to do it\n`
      : 'nothing was done: say --yes to do it\n',
  );
  return exitCode('pending');
}
