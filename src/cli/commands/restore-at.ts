import { readdir } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { UsageError } from '../../base/errors.ts';
import type { ResourceUrl } from '../../base/vocabulary.ts';
import { callControl } from '../../control/client.ts';
import type { EventRecord, WatchMessage } from '../../control/event-model.ts';
import type { NamedVersion } from '../../fs/file-history.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { failureOf } from '../../mount/failure.ts';
import { visible } from '../../mount/mount-event.ts';
import type { CommandOutput } from '../command-output.ts';
import { DOCUMENTS_MS_MAX, type ServiceDeps, withService } from '../service-access.ts';
import { type BroughtBack, bringBack, deletedSince } from './deleted-since.ts';
import { findInMount, type InMount } from './file-in-mount.ts';
import { restoreFile } from './restore.ts';
import { namedVersions } from './version-choice.ts';

/** How many names of a kind are printed. */
const NAMED_MAX = 10;

/**
 * `2026-11-20T13:05`, `2026-11-20 13:05:11`, `2026-11-20` (its first moment), local unless it ends in Z; points as in version names.
 * A time with seconds includes that second: versions are named by whole seconds.
 */
export function parseTime(text: string): number {
  const found = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d)[:.](\d\d)(?:[:.](\d\d))?(Z?))?$/.exec(text.trim());
  const [, day = '', hour = '00', minute = '00', second = null, zone = ''] = found ?? [];
  const part = second === null ? '00.000' : `${second}.999`;
  const ms = Date.parse(`${day}T${hour}:${minute}:${part}${zone}`);
  if (found === null || Number.isNaN(ms))
    throw new RangeError(`"${text}" is not a time such as 2026-11-20T13:05 or 2026-11-20`);
  return ms;
}

/** The action that restores a file to its state at the requested time. */
type Decision =
  | { readonly type: 'restore'; readonly name: string }
  /** The file has not changed since. */
  | { readonly type: 'same' }
  /** The file did not exist then, or the service keeps no version that old. */
  | { readonly type: 'none' };

/**
 * `cfs restore PATH --at TIME`: each file in PATH becomes what it was at TIME, as its next version. What was made since stays, and
 * so does what the service keeps no such version of. What was in the folder PATH and was deleted since comes back from the trash first, as far
 * as the event history of the mount has it.
 */
export async function restoreAtCommand(
  deps: ServiceDeps & CommandOutput,
  flags: { readonly path: string; readonly atMs: number },
): Promise<number> {
  const root = await findInMount(deps, flags.path);
  const { back, left } = await undelete(deps, root, flags.atMs);
  const files = await filesBelow(root);
  const decisions = await decide(deps, root, files, flags.atMs);
  const of = (type: Decision['type']): string[] => files.filter((file) => decisions.get(file)?.type === type);
  const failed: { readonly file: string; readonly error: unknown }[] = [];
  const restored: string[] = [];
  for (const [file, decision] of decisions) {
    if (decision.type !== 'restore') continue;
    deps.redraw?.(`restoring ${visible(file)}`);
    try {
      await restoreFile(deps, file, (versions) => versionOf(versions, decision.name, file), null);
      restored.push(file);
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      failed.push({ file, error });
    }
  }
  deps.redraw?.('');
  const shown = (file: string): string => visible(relative(root.mount.status.directory, file));
  const time = new Date(flags.atMs).toISOString().slice(0, 19);
  deps.print(
    `restored ${count(restored.length)} to ${time}Z, each as its next version; ${of('same').length} unchanged since\n`,
  );
  if (back.length > 0) deps.print(`back from the trash: ${listed(back)}\n`);
  if (left.length > 0)
    deps.warn(
      `left in the trash, because the name is taken or the folder is gone (cfs trash restore ITEM --to PATH): ${listed(left)}\n`,
    );
  const without = of('none');
  if (without.length > 0) deps.warn(`${count(without.length)} without a version of that time, left as they are:\n`);
  for (const file of without.slice(0, NAMED_MAX)) deps.warn(`  ${shown(file)}\n`);
  if (without.length > NAMED_MAX) deps.warn(`  and ${without.length - NAMED_MAX} more\n`);
  for (const { file, error } of failed) deps.warn(`not restored: ${shown(file)}: ${failureOf(error).sentence}\n`);
  const [first] = failed;
  return first === undefined ? exitCode('ok') : failureOf(first.error).exitCode;
}

async function undelete(
  deps: ServiceDeps & CommandOutput,
  { mount, located }: InMount,
  atMs: number,
): Promise<BroughtBack> {
  const nothing = { back: [], left: [] };
  if (located.kind !== 'folder') return nothing;
  const { path } = located;
  // Also pushes deletions: until then the trash does not have the files.
  const within = path === '' ? null : path;
  await deps.wait.for(mount.status.account.origin, (signal) =>
    callControl(mount.socketPath, 'sync', { path: within, wait: true }, { signal }),
  );
  const events: EventRecord[] = [];
  const onProgress = (message: WatchMessage): void => {
    if (message.type === 'event') events.push(message);
  };
  await callControl(mount.socketPath, 'watch', { since: null, follow: false, status: false }, { onProgress });
  const deleted = deletedSince(events, path, atMs);
  if (deleted.length === 0) return nothing;
  return await withService(deps, mount.name, (service) => bringBack(deps, { service, mount }, deleted, atMs));
}

async function decide(
  deps: ServiceDeps & CommandOutput,
  { mount }: InMount,
  files: readonly string[],
  atMs: number,
): Promise<ReadonlyMap<string, Decision>> {
  const decisions = new Map<string, Decision>();
  await withService(deps, mount.name, async (service) => {
    for (const [index, file] of files.entries()) {
      deps.wait.moved();
      deps.redraw?.(`comparing ${index + 1} of ${files.length} files`);
      const path = relative(mount.status.directory, file);
      const { resource, isPending } = await callControl(mount.socketPath, 'locate', { path });
      const signal = AbortSignal.timeout(DOCUMENTS_MS_MAX);
      const versions = resource === null ? [] : namedVersions(await service.versions(resource as ResourceUrl, signal));
      decisions.set(file, decisionOf(versions, atMs, isPending));
    }
  });
  return decisions;
}

/** @param versions newest first @param isPending the file has a change that is in none of them */
export function decisionOf(versions: readonly NamedVersion[], atMs: number, isPending: boolean): Decision {
  const then = versions.find(({ version }) => version.lastModifiedMs !== null && version.lastModifiedMs <= atMs);
  if (then === undefined) return { type: 'none' };
  return then === versions[0] && !isPending ? { type: 'same' } : { type: 'restore', name: then.name };
}

function versionOf(versions: readonly NamedVersion[], name: string, file: string): NamedVersion {
  const version = versions.find((each) => each.name === name);
  if (version !== undefined) return version;
  throw new UsageError(`the service no longer keeps version ${name} of ${visible(file)}`, exitCode('missing'));
}

/** All files in the folder, or the file itself. Not `.versions`, and no links: their targets are no bytes of theirs. */
async function filesBelow({ place, located, mount }: InMount): Promise<readonly string[]> {
  if (located.kind !== 'folder') return [place];
  const files: string[] = [];
  const folders = [place];
  for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
    const isTop = folder === mount.status.directory;
    for (const entry of await readdir(folder, { withFileTypes: true })) {
      const path = join(folder, entry.name);
      if (entry.isDirectory() && !(isTop && entry.name === '.versions')) folders.push(path);
      else if (entry.isFile()) files.push(path);
    }
  }
  return files.sort();
}

/** Some of the paths, in their order. */
function listed(paths: readonly string[]): string {
  const shown = [...paths].sort().slice(0, NAMED_MAX).map(visible).join(', ');
  return paths.length > NAMED_MAX ? `${shown} and ${paths.length - NAMED_MAX} more` : shown;
}

function count(files: number): string {
  return files === 1 ? '1 file' : `${files} files`;
}
