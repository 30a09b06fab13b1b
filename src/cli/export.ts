import { existsSync, readdirSync } from 'node:fs';
import { type FileHandle, mkdir, open, rm, symlink } from 'node:fs/promises';
import { dirname, join, relative, resolve } from 'node:path';
import type { Clock } from '../base/clock.ts';
import { UsageError } from '../base/errors.ts';
import { accountPaths, type Paths, storeDirectories } from '../config/paths.ts';
import { formatBytes } from '../config/units.ts';
import { PART_BYTES_MAX } from '../control/methods.ts';
import type { UnsyncedFile } from '../control/status-model.ts';
import { chooseAccount } from './account-file.ts';
import { exitCode } from './exit-codes.ts';
import { withPath } from './failure.ts';
import { visible } from './mount-event.ts';
import { accountStates } from './running-mounts.ts';
import type { CommandOutput } from './sync.ts';
import {
  openUnsyncedInMount,
  openUnsyncedInStore,
  type UnsyncedReader,
  type UnsyncedSource,
} from './unsynced-source.ts';

/** How much is read at once. */
const PIECE_BYTES = PART_BYTES_MAX;

/**
 * `cfs export DIR`: copies out what exists on this machine only, whether it is mounted or not and whatever the service says. Nothing
 * here changes. Exit code: ok, or store where bytes could not be had; what could is there.
 */
export async function exportCommand(
  deps: CommandOutput & { readonly paths: Paths; readonly clock: Clock },
  flags: { readonly directory: string; readonly account: string | null },
): Promise<number> {
  const { name } = chooseAccount(deps.paths, flags.account);
  const directory = resolve(flags.directory);
  if (existsSync(directory) && readdirSync(directory).length > 0)
    throw new UsageError(`${visible(flags.directory)} is not empty: nothing is written over`);
  const done = { files: 0, bytes: 0, damaged: 0 };
  for (const { source, folder } of await sourcesOf(deps, name, directory)) {
    try {
      for await (const file of source.files()) {
        if (file.damage !== undefined) {
          done.damaged++;
          deps.warn(`${file.path}: not copied: ${file.damage}\n`);
          continue;
        }
        const missing = await copyOut(source, file, join(directory, folder, file.path));
        done.files++;
        done.bytes += file.sizeBytes;
        deps.redraw?.(`${done.files} copied, ${formatBytes(done.bytes)}: ${visible(file.path)}`);
        if (missing === 0) continue;
        done.damaged++;
        deps.warn(
          `${visible(file.path)}: ${formatBytes(missing)} of ${formatBytes(file.sizeBytes)} are not here: zeros\n`,
        );
      }
    } finally {
      deps.redraw?.('');
      await source.close();
    }
  }
  deps.print(
    done.files === 0 && done.damaged === 0
      ? 'nothing is on this machine only\n'
      : `${done.files} copied to ${visible(flags.directory)} (${formatBytes(done.bytes)})\n`,
  );
  return done.damaged === 0 ? exitCode('ok') : exitCode('store');
}

interface FolderOfSource {
  readonly source: UnsyncedSource;
  /** Below the directory of the copies: each root is a tree of its own, whose names may be those of the other. */
  readonly folder: string;
}

/** The mount where one is running, and what the account's other stores have: all that was changed below the other root. */
async function sourcesOf(
  deps: { readonly paths: Paths; readonly clock: Clock },
  name: string,
  directory: string,
): Promise<readonly FolderOfSource[]> {
  const state = (await accountStates(deps.paths)).find((known) => known.name === name);
  const mounted = state?.status ?? null;
  const sources: FolderOfSource[] = [];
  if (state !== undefined && mounted !== null) {
    if (!relative(mounted.directory, directory).startsWith('..'))
      throw new UsageError(`${visible(directory)} lies in the mount itself: say a folder elsewhere`);
    sources.push({ source: openUnsyncedInMount(state.socketPath, mounted.directory), folder: '' });
  }
  const [usual, whole] = storeDirectories(accountPaths(deps.paths, name));
  for (const [store, folder] of [
    [usual, mounted === null ? '' : 'root=briefcase'],
    [whole, 'root=account'],
  ] as const) {
    try {
      sources.push({ source: await openUnsyncedInStore(store, deps.clock), folder });
    } catch (error) {
      const isTheMounts = mounted !== null && error instanceof UsageError;
      if (isTheMounts && error.exitCode === exitCode('alreadyMounted')) continue;
      for (const opened of sources) await opened.source.close();
      throw error;
    }
  }
  return sources;
}

/** @returns how many bytes could not be had */
async function copyOut(source: UnsyncedSource, file: UnsyncedFile, path: string): Promise<number> {
  if (file.kind === 'folder') {
    await mkdir(path, { recursive: true });
    return 0;
  }
  await mkdir(dirname(path), { recursive: true });
  const reader = await source.open(file);
  try {
    if (file.kind === 'symlink') {
      const [target] = await reader.read({ start: 0, end: file.sizeBytes });
      if (target === undefined || target.bytes === null) return file.sizeBytes;
      await symlink(Buffer.from(target.bytes), path);
      return 0;
    }
    const copy = await open(path, 'wx');
    try {
      return await copyBytes(reader, copy, file.sizeBytes);
    } catch (error) {
      await rm(path);
      throw withPath(error, path);
    } finally {
      await copy.close();
    }
  } finally {
    await reader.close();
  }
}

async function copyBytes(reader: UnsyncedReader, copy: FileHandle, sizeBytes: number): Promise<number> {
  let missing = 0;
  for (let start = 0; start < sizeBytes; start += PIECE_BYTES) {
    let at = start;
    for (const { length, bytes } of await reader.read({ start, end: Math.min(sizeBytes, start + PIECE_BYTES) })) {
      if (bytes === null) missing += length;
      else await writeAll(copy, bytes, at);
      at += length;
    }
  }
  await copy.truncate(sizeBytes);
  return missing;
}

async function writeAll(copy: FileHandle, bytes: Uint8Array, position: number): Promise<void> {
  for (let at = 0; at < bytes.byteLength; ) at += (await copy.write(bytes, at, undefined, position + at)).bytesWritten;
}
