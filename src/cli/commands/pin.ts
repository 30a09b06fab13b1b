import type { Clock } from '../../base/clock.ts';
import type { Paths } from '../../config/paths.ts';
import { formatBytes } from '../../config/units.ts';
import { callControl } from '../../control/client.ts';
import type { PinnedPath } from '../../control/status-model.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import type { CommandOutput } from '../command-output.ts';
import { pinText } from './pin-text.ts';
import type { PathFlags } from './refresh.ts';
import { mountAndPath } from './sync.ts';

/**
 * `cfs pin PATH`: keeps a file, or the present and future contents of a folder, complete on this machine. Returns when everything is fetched
 * (ok), or when the service is unreachable (pending); the mount then fetches the rest later. Ctrl-C ends only the wait.
 * `once` ends the pin with the command: it fetches what is missing, and the cache may evict it later.
 */
export async function pinCommand(
  deps: CommandOutput & { readonly paths: Paths; readonly clock: Clock },
  flags: PathFlags & { readonly once?: boolean },
): Promise<number> {
  const { mount, path } = await mountAndPath(deps.paths, flags);
  const samples: { atMs: number; doneBytes: number }[] = [];
  const onProgress = (pinned: PinnedPath): void => {
    samples.push({ atMs: deps.clock.elapsedMs(), doneBytes: pinned.bytesHere });
    if (samples.length > SAMPLES_MAX) samples.shift();
    deps.redraw?.(pinText(pinned, samples));
  };
  const pinned = await callControl(mount.socketPath, 'pin', { path, once: flags.once === true }, { onProgress });
  deps.redraw?.('');
  if (!pinned.isComplete) {
    const trouble = visible(pinned.trouble ?? '');
    const rest =
      flags.once === true ? 'the rest is not fetched' : 'the rest is fetched when the service can be reached';
    deps.warn(`${pinText(pinned)}; ${rest}: ${trouble}\n`);
    return exitCode('pending');
  }
  const files = pinned.files === 1 ? '1 file' : `${pinned.files} files`;
  deps.print(
    `${visible(flags.file ?? mount.status.directory)} is ${flags.once === true ? 'fetched to' : 'kept on'} this machine: ${files}, ${formatBytes(pinned.bytes)}\n`,
  );
  return exitCode('ok');
}

/** `cfs unpin PATH`: cached bytes stay until the cache needs their space. */
export async function unpinCommand(deps: CommandOutput & { readonly paths: Paths }, flags: PathFlags): Promise<number> {
  const { mount, path } = await mountAndPath(deps.paths, flags);
  const { wasPinned } = await callControl(mount.socketPath, 'unpin', { path });
  const name = visible(flags.file ?? mount.status.directory);
  if (!wasPinned) deps.warn(`${name} is not pinned itself: cfs status lists the pins\n`);
  else deps.print(`${name} is no longer pinned\n`);
  return exitCode('ok');
}

const SAMPLES_MAX = 40;
