import { existsSync } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { basename, dirname, extname, join } from 'node:path';
import { UsageError } from '../../base/errors.ts';
import { localTime } from '../../base/local-time.ts';
import type { Paths } from '../../config/paths.ts';
import { formatBytes } from '../../config/units.ts';
import { callControl } from '../../control/client.ts';
import type { Conflict, ConflictSide } from '../../control/status-model.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import { chooseMount } from '../../mount/running-mounts.ts';
import { conflictMark } from '../../tree/conflict-name.ts';
import type { CommandOutput } from '../command-output.ts';
import { compare } from './diff.ts';
import { mountAndPath } from './sync.ts';

/** `mine` and `theirs` as seen from this machine. */
export type ConflictChoice = 'mine' | 'theirs' | 'both' | 'original' | 'copy';

type Deps = CommandOutput & { readonly paths: Paths; readonly env: Readonly<Record<string, string | undefined>> };

/** `cfs conflicts`: each conflicted copy with its file. */
export async function conflictsCommand(
  deps: CommandOutput & { readonly paths: Paths },
  flags: { readonly account: string | null; readonly json: boolean },
): Promise<number> {
  const mount = await chooseMount(deps.paths, { directory: null, account: flags.account });
  const { conflicts, count } = await callControl(mount.socketPath, 'conflicts', { path: null });
  if (flags.json) {
    deps.print(`${JSON.stringify({ count, conflicts }, null, 2)}\n`);
    return exitCode('ok');
  }
  for (const conflict of conflicts) deps.print(`${conflictText(conflict)}\n`);
  if (count > conflicts.length) deps.print(`and ${count - conflicts.length} more\n`);
  if (count === 0) deps.print('there are no conflicts\n');
  return exitCode('ok');
}

/** `cfs conflicts diff FILE`: the file against its copy. */
export async function conflictsDiffCommand(
  deps: Deps,
  flags: { readonly file: string; readonly tool: string | null },
): Promise<number> {
  const { conflict, directory } = await chosenConflict(deps.paths, flags.file);
  const original = originalOf(conflict);
  return compare(flags.tool, join(directory, original.path), join(directory, conflict.copy.path), deps.env);
}

/** `cfs conflicts keep SIDE FILE`: the side that is not kept goes to the trash of the service. */
export async function conflictsKeepCommand(
  deps: CommandOutput & { readonly paths: Paths },
  flags: { readonly file: string; readonly side: ConflictChoice },
): Promise<number> {
  const { conflict, directory } = await chosenConflict(deps.paths, flags.file);
  const side = sideOf(flags.side, conflict);
  const copy = join(directory, conflict.copy.path);
  if (side === 'both') {
    const kept = freeName(copy, conflict);
    await rename(copy, kept);
    deps.print(`both are kept, the copy as ${visible(basename(kept))}\n`);
  } else if (side === 'original') {
    const original = originalOf(conflict);
    await rm(copy);
    deps.print(`${visible(original.path)} is kept, the copy is deleted\n`);
  } else {
    const name = conflict.original?.path ?? originalPath(conflict);
    await rename(copy, join(directory, name));
    deps.print(`the copy is kept as ${visible(name)}, as its next version\n`);
  }
  return exitCode('ok');
}

/** @throws UsageError (usage) where `file` has no conflict, or several copies */
async function chosenConflict(
  paths: Paths,
  file: string,
): Promise<{ readonly conflict: Conflict; readonly directory: string }> {
  const { mount, path } = await mountAndPath(paths, { file, account: null });
  const folder = path === null || dirname(path) === '.' ? null : dirname(path);
  const { conflicts } = await callControl(mount.socketPath, 'conflicts', { path: folder });
  const fitting = conflicts.filter(({ copy, original }) => copy.path === path || original?.path === path);
  const [only, second] = fitting
    .filter(({ copy }) => copy.path === path)
    .slice(0, 1)
    .concat(fitting);
  if (only === undefined)
    throw new UsageError(`${visible(file)} has no conflict: cfs conflicts lists those that exist`);
  if (second !== undefined && second !== only)
    throw new UsageError(`${visible(file)} has several conflicted copies: name one of them (cfs conflicts lists them)`);
  return { conflict: only, directory: mount.status.directory };
}

/** @throws UsageError where it is not known which side is of this machine */
function sideOf(choice: ConflictChoice, { mine, host }: Conflict): 'both' | 'original' | 'copy' {
  if (choice !== 'mine' && choice !== 'theirs') return choice;
  if (mine === null)
    throw new UsageError(`the copy was made by ${visible(host)}: say original or copy instead of ${choice}`);
  const theirs = mine === 'copy' ? 'original' : 'copy';
  return choice === 'mine' ? mine : theirs;
}

function originalOf({ copy, original }: Conflict): ConflictSide {
  if (original !== null) return original;
  throw new UsageError(
    `there is no file beside ${visible(copy.path)} any more: keep copy gives it its name back`,
    exitCode('missing'),
  );
}

function originalPath({ copy }: Conflict): string {
  const name = basename(copy.path);
  return join(dirname(copy.path), conflictMark(name)?.original ?? name);
}

/** `report (laptop 2026-11-20).pdf`: a name that is no conflicted copy's. */
function freeName(copy: string, conflict: Conflict): string {
  const name = basename(originalPath(conflict));
  const extension = extname(name);
  const stem = name.slice(0, name.length - extension.length);
  const from = conflictMark(basename(copy))?.bytes === 'others' ? 'not from ' : '';
  const whose = `${from}${conflict.host} ${conflict.day}`;
  for (let number = 1; ; number++) {
    const candidate = join(dirname(copy), `${stem} (${whose}${number === 1 ? '' : ` ${number}`})${extension}`);
    if (!existsSync(candidate)) return candidate;
  }
}

/** The file, then its copy, each with time, size and whose bytes it holds. */
function conflictText({ copy, original, mine, host }: Conflict): string {
  const whose = (side: 'copy' | 'original'): string => {
    if (mine === null) return side === 'copy' ? `made by ${visible(host)}` : '';
    return mine === side ? 'mine' : 'theirs';
  };
  const line = (side: ConflictSide, text: string): string =>
    `  ${localTime(side.modifiedMs)} ${formatBytes(side.sizeBytes).padStart(9)}  ${text.padEnd(6)}  ${visible(basename(side.path))}`;
  const head = visible(dirname(copy.path) === '.' ? 'in the top folder' : `in ${dirname(copy.path)}`);
  return [
    head,
    original === null ? '  (the file itself is gone)' : line(original, whose('original')),
    line(copy, whose('copy')),
  ].join('\n');
}
