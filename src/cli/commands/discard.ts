import type { Paths } from '../../config/paths.ts';
import { callControl } from '../../control/client.ts';
import type { DiscardedChange } from '../../control/status-model.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import type { CommandOutput } from '../command-output.ts';
import { mountAndPath } from './sync.ts';

export interface DiscardFlags {
  readonly file: string;
  readonly account: string | null;
  /** Without it nothing is discarded: the changes are only listed. */
  readonly isSure: boolean;
}

const WORDS: Readonly<Record<DiscardedChange['change'], string>> = {
  made: 'is removed (it exists only on this machine)',
  changed: 'returns to the version of the service',
  moved: 'moves back to its old place',
  deleted: 'is restored',
};

/**
 * `cfs discard PATH --yes`: drops the pending and parked changes there and returns to the state of the service. Without
 * `--yes` it lists these changes and the bytes that would be lost (exit code pending).
 */
export async function discardCommand(deps: CommandOutput & { paths: Paths }, flags: DiscardFlags): Promise<number> {
  const { mount, path } = await mountAndPath(deps.paths, flags);
  const { given } = await callControl(mount.socketPath, 'discard', { path, isSure: flags.isSure });
  for (const { path, change, lostBytes } of given) {
    const lost = lostBytes > 0 ? ` (${lostBytes} bytes exist nowhere else)` : '';
    deps.print(`${visible(path)} ${WORDS[change]}${lost}\n`);
  }
  if (given.length === 0) {
    deps.print('nothing to discard there\n');
    return exitCode('ok');
  }
  if (flags.isSure) return exitCode('ok');
  const lostBytes = given.reduce((sum, each) => sum + each.lostBytes, 0);
  deps.warn(
    lostBytes > 0
      ? `nothing was changed: ${lostBytes} bytes would be lost permanently; add --yes to discard\n`
      : 'nothing was changed: add --yes to discard\n',
  );
  return exitCode('pending');
}
