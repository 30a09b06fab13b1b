import { UsageError } from '../../base/errors.ts';
import { formatBytes, parseBytes } from '../../config/units.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { visible } from '../../mount/mount-event.ts';
import type { CommandAction, CommandContext } from '../command-context.ts';
import type { CommandName } from '../command-table.ts';
import type { Invocation } from '../invocation.ts';
import type { AdministerDeps } from './serve-administration.ts';

type ServeCommandName = Extract<CommandName, `serve${string}`>;

/** `cfs serve` and its administration. The server itself is loaded when one of them runs. */
export const SERVE_ACTIONS: Readonly<Record<ServeCommandName, CommandAction>> = {
  serve: async (given, context) => {
    const { runServer, checkData, serveFlags } = await import('./serve-command.ts');
    const directory = dataDirectory(given, context);
    const flags = serveFlags(given);
    return given.has('--check') ? checkData(directory, flags, context) : runServer(directory, flags, context);
  },

  'serve copy': async (given, context) => {
    const { copyData } = await import('./serve-copy.ts');
    return copyData(given, context);
  },
  'serve user add': administer(async (deps) =>
    (await import('./serve-administration.ts')).addUser(deps, deps.given.required(0)),
  ),
  'serve user list': administer(async ({ administration, context }) => {
    for (const { userId, email, usageBytes, quotaBytes, keyPairs } of await administration.users())
      context.print(
        `${userId}\t${email}\t${formatBytes(usageBytes)} of ${formatBytes(quotaBytes)}\t${keyPairs.join(' ')}\n`,
      );
  }),
  'serve user quota': administer(async ({ administration, given, context }) => {
    const quotaBytes = bytes(given.required(1));
    await administration.setQuota(given.required(0), quotaBytes);
    context.print(`${given.required(0)} has a quota of ${formatBytes(quotaBytes)}\n`);
  }),
  'serve user password': administer(async (deps) =>
    (await import('./serve-administration.ts')).changePassword(deps, deps.given.required(0)),
  ),
  'serve user remove': administer(async ({ administration, given, context }) => {
    if (!given.has('--yes'))
      throw new UsageError(`this deletes all files and versions of ${given.required(0)}: repeat it with --yes`);
    await administration.removeUser(given.required(0));
    context.print(`${given.required(0)} is removed\n`);
  }),
  'serve user revoke-tokens': administer(async ({ administration, given, context }) => {
    const count = await administration.revokeTokens(given.required(0));
    context.print(`${count} ${count === 1 ? 'token' : 'tokens'} revoked\n`);
  }),
  'serve key add': administer(async ({ administration, given, context }) => {
    const { accessKeyId, privateAccessKey } = await administration.addKeyPair(given.required(0));
    context.print(`CFS_ACCESS_KEY_ID=${accessKeyId}\nCFS_PRIVATE_ACCESS_KEY=${privateAccessKey}\n`);
  }),
  'serve key revoke': administer(async ({ administration, given, context }) => {
    await administration.revokeKeyPair(given.required(0));
    context.print(`${given.required(0)} is revoked\n`);
  }),
  'serve application add': administer(async ({ administration, given, context }) => {
    context.print(`CFS_APPLICATION=${await administration.addApplication(given.required(0))}\n`);
  }),
  'serve application list': administer(async ({ administration, context }) => {
    for (const { id, name, enabled } of await administration.applications())
      context.print(`${id}\t${enabled ? 'enabled' : 'disabled'}\t${name}\n`);
  }),
  'serve application disable': administer(async ({ administration, given, context }) => {
    await administration.setApplicationEnabled(given.required(0), false);
    context.print(`${given.required(0)} is disabled\n`);
  }),
  'serve application enable': administer(async ({ administration, given, context }) => {
    await administration.setApplicationEnabled(given.required(0), true);
    context.print(`${given.required(0)} is enabled\n`);
  }),
  'serve share add': administer(async ({ administration, given, context }) => {
    const [owner, folder, receiver] = [given.required(0), given.required(1), given.required(2)];
    await administration.share(owner, folder, receiver, { writeAllowed: given.has('--write') });
    context.print(`${folder} of ${owner} is shared with ${receiver}\n`);
  }),
  'serve share remove': administer(async ({ administration, given, context }) => {
    const [owner, folder, receiver] = [given.required(0), given.required(1), given.required(2)];
    await administration.unshare(owner, folder, receiver);
    context.print(`${folder} of ${owner} is no longer shared with ${receiver}\n`);
  }),
};

function administer(run: (deps: AdministerDeps) => Promise<void> | void): CommandAction {
  return async (given, context) => {
    for (const word of given.command.args)
      if (visible(word) !== word) throw new UsageError(`${visible(word)}: names must not contain control characters`);
    const { withAdministration } = await import('./serve-administration.ts');
    await withAdministration(dataDirectory(given, context), given.text('--database'), async (deps) =>
      run({ ...deps, given, context }),
    );
    return exitCode('ok');
  };
}

function dataDirectory(given: Invocation, context: CommandContext): string {
  return given.text('--data') ?? context.paths.serverDirectory;
}

function bytes(text: string): number {
  try {
    return parseBytes(text);
  } catch (error) {
    throw new UsageError((error as Error).message, 2, { cause: error });
  }
}
