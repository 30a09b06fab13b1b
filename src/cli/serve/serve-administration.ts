import { UsageError } from '../../base/errors.ts';
import { freePort } from '../../base/free-port.ts';
import { openAdministration } from '../../server/local-back-end.ts';
import type { AdministrationRules } from '../../server/rules.ts';
import type { CommandContext } from '../command-context.ts';
import type { Invocation } from '../invocation.ts';
import { terminalPrompt } from '../prompt.ts';
import { secretFromEnvironment } from '../secret-input.ts';
import { databaseUrl } from './database-url.ts';

/** Opens the data, whether or not a server runs on them, and closes them again. @param database null: the data directory */
export async function withAdministration(
  dataDirectory: string,
  database: string | null,
  run: (deps: Pick<AdministerDeps, 'administration' | 'origin'>) => Promise<void>,
): Promise<void> {
  if (database !== null) return withDatabase(databaseUrl(database), run);
  const data = await openAdministration({ dataDirectory });
  try {
    await run({
      administration: data.administration,
      // Before the first start, the port is chosen now, so that the printed address stays valid.
      origin: async () => data.origin() ?? data.reserve(await freePort()),
    });
  } finally {
    await data.close();
  }
}

/** The client of the database is loaded only if there is one. */
async function withDatabase(
  url: string,
  run: (deps: Pick<AdministerDeps, 'administration' | 'origin'>) => Promise<void>,
): Promise<void> {
  const { openPostgresAdministration } = await import('../../server/postgres/postgres-back-end.ts');
  const { close, ...data } = await openPostgresAdministration(url);
  try {
    await run(data);
  } finally {
    await close();
  }
}

/** `cfs serve user add`: an account, its first key pair, and everything that `cfs login` reads from the environment. */
export async function addUser(deps: AdministerDeps, email: string): Promise<void> {
  const { administration, given, context } = deps;
  const [nickname, quota] = [given.text('--nickname'), given.bytes('--quota')];
  await administration.addUser(email, await passwordOf(deps, 'password of the new account'), {
    ...(nickname === null ? {} : { nickname }),
    ...(quota === null ? {} : { quotaBytes: quota }),
  });
  const known = (await administration.applications()).find(({ name, enabled }) => name === APPLICATION && enabled);
  const application = known?.id ?? (await administration.addApplication(APPLICATION));
  const { accessKeyId, privateAccessKey } = await administration.addKeyPair(email);
  const lines = {
    CFS_URL: await deps.origin(),
    CFS_USERNAME: email,
    CFS_APPLICATION: application,
    CFS_ACCESS_KEY_ID: accessKeyId,
    CFS_PRIVATE_ACCESS_KEY: privateAccessKey,
  };
  for (const [name, value] of Object.entries(lines)) context.print(`${name}=${value}\n`);
}

/** `cfs serve user password`. */
export async function changePassword(deps: AdministerDeps, email: string): Promise<void> {
  await deps.administration.checkUser(email);
  await deps.administration.setPassword(email, await passwordOf(deps, `new password of ${email}`));
  deps.context.print(`the password of ${email} is changed; it is signed out everywhere\n`);
}

const APPLICATION = 'cfs-mount';

/** Not from the command line, which other users of the machine can read. */
async function passwordOf({ given, context }: AdministerDeps, question: string): Promise<string> {
  if (given.has('--password-stdin')) return firstLine(await standardInput());
  const known = secretFromEnvironment(context.env, 'CFS_PASSWORD');
  if (known !== null) return known;
  const prompt = terminalPrompt(process.stdin as never, process.stderr as never);
  if (prompt === null)
    throw new UsageError('no password: set CFS_PASSWORD or CFS_PASSWORD_FILE, or use --password-stdin');
  return prompt.ask(question, { hidden: true });
}

async function standardInput(): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

function firstLine(text: string): string {
  return text.split(/\r?\n/, 1)[0] as string;
}

/** The dependencies of an administration command. */
export interface AdministerDeps {
  readonly administration: AdministrationRules;
  /** The address of the server for clients. */
  readonly origin: () => Promise<string>;
  readonly given: Invocation;
  readonly context: CommandContext;
}
