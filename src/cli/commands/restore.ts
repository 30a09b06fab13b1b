import { constants, existsSync, statSync } from 'node:fs';
import { copyFile, mkdir, open, readdir, readFile, rename, rm, symlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { UsageError } from '../../base/errors.ts';
import { processLife } from '../../base/process-life.ts';
import { accountPaths } from '../../config/paths.ts';
import { formatBytes } from '../../config/units.ts';
import { callControl } from '../../control/client.ts';
import type { NamedVersion } from '../../fs/file-history.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import type { CommandOutput } from '../command-output.ts';
import { DOCUMENTS_MS_MAX, type ServiceDeps, withService } from '../service-access.ts';
import type { ServiceWait } from '../service-wait.ts';
import { CleanupOnSignal } from './cleanup-on-signal.ts';
import { findFileInMount, type InMount } from './file-in-mount.ts';
import { chooseVersion, namedVersions, parseVersionOf } from './version-choice.ts';
import { fetchVersion } from './version-fetch.ts';

export interface RestoreFlags {
  /** `FILE@VERSION`. */
  readonly what: string;
  /** Destination of the bytes: a new file, or a folder; null: the file itself, as its next version. */
  readonly to: string | null;
}

/** Attempts while the file is saved again during the copy. */
const TRIES_MAX = 3;

/**
 * `cfs restore FILE@VERSION [--to PATH]`. The version is fetched completely before anything changes. In place, pending changes of the
 * file are pushed first, so that they become a version before they are replaced.
 */
export async function restoreCommand(deps: ServiceDeps & CommandOutput, flags: RestoreFlags): Promise<number> {
  const { file, version: wanted } = parseVersionOf(flags.what, existsSync);
  if (wanted === null)
    throw new UsageError(`no version given: use ${visible(file)}@VERSION (cfs versions ${visible(file)} lists them)`);
  const target = flags.to === null ? file : newFileAt(flags.to, basename(file));
  const choose = (versions: readonly NamedVersion[]): NamedVersion => chooseVersion(versions, wanted, file);
  const { name, version } = await restoreFile(deps, file, choose, flags.to === null ? null : target);
  const size = formatBytes(version.sizeBytes);
  deps.print(
    flags.to === null
      ? `${visible(file)} is restored to ${name} (${size}), as its next version\n`
      : `${visible(target)} is ${visible(basename(file))} as of ${name} (${size})\n`,
  );
  return exitCode('ok');
}

/**
 * Restores one of the versions of a file. @param target a new file for the bytes; null: the file itself
 *
 * @returns the version that was restored
 */
export async function restoreFile(
  deps: ServiceDeps & CommandOutput,
  file: string,
  choose: (versions: readonly NamedVersion[]) => NamedVersion,
  target: string | null,
): Promise<NamedVersion> {
  const found = await findFileInMount(deps, file);
  const directory = join(accountPaths(deps.paths, found.mount.name).directory, 'fetched');
  await mkdir(directory, { recursive: true, mode: 0o700 });
  await removeSpoolsOfTheDead(directory);
  const spool = join(directory, `${process.pid}`);
  const cleanup = new CleanupOnSignal();
  cleanup.add(spool);
  try {
    const chosen = await withService(deps, found.mount.name, async (service) => {
      const signal = AbortSignal.timeout(DOCUMENTS_MS_MAX);
      const version = choose(namedVersions(await service.versions(found.resource, signal)));
      await rm(spool, { force: true }); // left by a killed process with our pid
      await fetchVersion({ service, output: deps, wait: deps.wait }, version, spool);
      return version;
    });
    if (target === null) await replace(spool, found, cleanup, deps.wait);
    else await copyNew(spool, found, target, cleanup);
    return chosen;
  } finally {
    await rm(spool, { force: true });
    cleanup.dispose();
  }
}

/** Temporary files of killed processes; their names contain the pid. */
async function removeSpoolsOfTheDead(directory: string): Promise<void> {
  for (const name of await readdir(directory)) {
    if (processLife(Number(name)) === 'ended') await rm(join(directory, name), { force: true });
  }
}

/** @throws UsageError if the target exists, or its folder does not */
function newFileAt(path: string, name: string): string {
  const isFolder = statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
  const target = isFolder ? join(path, name) : path;
  if (existsSync(target)) throw new UsageError(`${visible(target)} already exists and is not overwritten`);
  if (!existsSync(dirname(target)))
    throw new UsageError(`there is no folder ${visible(dirname(target))}`, exitCode('missing'));
  return target;
}

/**
 * Saves like an editor: a new file beside it, then a rename. Readers see one of the two. The rename replaces bytes that the service
 * may not have, so the check for pending changes comes directly before it, not before the fetch.
 */
async function replace(spool: string, found: InMount, cleanup: CleanupOnSignal, wait: ServiceWait): Promise<void> {
  const { place } = found;
  // A local-only name: a file that SIGKILL leaves behind is not pushed.
  const name = `._${[...basename(place)].slice(0, 40).join('')}.${process.pid}.cfs-restore`;
  const fresh = join(dirname(place), name);
  const { socketPath } = found.mount;
  const { path } = found.located;
  cleanup.add(fresh);
  for (let tries = 0; tries < TRIES_MAX; tries++) {
    // Before the copy, so that the copy does not exist during a long upload.
    await push(found, wait);
    try {
      if (isLink(found)) await symlink(await readFile(spool), fresh);
      else await copyFile(spool, fresh, constants.COPYFILE_EXCL);
      await callControl(socketPath, 'copyAttributes', { path: join(dirname(path), name), from: path });
      const { isPending } = await callControl(socketPath, 'locate', { path });
      if (!isPending) return await rename(fresh, place);
    } finally {
      await rm(fresh, { force: true });
    }
  }
  throw new UsageError(
    `${visible(place)} is being written to: try again once it is closed; nothing was changed`,
    exitCode('pending'),
  );
}

async function push({ mount, located, place }: InMount, wait: ServiceWait): Promise<void> {
  const params = { path: located.path, wait: true };
  const { parked } = await wait.for(mount.status.account.origin, (signal) =>
    callControl(mount.socketPath, 'sync', params, { signal }),
  );
  const [first] = parked;
  if (first === undefined) return;
  throw new UsageError(
    `${visible(place)} has a parked change (${first.reason}): first copy it elsewhere, or run cfs discard`,
    exitCode('parked'),
  );
}

/** The bytes of a link's version are its target. Restored as a regular file, it would stop being a link on all machines. */
function isLink({ located }: InMount): boolean {
  return located.kind === 'symlink';
}

async function copyNew(spool: string, found: InMount, target: string, cleanup: CleanupOnSignal): Promise<void> {
  if (isLink(found)) {
    await symlink(await readFile(spool), target);
    return;
  }
  try {
    // Created exclusively first, then filled: a file that another process created at the same time is never overwritten.
    await (await open(target, 'wx')).close();
    cleanup.add(target);
    await copyFile(spool, target);
    cleanup.delete(target);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') await rm(target, { force: true });
    throw error;
  }
}
