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

/** A directory of the system, for finding out whether a test is right. */
export async function plainGround(): Promise<Ground> {
  const directory = await realpath(await mkdtemp(path.join(tmpdir(), 'cfs-plain-')));
  await chmod(directory, 0o755);
  return {
    directory,
    run: (script, options) => runScript(script, { directory, ...options }),
    dispose: () => rm(directory, { recursive: true, force: true }),
  };
}
