import { existsSync, statfsSync } from 'node:fs';
import { chmod, mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type CommandOptions, type CommandResult, runScript } from './command.ts';

/**
 * A directory in which programs run: a mount, or a plain directory beside which the same tests must pass. It is touched by
 * child processes only.
 */
export interface Ground {
  readonly directory: string;
  /** A shell script in `directory`, stopped at its first failing command. */
  run(script: string, options?: CommandOptions): Promise<CommandResult>;
  dispose(): Promise<void>;
}

export const TMPFS = 0x01021994; // linux/magic.h
/** Folders of the system in which a test may make its own. */
export const PLACES: readonly string[] = [tmpdir(), '/var/tmp', process.cwd()].filter((folder) => existsSync(folder));

/** Where to make a directory that can do more than a tmpfs, which /tmp often is: zero ranges, and reads that do not wait. */
export function placeOnDisk(): string {
  return PLACES.find((folder) => statfsSync(folder).type !== TMPFS) ?? tmpdir();
}

/** A directory of the system, for finding out whether a test is right. */
export async function plainGround(): Promise<Ground> {
  const directory = await realpath(await mkdtemp(path.join(placeOnDisk(), 'cfs-plain-')));
  await chmod(directory, 0o755);
  return {
    directory,
    run: (script, options) => runScript(script, { directory, ...options }),
    dispose: () => rm(directory, { recursive: true, force: true }),
  };
}
