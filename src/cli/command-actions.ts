import { UsageError } from '../base/errors.ts';
import { exitCode } from '../mount/exit-codes.ts';
import type { CommandAction, CommandContext } from './command-context.ts';
import type { CommandName } from './command-table.ts';
import type { ConflictChoice } from './commands/conflicts.ts';
import type { Invocation } from './invocation.ts';
import { terminalPrompt } from './prompt.ts';
import { SERVE_ACTIONS } from './serve/serve.ts';
import { ServiceWait } from './service-wait.ts';

/** The action of each row of the command table. The code of a command is loaded when the command runs. */
export const COMMAND_ACTIONS: Readonly<Record<CommandName, CommandAction>> = {
  ...SERVE_ACTIONS,

  login: async (given, context) => {
    const { loginCommand } = await import('./commands/login.ts');
    const prompt = terminalPrompt(process.stdin as never, process.stderr as never);
    const { secretFromFile, secretFromInput } = await import('./secret-input.ts');
    const keyFile = given.text('--private-access-key-file');
    const inputs = {
      username: given.text('--username'),
      application: given.text('--application'),
      accessKeyId: given.text('--access-key-id'),
      privateAccessKey: keyFile === null ? null : secretFromFile(keyFile, '--private-access-key-file'),
      password: given.has('--password-stdin') ? await secretFromInput(process.stdin, '--password-stdin') : null,
    };
    const url = given.argument(0);
    const known = Object.fromEntries(Object.entries(inputs).filter(([, value]) => value !== null));
    return loginCommand(
      { ...waiting(given, context), prompt },
      { url, insecure: given.has('--insecure'), given: known },
    );
  },

  logout: async (given, context) => {
    const { logoutCommand } = await import('./commands/accounts.ts');
    return logoutCommand(context, { account: given.text('--account'), forget: given.has('--forget') });
  },

  accounts: async (given, context) => {
    const { accountsCommand } = await import('./commands/accounts.ts');
    return accountsCommand(context, { json: given.has('--json') });
  },

  status: async (given, context) => {
    const { statusCommand } = await import('./commands/status.ts');
    const watchUntil = given.has('--watch') ? untilInterrupted() : null;
    return statusCommand(context, { json: given.has('--json'), watchUntil, isTerminal: process.stdout.isTTY });
  },

  log: async (given, context) => {
    const { logCommand } = await import('./commands/log.ts');
    const followUntil = given.has('--follow') ? untilInterrupted() : null;
    return logCommand(context, { ...pathFlags(given), followUntil, json: given.has('--json') });
  },

  versions: async (given, context) => {
    const { versionsCommand } = await import('./commands/versions.ts');
    return versionsCommand(waiting(given, context), { file: given.required(0), json: given.has('--json') });
  },

  restore: async (given, context) => {
    const to = given.text('--to');
    const { parseTime, restoreAtCommand } = await import('./commands/restore-at.ts');
    const atMs = given.parsed('--at', parseTime);
    if (atMs !== null) {
      if (to !== null) throw new UsageError('--at and --to cannot be combined');
      return restoreAtCommand(waiting(given, context), { path: given.required(0), atMs });
    }
    const { restoreCommand } = await import('./commands/restore.ts');
    return restoreCommand(waiting(given, context), { what: given.required(0), to });
  },

  diff: async (given, context) => {
    const { diffCommand } = await import('./commands/diff.ts');
    const flags = { before: given.required(0), after: given.required(1), tool: given.text('--tool') };
    return diffCommand(waiting(given, context), flags);
  },

  'trash list': async (given, context) => {
    const { trashListCommand } = await import('./commands/trash.ts');
    return trashListCommand(waiting(given, context), { account: given.text('--account'), json: given.has('--json') });
  },

  'trash restore': async (given, context) => {
    const { trashRestoreCommand } = await import('./commands/trash.ts');
    const flags = { item: given.required(0), to: given.text('--to'), account: given.text('--account') };
    return trashRestoreCommand(waiting(given, context), flags);
  },

  'trash empty': async (given, context) => {
    const { trashEmptyCommand } = await import('./commands/trash.ts');
    const prompt = terminalPrompt(process.stdin as never, process.stderr as never);
    return trashEmptyCommand(
      { ...waiting(given, context), prompt },
      { account: given.text('--account'), yes: given.has('--yes') },
    );
  },

  'share link': async (given, context) => {
    const { shareLinkCommand } = await import('./commands/share.ts');
    return shareLinkCommand(waiting(given, context), {
      file: given.required(0),
      state: given.has('--off') ? 'off' : 'on',
    });
  },

  'share list': async (given, context) => {
    const { shareListCommand } = await import('./commands/share.ts');
    return shareListCommand(waiting(given, context), { account: given.text('--account'), json: given.has('--json') });
  },

  export: async (given, context) => {
    const { exportCommand } = await import('./commands/export.ts');
    return exportCommand(context, { directory: given.required(0), account: given.text('--account') });
  },

  'config show': async (given, context) => {
    const { configShowCommand } = await import('./commands/config-show.ts');
    const { loadedOptions } = await import('./option-flags.ts');
    const loaded = loadedOptions(given.command, context.env, context.paths);
    return configShowCommand(context, loaded, { json: given.has('--json') });
  },

  metrics: async (given, context) => {
    const { metricsCommand } = await import('./commands/metrics.ts');
    return metricsCommand(context, { account: given.text('--account') });
  },

  'log-level': async (given, context) => {
    const { logLevelCommand } = await import('./commands/log-level.ts');
    return logLevelCommand(context, { level: given.argument(0), account: given.text('--account') });
  },

  sync: async (given, context) => {
    const { syncCommand } = await import('./commands/sync.ts');
    const flags = { wait: given.has('--wait'), timeoutMs: given.duration('--timeout') };
    return syncCommand(context, { ...pathFlags(given), ...flags });
  },

  pause: async (given, context) => {
    const { pauseCommand } = await import('./commands/pause.ts');
    return pauseCommand(context, { account: given.text('--account'), forMs: given.duration('--for') });
  },

  resume: async (given, context) => {
    const { resumeCommand } = await import('./commands/pause.ts');
    return resumeCommand(context, { account: given.text('--account') });
  },

  limit: async (given, context) => {
    const { limitCommand, parseRate } = await import('./commands/limit.ts');
    const flags = { up: given.parsed('--up', parseRate), down: given.parsed('--down', parseRate) };
    return limitCommand(context, { ...flags, account: given.text('--account') });
  },

  refresh: async (given, context) => {
    const { refreshCommand } = await import('./commands/refresh.ts');
    return refreshCommand(waiting(given, context), { ...pathFlags(given), accept: given.has('--accept') });
  },

  pin: async (given, context) => {
    const { pinCommand } = await import('./commands/pin.ts');
    return pinCommand(context, { file: given.required(0), account: null, once: given.has('--once') });
  },

  evict: async (given, context) => {
    const { evictCommand } = await import('./commands/evict.ts');
    return evictCommand(waiting(given, context), { file: given.required(0), account: null });
  },

  unpin: async (given, context) => {
    const { unpinCommand } = await import('./commands/pin.ts');
    return unpinCommand(context, { file: given.required(0), account: null });
  },

  retry: async (given, context) => {
    const { retryCommand } = await import('./commands/refresh.ts');
    return retryCommand(context, pathFlags(given));
  },

  discard: async (given, context) => {
    const { discardCommand } = await import('./commands/discard.ts');
    const flags = { account: given.text('--account'), isSure: given.has('--yes') };
    return discardCommand(context, { ...flags, file: given.required(0) });
  },

  conflicts: async (given, context) => {
    const { conflictsCommand } = await import('./commands/conflicts.ts');
    return conflictsCommand(context, { account: given.text('--account'), json: given.has('--json') });
  },

  'conflicts diff': async (given, context) => {
    const { conflictsDiffCommand } = await import('./commands/conflicts.ts');
    return conflictsDiffCommand(context, { file: given.required(0), tool: given.text('--tool') });
  },

  'conflicts keep': async (given, context) => {
    const { conflictsKeepCommand } = await import('./commands/conflicts.ts');
    return conflictsKeepCommand(context, { side: given.required(0) as ConflictChoice, file: given.required(1) });
  },

  umount: async (given, context) => {
    const { umountCommand } = await import('./commands/umount.ts');
    const timeoutMs = given.has('--now') ? 0 : given.duration('--timeout');
    return umountCommand(context, { directory: given.argument(0), account: given.text('--account'), timeoutMs });
  },

  doctor: async (given, context) => {
    const { doctorCommand } = await import('./commands/doctor.ts');
    const flags = { store: given.has('--store'), json: given.has('--json'), account: given.text('--account') };
    return doctorCommand(context, flags);
  },

  'desktop install': async (_given, context) => {
    const { installDesktop } = await import('./commands/desktop.ts');
    return installDesktop(context);
  },

  'desktop uninstall': async (_given, context) => {
    const { uninstallDesktop } = await import('./commands/desktop.ts');
    return uninstallDesktop(context);
  },

  'service install': async (given, context) => {
    const { installService } = await import('./commands/service.ts');
    const { givenHere, loadedOptions } = await import('./option-flags.ts');
    const loaded = loadedOptions(given.command, context.env, context.paths);
    const deps = { ...context, options: loaded.options, given: givenHere(loaded) };
    return installService(deps, { directory: given.required(0), account: given.text('--account') });
  },

  'service remove': async (given, context) => {
    const { removeService } = await import('./commands/service.ts');
    return removeService(context, { directory: given.argument(0) });
  },

  web: async (given, context) => {
    const { webCommand } = await import('./commands/web.ts');
    const { readPageFiles } = await import('../web/page-files.ts');
    const flags = {
      port: given.port('--port') ?? 0,
      hosts: given.texts('--host'),
      open: given.has('--open'),
      path: given.argument(0),
      until: untilInterrupted(),
    };
    return webCommand({ ...context, files: readPageFiles() }, flags);
  },

  completion: async (given, context) => {
    const { completionOf } = await import('./completion/completion.ts');
    context.print(completionOf(given.required(0)));
    return exitCode('ok');
  },

  demo: async (given, context) => {
    const { mountOptions } = await import('./option-flags.ts');
    const options = mountOptions(given.command, context.env, context.paths);
    const { demoCommand } = await import('./demo/demo.ts');
    return demoCommand({ ...context, options }, { directory: given.argument(0) });
  },
};

/** For a command that waits for the service; its row has `TIMEOUT`. */
function waiting(given: Invocation, context: CommandContext) {
  return { ...context, wait: new ServiceWait(context, given.duration('--timeout')) };
}

/** Aborted at Ctrl-C, or when the reader of the output is gone. */
function untilInterrupted(): AbortSignal {
  const done = new AbortController();
  const end = (): void => done.abort();
  process.once('SIGINT', end);
  process.once('SIGTERM', end);
  process.stdout.once('error', end);
  return done.signal;
}

function pathFlags(given: Invocation): { readonly file: string | null; readonly account: string | null } {
  return { file: given.argument(0), account: given.text('--account') };
}
