import { statSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { UsageError } from '../../base/errors.ts';
import type { RemoteEntry } from '../../base/resources.ts';
import type { ResourceUrl } from '../../base/vocabulary.ts';
import { formatBytes } from '../../config/units.ts';
import { callControl, NoMountError } from '../../control/client.ts';
import { chooseAccount } from '../../mount/account-file.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { failureOf } from '../../mount/failure.ts';
import { visible } from '../../mount/mount-event.ts';
import { type RunningMount, runningMounts } from '../../mount/running-mounts.ts';
import { needed } from '../../remote/capability.ts';
import type { RemoteService } from '../../remote/contract.ts';
import { Names } from '../../tree/names.ts';
import type { CommandOutput } from '../command-output.ts';
import type { Prompt } from '../prompt.ts';
import { DOCUMENTS_MS_MAX, type ServiceDeps, withService } from '../service-access.ts';
import { findInMount } from './file-in-mount.ts';

/** An item in the service's trash. */
export interface TrashItem {
  /** The end of its address: `5000_5001`. Unique, unlike its name. */
  readonly id: string;
  readonly entry: RemoteEntry;
}

/** The part of the service that emptying the trash needs. */
type TrashService = Pick<RemoteService, 'trash' | 'list' | 'resource' | 'deleteForever'>;

/** How long a check that an item is in the trash stays valid while its contents are deleted. */
const BELIEVED_MS = 2_000;
/** Nesting limit, deeper than any path. */
const DEPTH_MAX = 4096;

/** `cfs trash list`: items that were deleted here or elsewhere, newest first. */
export async function trashListCommand(
  deps: ServiceDeps & CommandOutput,
  flags: { readonly account: string | null; readonly json: boolean },
): Promise<number> {
  const { name } = chooseAccount(deps.paths, flags.account);
  const items = await withService(deps, name, trashItems);
  if (flags.json) deps.print(`${JSON.stringify({ schema: 1, items: items.map(itemRecord) }, null, 2)}\n`);
  else for (const line of trashLines(items)) deps.print(`${line}\n`);
  return exitCode('ok');
}

/**
 * `cfs trash restore ITEM [--to PATH]`: ITEM is a name or an id. Without `--to` it goes to the top folder of the mount, because the
 * service does not store the original place.
 */
export async function trashRestoreCommand(
  deps: ServiceDeps & CommandOutput,
  flags: { readonly item: string; readonly to: string | null; readonly account: string | null },
): Promise<number> {
  const target = flags.to === null ? null : await targetOf(deps, flags.to);
  const name = target?.account ?? chooseAccount(deps.paths, flags.account).name;
  const { restored, folder } = await withService(deps, name, async (service) => {
    const { entry } = chooseItem(await trashItems(service), flags.item);
    const signal = AbortSignal.timeout(DOCUMENTS_MS_MAX);
    const folder = target?.folder ?? (await service.user(signal)).home;
    const newName = target?.name ?? entry.name;
    // The service may allow duplicate names, but a restore must not create one.
    const taken = (await service.list(folder, signal)).some((other) => other.name === newName);
    if (taken)
      throw new UsageError(
        `${visible(newName)} already exists: choose another place or name with --to; nothing was changed`,
      );
    await service.relocate(entry.url, entry.kind, folder, newName, signal);
    return { restored: newName, folder };
  });
  const mount = (await runningMounts(deps.paths)).find((running) => running.name === name);
  const path = target?.path ?? (mount === undefined ? '' : await pathOfFolder(mount, folder));
  if (mount !== undefined) await shownBy(deps, mount.socketPath, path);
  deps.print(`${visible(restored)} is back in ${visible(target?.shown ?? (path || 'the top folder'))}\n`);
  return exitCode('ok');
}

/** `cfs trash empty`: permanent. Asks for confirmation; scripts pass `--yes`. */
export async function trashEmptyCommand(
  deps: ServiceDeps & CommandOutput & { readonly prompt: Prompt | null },
  flags: { readonly account: string | null; readonly yes: boolean },
): Promise<number> {
  const { name } = chooseAccount(deps.paths, flags.account);
  return withService(deps, name, async (service) => {
    const items = await trashItems(service);
    if (items.length === 0) {
      deps.print('the trash is empty\n');
      return exitCode('ok');
    }
    if (!flags.yes) await deps.wait.paused(() => confirm(deps.prompt, itemsText(items.length)));
    const deleted = await deleteItems({ ...deps, service }, items);
    const left = items.length - deleted;
    const others = left === 0 ? '' : `; ${left} no longer in the trash, not deleted`;
    deps.print(`${itemsText(deleted)} deleted permanently${others}\n`);
    return exitCode('ok');
  });
}

/**
 * Permanently deletes each item that is still in the trash when its turn comes. The confirmation and thousands of requests take
 * time, and an item that was restored meanwhile keeps its URL. @returns how many items are gone
 */
export async function deleteItems(
  deps: Pick<CommandOutput, 'warn' | 'redraw'> &
    Pick<ServiceDeps, 'clock' | 'wait'> & { readonly service: TrashService },
  items: readonly TrashItem[],
): Promise<number> {
  const { service, clock } = deps;
  const deletedFiles = await trashFolder(service, AbortSignal.timeout(DOCUMENTS_MS_MAX));
  let deleted = 0;
  for (const [index, { entry }] of items.entries()) {
    deps.wait.moved();
    deps.redraw?.(`deleting ${index + 1} of ${items.length}: ${visible(entry.name)}`);
    let thereMs: number | null = null;
    const isStillThere = async (): Promise<boolean> => {
      const nowMs = clock.elapsedMs();
      if (thereMs !== null && nowMs - thereMs < BELIEVED_MS) return true;
      const isThere = await isInTrash(service, entry, deletedFiles);
      if (isThere) thereMs = nowMs;
      return isThere;
    };
    if (await deleteWhole(service, entry, isStillThere, 0)) deleted++;
    else if (thereMs !== null)
      deps.warn(`${visible(entry.name)} was restored while it was being deleted: some of its contents are gone\n`);
  }
  deps.redraw?.('');
  return deleted;
}

/** One line per item: id, size, time of the last save, name. */
export function trashLines(items: readonly TrashItem[]): readonly string[] {
  if (items.length === 0) return ['the trash is empty'];
  // Not Math.max(...items): a call takes some 100,000 arguments.
  const width = items.reduce((most, { id }) => Math.max(most, id.length), 0);
  return items.map(({ id, entry }) => {
    const isFile = entry.kind === 'file';
    const size = (isFile ? formatBytes(entry.sizeBytes ?? 0) : 'folder').padStart(9);
    const saved = isFile && entry.lastModifiedMs !== null ? new Date(entry.lastModifiedMs).toISOString() : '';
    return `${id.padEnd(width)} ${size}  ${saved.slice(0, 16).replace('T', ' ').padEnd(16)}  ${visible(entry.name)}`;
  });
}

/** The item that `wanted` names, by its id or its name. @throws UsageError if none or several match, with their ids */
export function chooseItem(items: readonly TrashItem[], wanted: string): TrashItem {
  const fitting = items.filter(({ id, entry }) => id === wanted || entry.name === wanted);
  const [only, second] = fitting;
  if (only === undefined)
    throw new UsageError(
      `no item in the trash has the name or id ${visible(wanted)}: cfs trash list shows them`,
      exitCode('missing'),
    );
  if (second === undefined) return only;
  const ids = fitting.map(({ id }) => id).join(', ');
  throw new UsageError(
    `${fitting.length} items in the trash are named ${visible(wanted)}: choose one by its id (${ids})`,
  );
}

/** Newest first. */
export async function trashItems(service: RemoteService): Promise<readonly TrashItem[]> {
  const signal = AbortSignal.timeout(DOCUMENTS_MS_MAX);
  const entries = await service.list(await trashFolder(service, signal), signal);
  return entries.map((entry) => ({ id: idOf(entry.url), entry })).sort((one, other) => ageOf(other) - ageOf(one));
}

async function trashFolder({ trash }: Pick<RemoteService, 'trash'>, signal: AbortSignal): Promise<ResourceUrl> {
  return await needed(trash, 'has no trash').trashFolder(signal);
}

function idOf(url: ResourceUrl): string {
  return url.replace(/^.*[:/]/, '');
}

function ageOf({ entry }: TrashItem): number {
  return entry.kind === 'file' ? (entry.lastModifiedMs ?? 0) : 0;
}

function itemRecord({ id, entry }: TrashItem) {
  const file = entry.kind === 'file' ? { sizeBytes: entry.sizeBytes, savedMs: entry.lastModifiedMs } : {};
  return { id, name: entry.name, kind: entry.kind, ...file };
}

interface Target {
  readonly account: string;
  readonly folder: ResourceUrl;
  /** The name on the service; null: its present name. */
  readonly name: string | null;
  /** Below the mount's root, for the refresh. */
  readonly path: string | null;
  readonly shown: string;
}

/** A folder in a mount, or a new name in one. */
async function targetOf(deps: ServiceDeps, to: string): Promise<Target> {
  const stats = statSync(to, { throwIfNoEntry: false });
  if (stats !== undefined && !stats.isDirectory())
    throw new UsageError(`${visible(to)} already exists: nothing was changed`);
  const directory = stats === undefined ? dirname(to) : to;
  const { mount, located } = await findInMount(deps, directory);
  if (located.resource === null)
    throw new UsageError(
      `${visible(directory)} is not on the service yet: cfs sync --wait pushes it`,
      exitCode('pending'),
    );
  return {
    account: mount.name,
    folder: located.resource as ResourceUrl,
    name: stats === undefined ? new Names().toRemoteName(basename(to)) : null,
    path: located.path === '' ? null : located.path,
    shown: directory,
  };
}

/** The path of a top folder of the account in a mount: the root itself, or, with `--root account`, in it. */
async function pathOfFolder({ socketPath, status }: RunningMount, folder: ResourceUrl): Promise<string> {
  const isIt = async (path: string): Promise<boolean> => {
    try {
      return (await callControl(socketPath, 'locate', { path })).resource === folder;
    } catch {
      return false; // an entry that the mount adds (`.versions`), or the mount has ended
    }
  };
  if (await isIt('')) return '';
  for (const name of await readdir(status.directory).catch(() => [])) if (await isIt(name)) return name;
  return '';
}

/** Makes a running mount show it immediately. */
async function shownBy(output: CommandOutput, socketPath: string, path: string): Promise<void> {
  try {
    await callControl(socketPath, 'refresh', { path, accept: false });
  } catch (error) {
    if (error instanceof NoMountError) return;
    // The restore has succeeded; an error here would invite a second restore.
    output.warn(`the mount does not show it yet: ${visible(failureOf(error).sentence)}\n`);
  }
}

async function confirm(prompt: Prompt | null, what: string): Promise<void> {
  if (prompt === null) throw new UsageError(`${what} would be deleted permanently: without a terminal, add --yes`);
  const answer = await prompt.ask(`Delete ${what} permanently? (yes/no)`, { hidden: false });
  if (answer.trim().toLowerCase() !== 'yes') throw new UsageError('nothing was deleted');
}

function itemsText(count: number): string {
  return `${count} ${count === 1 ? 'item' : 'items'}`;
}

async function isInTrash(service: TrashService, { url, kind }: RemoteEntry, trash: ResourceUrl): Promise<boolean> {
  const now = await service.resource(url, kind, AbortSignal.timeout(DOCUMENTS_MS_MAX));
  if (now === null) return false;
  // The service may report the parent under another URL than the user's trash; then the listing decides.
  return now.parent === trash || (await listed(service, trash)).some((entry) => entry.url === url);
}

function listed(service: TrashService, folder: ResourceUrl): Promise<readonly RemoteEntry[]> {
  return service.list(folder, AbortSignal.timeout(DOCUMENTS_MS_MAX));
}

/** Deletes the contents of a folder first: the service would orphan them. @returns false: the item was restored meanwhile */
async function deleteWhole(
  service: TrashService,
  entry: RemoteEntry,
  isStillThere: () => Promise<boolean>,
  depth: number,
): Promise<boolean> {
  const children = entry.kind === 'folder' && depth < DEPTH_MAX ? await listed(service, entry.url) : [];
  for (const child of children) if (!(await deleteWhole(service, child, isStillThere, depth + 1))) return false;
  if (!(await isStillThere())) return false;
  await service.deleteForever(entry.url, entry.kind, AbortSignal.timeout(DOCUMENTS_MS_MAX));
  return true;
}
