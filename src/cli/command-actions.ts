import type { Clock } from '../base/clock.ts';
import type { Paths } from '../config/paths.ts';
import type { CommandName } from './command-table.ts';
import { exitCode } from './exit-codes.ts';
import type { Invocation } from './invocation.ts';
import { givenFlags, mountOptions } from './option-flags.ts';
import { terminalPrompt } from './prompt.ts';
import { SERVE_ACTIONS } from './serve.ts';
import type { CommandOutput } from './sync.ts';

/** What every command may use. */
export interface CommandContext extends CommandOutput {
  readonly paths: Paths;
  readonly clock: Clock;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** @returns the exit code (`exit-codes.ts`). Failures are thrown, see `failure.ts`. */
export type CommandAction = (given: Invocation, context: CommandContext) => Promise<number>;

/** What each row of the command table does. The code of a command is loaded when it is asked for. */
export const COMMAND_ACTIONS: Readonly<Record<CommandName, CommandAction>> = {
  ...SERVE_ACTIONS,

  login: async (given, context) => {
    const { loginCommand } = await import('./login.ts');
    const prompt = terminalPrompt(process.stdin as never, process.stderr as never);
    return loginCommand({ ...context, prompt }, { url: given.argument(0), insecure: given.has('--insecure') });
  },

  status: async (given, context) => {
    const { statusCommand } = await import('./status.ts');
    return statusCommand(context, { json: given.has('--json') });
  },

  sync: async (given, context) => {
    const { syncCommand } = await import('./sync.ts');
    const flags = { wait: given.has('--wait'), timeoutMs: given.duration('--timeout') };
    return syncCommand(context, { ...pathFlags(given), ...flags });
  },

  refresh: async (given, context) => {
    const { refreshCommand } = await import('./refresh.ts');
    return refreshCommand(context, { ...pathFlags(given), accept: given.has('--accept') });
  },

  pin: async (given, context) => {
    const { pinCommand } = await import('./pin.ts');
    return pinCommand(context, { file: given.required(0), account: null });
  },

  unpin: async (given, context) => {
    const { unpinCommand } = await import('./pin.ts');
    return unpinCommand(context, { file: given.required(0), account: null });
  },

  retry: async (given, context) => {
    const { retryCommand } = await import('./refresh.ts');
    return retryCommand(context, pathFlags(given));
  },

  umount: async (given, context) => {
    const { umountCommand } = await import('./umount.ts');
    const timeoutMs = given.has('--now') ? 0 : given.duration('--timeout');
    return umountCommand(context, { directory: given.argument(0), account: given.text('--account'), timeoutMs });
  },

  doctor: async (given, context) => {
    const { doctorCommand } = await import('./doctor.ts');
    const flags = { store: given.has('--store'), json: given.has('--json'), account: given.text('--account') };
    return doctorCommand(context, flags);
  },

  'service install': async (given, context) => {
    const { installService } = await import('./service.ts');
    const options = mountOptions(given.command, context.env, context.paths);
    const deps = { ...context, options, given: givenFlags(given.command) };
    return installService(deps, { directory: given.required(0), account: given.text('--account') });
  },

  'service remove': async (given, context) => {
    const { removeService } = await import('./service.ts');
    return removeService(context, { directory: given.argument(0) });
  },

  completion: async (given, context) => {
    const { completionOf } = await import('./completion/completion.ts');
    context.print(completionOf(given.required(0)));
    return exitCode('ok');
  },

  demo: async (given, context) => {
    const options = mountOptions(given.command, context.env, context.paths);
    const { demoCommand } = await import('./demo.ts');
    return demoCommand({ ...context, options }, { directory: given.argument(0) });
  },
};

function pathFlags(given: Invocation): { readonly file: string | null; readonly account: string | null } {
  return { file: given.argument(0), account: given.text('--account') };
}
