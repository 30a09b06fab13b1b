import type { Clock } from '../../base/clock.ts';
import { ApiError, ProtocolError, SignInError, TransportError, UsageError } from '../../base/errors.ts';
import { type Logger, silentLogger } from '../../base/log.ts';
import { accountName, type Paths } from '../../config/paths.ts';
import { type Account, accountFileOf, readAccountFile, withProxy, writeAccountFile } from '../../mount/account-file.ts';
import { exitCode } from '../../mount/exit-codes.ts';
import { transportReason } from '../../mount/failure.ts';
import { visible } from '../../mount/mount-event.ts';
import { routeTo, type ServiceRoute } from '../../mount/service-route.ts';
import { settledOptions } from '../../mount/settled-options.ts';
import { shapeOf } from '../../protocol/endpoints.ts';
import type { RemoteUser } from '../../remote/contract.ts';
import { openService } from '../../remote/open-service.ts';
import type { Prompt } from '../prompt.ts';
import { secretFromEnvironment } from '../secret-input.ts';
import type { ServiceWait } from '../service-wait.ts';

/** The inputs of a sign-in. All can come from the environment; missing ones are prompted for at a terminal. */
const INPUTS = [
  { field: 'username', variable: 'CFS_USERNAME', flag: '--username', question: 'User name (e-mail address)' },
  { field: 'password', variable: 'CFS_PASSWORD', flag: '--password-stdin', question: 'Password', secret: true },
  { field: 'application', variable: 'CFS_APPLICATION', flag: '--application', question: 'Application ID' },
  { field: 'accessKeyId', variable: 'CFS_ACCESS_KEY_ID', flag: '--access-key-id', question: 'Access key ID' },
  {
    field: 'privateAccessKey',
    variable: 'CFS_PRIVATE_ACCESS_KEY',
    flag: '--private-access-key-file',
    question: 'Private access key',
    secret: true,
  },
] as const satisfies readonly { readonly secret?: true; readonly [name: string]: unknown }[];

export type SignInInputs = Readonly<Record<(typeof INPUTS)[number]['field'], string>>;

/** Limit of a sign-in with its retries: the user is waiting. */
const SIGN_IN_MS_MAX = 60_000;
const USER_AGENT = 'cfs-mount';

export interface SignedIn {
  /** The account's name for `--account`. */
  readonly name: string;
  readonly account: Account;
}

/**
 * `cfs login URL`: exchanges the password for a refresh token and saves that, with the keys, in a 0600 file. Secrets come
 * from the environment, a file, standard input or a prompt, never from the command line, which every user of the machine can read.
 */
export async function loginCommand(
  deps: {
    paths: Paths;
    clock: Clock;
    env: Readonly<Record<string, string | undefined>>;
    prompt: Prompt | null;
    print: (text: string) => void;
    wait: ServiceWait;
  },
  flags: {
    readonly url: string | null;
    readonly insecure: boolean;
    /** The values of the flags, and secrets read from standard input or a file. */
    readonly given?: Readonly<Partial<SignInInputs>>;
  },
): Promise<number> {
  const origin = originOf(flags.url ?? deps.env.CFS_URL ?? null);
  // From the environment and config.toml, as for a mount.
  const settled = settledOptions(deps.env, deps.paths);
  const options = { ...settled, insecure: flags.insecure || settled.insecure };
  const route = routeTo(origin, { env: deps.env, options, known: null });
  const inputs = await deps.wait.paused(() => gatherInputs(flags.given ?? {}, deps.env, deps.prompt));
  const { name, account } = await deps.wait.for(origin, () =>
    signIn({ paths: deps.paths, clock: deps.clock, log: silentLogger }, { origin, inputs, route }),
  );
  deps.print(`signed in to ${account.origin} as ${visible(account.username)} (account ${visible(name)})\n`);
  return exitCode('ok');
}

/**
 * Signs in and saves the account.
 *
 * @throws UsageError: refused (signIn), unreachable, or not the service (unreachable)
 */
export async function signIn(
  deps: { paths: Paths; clock: Clock; log: Logger },
  how: {
    readonly origin: string;
    readonly inputs: SignInInputs;
    readonly route: ServiceRoute;
  },
): Promise<SignedIn> {
  const { application, accessKeyId, privateAccessKey, username, password } = how.inputs;
  const service = openService({
    baseUrl: how.origin,
    ...how.route,
    userAgent: USER_AGENT,
    keys: { application, accessKeyId, privateAccessKey },
    refreshToken: null,
    clock: deps.clock,
    log: deps.log,
  });
  try {
    const signal = AbortSignal.timeout(SIGN_IN_MS_MAX);
    const refreshToken = await service.signIn({ username, password }, signal);
    const user = await service.user(signal);
    const account = {
      origin: how.origin,
      userId: userIdOf(how.origin, user),
      username,
      application,
      accessKeyId,
      privateAccessKey,
      refreshToken,
      // Saved with the account, so that mounts and commands need no `--insecure`.
      ...(how.route.insecure && { insecure: true as const }),
    };
    const file = accountFileOf(deps.paths, account);
    writeAccountFile(file, withProxy({ ...keptProxy(file), ...account }, how.route.proxy));
    return { name: accountName(account.origin, account.userId), account };
  } catch (error) {
    throw inWords(error, how.origin);
  } finally {
    await service.close();
  }
}

/** The proxy credentials that an earlier sign-in, or `cfs service install`, saved. */
function keptProxy(file: string): Pick<Account, 'proxy'> {
  try {
    const { proxy } = readAccountFile(file);
    return proxy === undefined ? {} : { proxy };
  } catch {
    return {}; // The first sign-in, or a damaged file, which this one replaces.
  }
}

/** Scheme, host and port of the given address. @throws UsageError */
export function originOf(url: string | null): string {
  if (url === null || url === '') throw new UsageError('no service address: run cfs login URL, or set CFS_URL');
  const parsed = URL.canParse(url) ? new URL(url) : null;
  if (parsed === null || !['http:', 'https:'].includes(parsed.protocol))
    throw new UsageError(`${visible(url)} is not a URL such as https://api.example.com`);
  if (parsed.username !== '' || parsed.password !== '')
    throw new UsageError('the URL must not contain a user name or password: other users of this machine can read it');
  if (parsed.pathname !== '/' || parsed.search !== '' || parsed.hash !== '')
    throw new UsageError(`${visible(url)} must be a scheme and a host only: use ${parsed.origin}`);
  return parsed.origin;
}

/** @throws UsageError naming every missing value that cannot be prompted for */
async function gatherInputs(
  flags: Readonly<Partial<SignInInputs>>,
  env: Readonly<Record<string, string | undefined>>,
  prompt: Prompt | null,
): Promise<SignInInputs> {
  const given: Record<string, string> = {};
  const missing: string[] = [];
  for (const { field, variable, flag, question, ...input } of INPUTS) {
    const known = 'secret' in input ? secretFromEnvironment(env, variable) : env[variable];
    const value = flags[field] ?? known ?? '';
    if (value !== '') given[field] = value;
    else if (prompt === null) missing.push(`${variable} (${flag})`);
    else given[field] = await prompt.ask(question, { hidden: 'secret' in input });
  }
  if (missing.length > 0)
    throw new UsageError(`no terminal for a prompt, and neither flags nor environment provide: ${missing.join(', ')}`);
  return given as SignInInputs;
}

function userIdOf(origin: string, user: RemoteUser): string {
  const shape = shapeOf(origin, user.url);
  if (shape?.kind !== 'user') throw new ProtocolError(`the user's URL is not one: ${user.url}`);
  return shape.id;
}

/** Any failure as one sentence with the cure. */
function inWords(error: unknown, origin: string): unknown {
  if (error instanceof SignInError)
    return new UsageError(`${error.message}: check them and try again`, exitCode('signIn'), { cause: error });
  if (error instanceof TransportError)
    return new UsageError(`${origin} cannot be reached: ${transportReason(error)}`, exitCode('unreachable'), {
      cause: error,
    });
  if (error instanceof Error && error.name === 'TimeoutError') {
    return new UsageError(`${origin} did not answer within ${SIGN_IN_MS_MAX / 1000} s`, exitCode('unreachable'), {
      cause: error,
    });
  }
  if (error instanceof ApiError && error.status >= 500) {
    return new UsageError(
      `${origin} is out of order (status ${error.status}): try again later`,
      exitCode('unreachable'),
      { cause: error },
    );
  }
  if (error instanceof ApiError || error instanceof ProtocolError) {
    return new UsageError(`${origin} answers, but not as the service does: ${error.message}`, exitCode('unreachable'), {
      cause: error,
    });
  }
  return error;
}
