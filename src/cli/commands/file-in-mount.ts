import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { UsageError } from '../../base/errors.ts';
import type { ResourceUrl } from '../../base/vocabulary.ts';
import type { Paths } from '../../config/paths.ts';
import { callControl } from '../../control/client.ts';
import type { Located } from '../../control/status-model.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import type { RunningMount } from '../../mount/running-mounts.ts';
import type { ServiceWait } from '../service-wait.ts';
import { mountAndPath } from './sync.ts';

interface Looking {
  readonly paths: Paths;
  readonly wait: ServiceWait;
}

/** A path from the command line: its mount, its place there, and its resource on the service. */
export interface InMount {
  readonly mount: RunningMount;
  readonly located: Located;
  /** The path in the mount, with links outside resolved. */
  readonly place: string;
}

/** @throws UsageError (missing) no such file · (notMounted) a path outside all mounts */
export async function findInMount({ paths, wait }: Looking, file: string): Promise<InMount> {
  const { mount, path } = await mountAndPath(paths, { file, account: null });
  const place = join(mount.status.directory, path ?? '');
  const located = await wait.for(mount.status.account.origin, async (signal) => {
    // The mount may not know the path yet: stat(2) makes it look up the path, on the service if needed.
    if (!(await isThere(place))) throw new UsageError(`there is no ${visible(file)}`, exitCode('missing'));
    return callControl(mount.socketPath, 'locate', { path }, { signal });
  });
  return { mount, place, located };
}

/** As `findInMount`, for a file that the service has. @throws UsageError (usage) a folder · (pending) not with the service yet */
export async function findFileInMount(
  looking: Looking,
  file: string,
): Promise<InMount & { readonly resource: ResourceUrl }> {
  const found = await findInMount(looking, file);
  const { kind, resource } = found.located;
  if (kind === 'folder') throw new UsageError(`${visible(file)} is a folder: folders have no versions and no links`);
  if (resource === null) {
    throw new UsageError(
      `${visible(file)} is not on the service yet: cfs sync --wait ${visible(file)} pushes it`,
      exitCode('pending'),
    );
  }
  return { ...found, resource: resource as ResourceUrl };
}

/** Whether the mount has the path, which it may look up on the service. */
export async function isThere(place: string): Promise<boolean> {
  try {
    await lstat(place);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
}
