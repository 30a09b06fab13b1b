import type { Command } from 'commander';
import { UsageError } from '../base/errors.ts';
import { parseBytes, parseDuration } from '../config/units.ts';
import type { ServeFlags } from './serve-command.ts';

/** What `cfs serve` and its subcommands get from the program they belong to. */
export interface ServeContext {
  /** Where the data lie without --data. */
  readonly defaultDirectory: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Standard output. */
  readonly print: (text: string) => void;
  /** Takes the exit code of the command that ran. */
  readonly ended: (code: number) => void;
}

/** Adds `cfs serve` with its administration. The server itself is loaded when one of them runs. */
export function registerServe(program: Command, context: ServeContext): void {
  const serve = program
    .command('serve')
    .description('run the service: for trying out, for tests, and for your own use')
    .option('--data <directory>', `where everything is kept (default: ${context.defaultDirectory})`)
    .option('--listen <host:port>', 'where to listen; without a port: the one of the last start', '127.0.0.1')
    .option('--tls-cert <file>', 'certificate chain, PEM')
    .option('--tls-key <file>', 'private key, PEM')
    .option('--insecure', 'plain HTTP beyond this machine: only behind something that speaks TLS')
    .option('--public-origin <url>', 'what the URLs in answers begin with, if not where it listens')
    .option('--token-life <duration>', 'life of an access token', milliseconds, 3_600_000)
    .option('--versions-kept <n>', 'complete versions of a file that are kept (default: all)', whole)
    .option('--unique-names', 'refuse equal names in one folder')
    .option('--fold-case', 'refuse names that differ only by case')
    .option('--page-max <n>', 'entries on one page of a listing at most', whole)
    .option('--accept-any-keys', 'let any application in: for clients that have their own keys built in')
    .option('--fault-file <file>', 'trouble to order: a JSON array of rules (docs/service.md 11)')
    .option('--latency <duration>', 'wait before each answer', milliseconds, 0)
    .option('--bandwidth <bytes>', 'bytes per second of each body', bytes)
    .option('--ready-fd <n>', 'write {"origin":…} and a newline there when it listens', whole)
    .option('--log-level <level>', 'error, warn, info, debug', 'info')
    .option('--check', 'compare the length and SHA-256 of everything that is kept, and end')
    .action(async (flags: ServeFlags) => {
      const { runServer, checkData } = await import('./serve-command.ts');
      const directory = flags.data ?? context.defaultDirectory;
      context.ended(
        await (flags.check === true ? checkData(directory, context) : runServer(directory, flags, context)),
      );
    });

  const administer = <A extends unknown[]>(name: string, run: (deps: AdministerDeps, ...args: A) => Promise<void>) => {
    const [group = '', words = ''] = [name.slice(0, name.indexOf(' ')), name.slice(name.indexOf(' ') + 1)];
    const parent = serve.commands.find((command) => command.name() === group) ?? serve.command(group);
    return parent
      .command(words)
      .option('--data <directory>', 'where everything is kept')
      .action(async (...given: unknown[]) => {
        const command = given.pop() as Command;
        const flags = command.optsWithGlobals<ServeFlags & AdministerFlags>();
        const { withAdministration } = await import('./serve-administration.ts');
        const args = given.slice(0, -1) as A;
        await withAdministration(flags.data ?? context.defaultDirectory, (deps) =>
          run({ ...deps, flags, context }, ...args),
        );
        context.ended(0);
      });
  };

  administer('user add <email>', async (deps, email: string) =>
    (await import('./serve-administration.ts')).addUser(deps, email),
  )
    .description('make an account and print what `cfs login` needs; the password from CFS_PASSWORD, or asked for')
    .option('--password-stdin', 'read the password from standard input')
    .option('--nickname <name>')
    .option('--quota <bytes>', 'how much it may store', bytes);
  administer('user list', async ({ administration }) => {
    for (const user of administration.users()) {
      const { userId, email, usageBytes, quotaBytes, keyPairs } = user;
      context.print(`${userId}\t${email}\t${usageBytes} of ${quotaBytes} bytes\t${keyPairs.join(' ')}\n`);
    }
  }).description('all accounts: id, address, usage, keys');
  administer('user quota <email> <bytes>', async ({ administration }, email: string, limit: string) => {
    administration.setQuota(email, bytes(limit));
  }).description('how much an account may store');
  administer('user revoke-tokens <email>', async ({ administration }, email: string) => {
    context.print(`${administration.revokeTokens(email)} revoked\n`);
  }).description('sign an account out everywhere');
  administer('key add <email>', async ({ administration }, email: string) => {
    const { accessKeyId, privateAccessKey } = administration.addKeyPair(email);
    context.print(`CFS_ACCESS_KEY_ID=${accessKeyId}\nCFS_PRIVATE_ACCESS_KEY=${privateAccessKey}\n`);
  }).description('make a key pair, at most ten per account');
  administer('key revoke <id>', async ({ administration }, id: string) => administration.revokeKeyPair(id)).description(
    'make a key pair useless',
  );
  administer('application add <name>', async ({ administration }, name: string) => {
    context.print(`CFS_APPLICATION=${administration.addApplication(name)}\n`);
  }).description('make an application');
  administer('application list', async ({ administration }) => {
    for (const { id, name, enabled } of administration.applications()) {
      context.print(`${id}\t${enabled ? 'enabled' : 'disabled'}\t${name}\n`);
    }
  }).description('all applications');
  administer('application disable <id>', async ({ administration }, id: string) => {
    administration.setApplicationEnabled(id, false);
  }).description('give an application no tokens any more');
  administer('application enable <id>', async ({ administration }, id: string) => {
    administration.setApplicationEnabled(id, true);
  }).description('give it tokens again');
  administer('share add <owner> <folder> <receiver>', async (deps, owner: string, folder: string, receiver: string) => {
    deps.administration.share(owner, folder, receiver, { writeAllowed: deps.flags.write === true });
  })
    .description('let another account see a folder, named by the end of its URL (5000_5001)')
    .option('--write', 'and change it');
  administer(
    'share remove <owner> <folder> <receiver>',
    async (deps, owner: string, folder: string, receiver: string) => {
      deps.administration.unshare(owner, folder, receiver);
    },
  ).description('take a share back');
}

/** What an administrating command works with. */
export interface AdministerDeps {
  readonly administration: import('../server/administration.ts').Administration;
  /** Where clients find the server on these data. */
  readonly origin: () => Promise<string>;
  readonly flags: AdministerFlags;
  readonly context: ServeContext;
}

export interface AdministerFlags {
  readonly passwordStdin?: boolean;
  readonly nickname?: string;
  readonly quota?: number;
  readonly write?: boolean;
}

function whole(text: string): number {
  if (!/^\d{1,9}$/.test(text)) throw new UsageError(`"${text}" is not a whole number`);
  return Number(text);
}

function milliseconds(text: string): number {
  return orUsageError(() => parseDuration(text));
}

function bytes(text: string): number {
  return orUsageError(() => parseBytes(text));
}

function orUsageError(parse: () => number): number {
  try {
    return parse();
  } catch (error) {
    throw new UsageError((error as Error).message, 2, { cause: error });
  }
}
