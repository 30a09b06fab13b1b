import { UsageError } from '../../base/errors.ts';
import type { Paths } from '../../config/paths.ts';
import { formatBytes } from '../../config/units.ts';
import { callControl } from '../../control/client.ts';
import type { Evicted } from '../../control/status-model.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import type { CommandOutput } from '../command-output.ts';
import type { ServiceWait } from '../service-wait.ts';
import type { PathFlags } from './refresh.ts';
import { mountAndPath } from './sync.ts';

/** `cfs evict PATH`: removes local copies of what the service has. Everything stays visible and is fetched again when it is read. */
export async function evictCommand(
  deps: CommandOutput & { readonly paths: Paths; readonly wait: ServiceWait },
  flags: PathFlags & { readonly file: string },
): Promise<number> {
  const { mount, path } = await mountAndPath(deps.paths, flags);
  const { kind } = await callControl(mount.socketPath, 'locate', { path });
  // The mount may ask the service for the versions of files that were made here.
  const { files, bytes, kept } = await deps.wait.for(mount.status.account.origin, (signal) =>
    callControl(mount.socketPath, 'evict', { path }, { signal }),
  );
  const name = visible(flags.file);
  if (kind !== 'folder') {
    refuseKept(name, kept);
    deps.print(
      files === 0 ? `${name} has no local copy\n` : `removed the local copy of ${name}: ${formatBytes(bytes)}\n`,
    );
    return exitCode('ok');
  }
  deps.print(`removed the local copies of ${count(files)} in ${name}: ${formatBytes(bytes)}\n`);
  if (kept.onlyHere > 0) deps.warn(`kept ${count(kept.onlyHere)} that exist on this machine only\n`);
  if (kept.unnamed > 0)
    deps.warn(
      `kept ${count(kept.unnamed)} made here that the service could not identify: cfs refresh ${name}, then try again\n`,
    );
  if (kept.pinned > 0) deps.warn(`kept ${count(kept.pinned)} that a pin keeps here: cfs unpin ends it\n`);
  if (kept.inUse > 0) deps.warn(`kept ${count(kept.inUse)} in use: try again later\n`);
  return exitCode('ok');
}

/** @throws UsageError if the file was not evicted */
function refuseKept(name: string, kept: Evicted['kept']): void {
  if (kept.onlyHere > 0)
    throw new UsageError(
      `${name} has bytes that exist on this machine only: cfs sync --wait ${name} pushes them first`,
      exitCode('pending'),
    );
  if (kept.unnamed > 0)
    throw new UsageError(
      `${name} is kept: the service has not said which of its versions this file is: cfs refresh ${name}, then try again`,
      exitCode('pending'),
    );
  if (kept.pinned > 0) throw new UsageError(`${name} is kept here by a pin: cfs unpin ends it`);
  if (kept.inUse > 0) throw new UsageError(`${name} is in use: try again later`, exitCode('pending'));
}

function count(files: number): string {
  return files === 1 ? '1 file' : `${files} files`;
}
