import { basename, dirname, join } from 'node:path';
import type { RemoteEntry } from '../../base/resources.ts';
import type { ResourceUrl } from '../../base/vocabulary.ts';
import { callControl } from '../../control/client.ts';
import type { EventRecord } from '../../control/event-model.ts';
import type { RunningMount } from '../../mount/running-mounts.ts';
import type { RemoteService } from '../../remote/contract.ts';
import { Names } from '../../tree/names.ts';
import type { CommandOutput } from '../command-output.ts';
import { DOCUMENTS_MS_MAX, type ServiceDeps } from '../service-access.ts';
import { isThere } from './file-in-mount.ts';
import { trashItems } from './trash.ts';
import { namedVersions } from './version-choice.ts';

/** Nesting of a deleted folder that is searched for files of the time. */
const DEPTH_MAX = 64;

/** A file or folder that was deleted since. */
export interface DeletedEntry {
  readonly url: ResourceUrl;
  /** Its place in the mount at that time. */
  readonly path: string;
  /** Its place when it was deleted. */
  readonly lastPath: string;
}

/**
 * What was in the folder at a time and was deleted later, as far as the event history of the mount has it. The service stores neither the
 * place nor the time of a deletion.
 *
 * @param events oldest first @param folder `''` for the root
 */
export function deletedSince(events: readonly EventRecord[], folder: string, atMs: number): readonly DeletedEntry[] {
  const found = new Map<string, DeletedEntry>();
  for (const [index, { atMs: deletedMs, event }] of events.entries()) {
    if (deletedMs <= atMs || (event.type !== 'deleted' && event.type !== 'received')) continue;
    if (event.type === 'deleted' ? event.to !== 'trash' : event.change !== 'deleted') continue;
    // The first deletion counts: a later one is of the file as it was put back.
    if (event.url === undefined || found.has(event.url)) continue;
    const path = placeThen(event.path, events, index, atMs);
    if (folder !== '' && !path.startsWith(`${folder}/`)) continue;
    found.set(event.url, { url: event.url as ResourceUrl, path, lastPath: event.path });
  }
  return [...found.values()];
}

/**
 * Undoes renames, the newest first. Events name the places that a person sees when a change reaches the service: a folder may be called by
 * its new name before its rename is reported. Renames of folders above therefore count whenever they were reported.
 *
 * @param deletedAt index of the deletion
 */
function placeThen(path: string, events: readonly EventRecord[], deletedAt: number, atMs: number): string {
  const left = new Map<number, { readonly from: string; readonly to: string }>();
  for (const [index, { atMs: renamedMs, event }] of events.entries())
    if (renamedMs > atMs && (event.type === 'renamed' || event.type === 'renamed-elsewhere')) left.set(index, event);
  let place = path;
  for (let at = deletedAt; ; ) {
    const fits = [...left].filter(([index, { to }]) => (place === to ? index < at : place.startsWith(`${to}/`)));
    const [index, rename] = fits.filter(([each]) => each < at).at(-1) ?? fits[0] ?? [];
    if (index === undefined || rename === undefined) return place;
    place = rename.from + place.slice(rename.to.length);
    left.delete(index);
    at = Math.min(at, index);
  }
}

interface Wanted {
  readonly path: string;
  readonly entry: RemoteEntry;
  /** Its name on the service, as of that time. */
  readonly name: string;
  /** A folder with nothing of that time in it, in which something else was. */
  readonly isOnlyPlace: boolean;
}

export interface BroughtBack {
  /** Places of what is back from the trash. A folder stands for its contents. */
  readonly back: readonly string[];
  /** Places of what stays in the trash, because something has its name, or its folder is gone. */
  readonly left: readonly string[];
}

/**
 * Moves what existed at the time from the trash to its place. What was made since stays in the trash; a folder comes back with all that is in
 * it. The mount shows them when this returns.
 */
export async function bringBack(
  deps: ServiceDeps & CommandOutput,
  { service, mount }: { readonly service: RemoteService; readonly mount: RunningMount },
  deleted: readonly DeletedEntry[],
  atMs: number,
): Promise<BroughtBack> {
  const inTrash = new Map((await trashItems(service)).map(({ entry }) => [entry.url, entry]));
  const wanted: Wanted[] = [];
  for (const { url, path, lastPath } of deepestFirst(deleted)) {
    const entry = inTrash.get(url);
    if (entry === undefined) continue;
    deps.wait.moved();
    const existed = await existedAt(service, entry, atMs, 0);
    const isOnlyPlace = !existed && wanted.some((other) => other.path.startsWith(`${path}/`));
    // The service's name may be another spelling of the file name.
    const name = basename(path) === basename(lastPath) ? entry.name : new Names().toRemoteName(basename(path));
    if (existed || isOnlyPlace) wanted.push({ path, entry, name, isOnlyPlace });
  }
  const folders = new Map<string, typeof wanted>();
  // A folder is back before what was deleted in it earlier.
  for (const each of wanted.reverse()) {
    const folder = dirname(each.path) === '.' ? '' : dirname(each.path);
    folders.set(folder, [...(folders.get(folder) ?? []), each]);
  }
  const result = { back: [] as string[], left: [] as string[] };
  for (const [folder, entries] of folders) {
    deps.wait.moved();
    const target = await folderOf(mount, folder);
    const signal = AbortSignal.timeout(DOCUMENTS_MS_MAX);
    const taken = target === null ? null : new Set((await service.list(target, signal)).map(({ name }) => name));
    for (const { path, entry, name, isOnlyPlace } of entries) {
      deps.wait.moved();
      const isFree = taken?.has(name) === false && !(await isThere(join(mount.status.directory, path)));
      if (target === null || !isFree) {
        if (!isOnlyPlace) result.left.push(path);
        continue;
      }
      deps.redraw?.(`bringing back ${result.back.length + 1}`);
      const inTime = AbortSignal.timeout(DOCUMENTS_MS_MAX);
      await service.relocate(entry.url, entry.kind, target, name, inTime);
      taken?.add(name);
      result.back.push(path);
    }
    if (target !== null) await callControl(mount.socketPath, 'refresh', { path: folder === '' ? null : folder });
  }
  return result;
}

function deepestFirst(entries: readonly DeletedEntry[]): readonly DeletedEntry[] {
  const depth = ({ path }: DeletedEntry): number => path.split('/').length;
  return [...entries].sort((one, other) => depth(other) - depth(one));
}

/** Whether the service has a version of that time, of the file or of one in the folder. */
async function existedAt(service: RemoteService, entry: RemoteEntry, atMs: number, depth: number): Promise<boolean> {
  const signal = AbortSignal.timeout(DOCUMENTS_MS_MAX);
  if (entry.kind === 'file') {
    if (entry.lastModifiedMs !== null && entry.lastModifiedMs <= atMs) return true;
    const versions = namedVersions(await service.versions(entry.url, signal));
    return versions.some(({ version }) => version.lastModifiedMs !== null && version.lastModifiedMs <= atMs);
  }
  if (depth === DEPTH_MAX) return false;
  for (const child of await service.list(entry.url, signal))
    if (await existedAt(service, child, atMs, depth + 1)) return true;
  return false;
}

/** The address of a folder in the mount; null if there is none, or the service does not have it. */
async function folderOf(mount: RunningMount, path: string): Promise<ResourceUrl | null> {
  // stat(2) makes the mount look it up.
  if (!(await isThere(join(mount.status.directory, path)))) return null;
  const { kind, resource } = await callControl(mount.socketPath, 'locate', { path });
  return kind === 'folder' ? (resource as ResourceUrl | null) : null;
}
