import type { Clock } from '../base/clock.ts';
import type { Paths } from '../config/paths.ts';
import type { CommandOutput } from './command-output.ts';
import type { Invocation } from './invocation.ts';

/** The dependencies of every command. */
export interface CommandContext extends CommandOutput {
  readonly paths: Paths;
  readonly clock: Clock;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** @returns the exit code (`exit-codes.ts`). Failures are thrown, see `failure.ts`. */
export type CommandAction = (given: Invocation, context: CommandContext) => Promise<number>;
