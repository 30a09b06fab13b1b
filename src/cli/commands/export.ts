import { existsSync, readdirSync, statSync } from 'node:fs';
import { access, constants, type FileHandle, mkdir, open, rm, symlink } from 'node:fs/promises';
import { basename, dirname, join, relative, resolve } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { FsError, StorageError, systemCodeOf, UsageError } from '../../base/errors.ts';
import { writeAll } from '../../base/write-all.ts';
import { accountPaths, type Paths, storeDirectories } from '../../config/paths.ts';
import { formatBytes } from '../../config/units.ts';
import { PART_BYTES_MAX } from '../../control/methods.ts';
import type { UnsyncedFile } from '../../control/status-model.ts';
import { chooseAccount } from '../../mount/account-file.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import { mountPathOf } from '../../mount/mount-point.ts';
import { accountStates } from '../../mount/running-mounts.ts';
import type { CommandOutput } from '../command-output.ts';
import { DeepFolders } from './deep-folders.ts';
import {
  openUnsyncedInMount,
  openUnsyncedInStore,
  type UnsyncedReader,
  type UnsyncedSource,
} from './unsynced-source.ts';

/** Size of one read. */
const PIECE_BYTES = PART_BYTES_MAX;

/** The destination is full or read-only, or the mount is dead: every other file would fail too. */
const ENDS_ALL: ReadonlySet<string> = new Set(['ENOSPC', 'EDQUOT', 'EROFS', 'ENOTCONN']);

/**
 * `cfs export DIR`: copies the data that exists on this machine only, with or without a mount or the service. It changes
 * nothing. Exit code: ok, or store if some files or bytes could not be read or copied; all others are copied.
 */
export async function exportCommand(
  deps: CommandOutput & { readonly paths: Paths; readonly clock: Clock },
  flags: { readonly directory: string; readonly account: string | null },
): Promise<number> {
  const { name } = chooseAccount(deps.paths, flags.account);
  const directory = resolve(flags.directory);
  if (existsSync(directory) && !statSync(directory).isDirectory())
    throw new UsageError(`${visible(flags.directory)} is not a directory: name a new or empty one`);
  if (existsSync(directory) && readdirSync(directory).length > 0)
    throw new UsageError(`${visible(flags.directory)} is not empty: name a new or empty directory`);
  const done = { files: 0, bytes: 0, damaged: 0 };
  const folders = new DeepFolders(directory, 'make');
  for (const { source, folder } of await sourcesOf(deps, name, directory)) {
    try {
      for await (const file of source.files()) {
        if (file.damage !== undefined) {
          done.damaged++;
          deps.warn(`${file.path}: not copied: ${file.damage}\n`);
          continue;
        }
        if (done.files === 0) await madeWritable(directory);
        let missing: number;
        try {
          missing = await copyOut(source, file, folders, join(folder, file.path));
        } catch (error) {
          if (!concernsOneFile(error)) throw error;
          done.damaged++;
          deps.warn(`${visible(file.path)}: not copied: ${visible((error as Error).message)}\n`);
          continue;
        }
        done.files++;
        done.bytes += file.sizeBytes;
        deps.redraw?.(`${done.files} copied, ${formatBytes(done.bytes)}: ${visible(file.path)}`);
        if (missing === 0) continue;
        done.damaged++;
        deps.warn(
          `${visible(file.path)}: ${formatBytes(missing)} of ${formatBytes(file.sizeBytes)} are not on this machine: zeros instead\n`,
        );
      }
    } finally {
      deps.redraw?.('');
      await folders.close();
      await source.close();
    }
  }
  deps.print(
    done.files === 0 && done.damaged === 0
      ? 'nothing exists only on this machine\n'
      : `${done.files} copied to ${visible(flags.directory)} (${formatBytes(done.bytes)})\n`,
  );
  return done.damaged === 0 ? exitCode('ok') : exitCode('store');
}

/**
 * Whether other files may still be copied after this error: the destination rejects the name, a link or the size, or the source
 * cannot be read or was renamed.
 */
export function concernsOneFile(error: unknown): boolean {
  if (error instanceof FsError || error instanceof StorageError) return true;
  const code = systemCodeOf(error);
  return code !== undefined && (error as NodeJS.ErrnoException).syscall !== undefined && !ENDS_ALL.has(code);
}

/** @throws if nothing can be copied there: one error instead of one per file */
async function madeWritable(directory: string): Promise<void> {
  await mkdir(directory, { recursive: true });
  await access(directory, constants.W_OK);
}

interface FolderOfSource {
  readonly source: UnsyncedSource;
  /** One folder per root below the destination, because both trees may contain the same names. */
  readonly folder: string;
}

/** The running mount, if any, and the other stores of the account, with the changes below the other root. */
async function sourcesOf(
  deps: { readonly paths: Paths; readonly clock: Clock },
  name: string,
  directory: string,
): Promise<readonly FolderOfSource[]> {
  const state = (await accountStates(deps.paths)).find((known) => known.name === name);
  const mounted = state?.status ?? null;
  const sources: FolderOfSource[] = [];
  if (state !== undefined && mounted !== null) {
    // Copies inside the mount would be new files, which would be copied again.
    if (!relative(mounted.directory, mountPathOf(directory)).startsWith('..'))
      throw new UsageError(`${visible(directory)} is inside the mount: name a folder outside it`);
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

/** @returns the number of unavailable bytes */
async function copyOut(
  source: UnsyncedSource,
  file: UnsyncedFile,
  folders: DeepFolders,
  path: string,
): Promise<number> {
  if (file.kind === 'folder') return folders.in(path, async () => 0);
  return folders.in(dirname(path), (folder) => copyInto(source, file, join(folder, basename(path))));
}

async function copyInto(source: UnsyncedSource, file: UnsyncedFile, path: string): Promise<number> {
  const reader = await source.open(file);
  try {
    if (file.kind === 'symlink') {
      const [target] = await reader.read({ start: 0, end: reader.sizeBytes });
      if (target === undefined || target.bytes === null) return reader.sizeBytes;
      await symlink(Buffer.from(target.bytes), path);
      return 0;
    }
    const copy = await open(path, 'wx');
    try {
      const missing = await copyBytes(reader, copy);
      await copy.close();
      return missing;
    } catch (error) {
      await copy.close().catch(() => {});
      await rm(path).catch(() => {}); // the message must show the original error
      throw error;
    }
  } finally {
    await reader.close();
  }
}

async function copyBytes(reader: UnsyncedReader, copy: FileHandle): Promise<number> {
  const { sizeBytes } = reader;
  let missing = 0;
  for (let start = 0; start < sizeBytes; start += PIECE_BYTES) {
    const end = Math.min(sizeBytes, start + PIECE_BYTES);
    let at = start;
    for (const { length, bytes } of await reader.read({ start, end })) {
      if (bytes === null) missing += length;
      else await writeAll(copy, bytes, at);
      at += length;
    }
    // Truncated since it was opened.
    missing += end - at;
  }
  await copy.truncate(sizeBytes);
  return missing;
}
