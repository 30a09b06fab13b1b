import {
  closeSync,
  fchmodSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { UsageError } from '../base/errors.ts';
import type { ServiceProxy } from '../base/proxy.ts';
import { accountName, accountPaths, type Paths } from '../config/paths.ts';
import { exitCode } from './exit-codes.ts';
import { withPath } from './failure.ts';
import { visible } from './mount-event.ts';

/**
 * One signed-in account, as kept in its 0600 file. The password is never in it: it is exchanged for the refresh token once.
 * Never log this object; it holds secrets.
 */
export interface Account {
  /** Scheme, host and port of the service: `https://api.example.com`. */
  readonly origin: string;
  /** The part after `/user/` in the user's URL; with the origin it identifies the account. */
  readonly userId: string;
  /** The user name of the sign-in, for display. */
  readonly username: string;
  readonly application: string;
  readonly accessKeyId: string;
  readonly privateAccessKey: string;
  /** URL of the refresh token. */
  readonly refreshToken: string;
  /** Set if the sign-in allowed unencrypted connections to this service (`--insecure`). */
  readonly insecure?: true;
  /** User name and password for the proxy at `address` (`ServiceProxy.address`): units are readable by all users and never hold it. */
  readonly proxy?: { readonly address: string; readonly username: string; readonly password: string };
}

const FIELDS = [
  'origin',
  'userId',
  'username',
  'application',
  'accessKeyId',
  'privateAccessKey',
  'refreshToken',
] as const;

/** The message for a new user. */
export const NOT_SIGNED_IN = 'not signed in: run cfs login URL, or try it without an account: cfs demo DIR';

/** @throws UsageError (signIn) when the file is missing or is not an account. */
export function readAccountFile(path: string): Account {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw new UsageError(`cannot read the account in ${path}: run cfs login URL`, exitCode('signIn'), { cause: error });
  }
  try {
    const record = JSON.parse(text) as Record<string, unknown>;
    for (const field of FIELDS) if (typeof record[field] !== 'string') throw new TypeError(`no ${field}`);
    if (record.insecure !== undefined && record.insecure !== true)
      throw new TypeError('insecure must be true or absent');
    if (record.proxy !== undefined) checkProxy(record.proxy);
    return record as unknown as Account;
  } catch (error) {
    throw new UsageError(`${path} is damaged: run cfs login URL again`, exitCode('signIn'), { cause: error });
  }
}

/**
 * Writes the account's file: complete or not at all, readable by its owner only from the first byte on, and on the disk
 * when this returns.
 */
export function writeAccountFile(path: string, account: Account): void {
  const record: Record<string, unknown> = Object.fromEntries(FIELDS.map((field) => [field, account[field]]));
  if (account.insecure === true) record.insecure = true;
  if (account.proxy !== undefined) record.proxy = account.proxy;
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const temporary = `${path}.${process.pid}.new`;
  // 'wx' after rm: does not write through a file or link that another process put there.
  rmSync(temporary, { force: true });
  try {
    const fd = openSync(temporary, 'wx', 0o600);
    try {
      fchmodSync(fd, 0o600);
      // writeSync may write only a part on a full disk; this loop writes everything or throws.
      writeFileSync(fd, `${JSON.stringify(record, null, 2)}\n`);
      fsyncSync(fd);
    } finally {
      closeSync(fd);
    }
    renameSync(temporary, path);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw withPath(error, path);
  }
  const directory = openSync(dirname(path), 'r');
  try {
    fsyncSync(directory);
  } finally {
    closeSync(directory);
  }
}

function checkProxy(record: unknown): void {
  for (const field of ['address', 'username', 'password'])
    if (typeof (record as Record<string, unknown> | null)?.[field] !== 'string')
      throw new TypeError(`no ${field} of a proxy`);
}

/** The account with the user name and password of the proxy, for its file; unchanged if the proxy has none. */
export function withProxy(account: Account, proxy: ServiceProxy | null): Account {
  if (proxy === null || proxy.credentials === null) return account;
  const { username, password } = proxy.credentials;
  return { ...account, proxy: { address: proxy.address, username, password } };
}

/** Names of all accounts that are signed in, in alphabetical order. */
export function accountNames(paths: Paths): readonly string[] {
  let entries: readonly string[];
  try {
    entries = readdirSync(paths.accountsDirectory);
  } catch {
    return [];
  }
  return entries
    .filter((name) => {
      try {
        readAccountFile(accountPaths(paths, name).accountFile);
        return true;
      } catch {
        return false;
      }
    })
    .sort();
}

/**
 * The account of a command: the one that `wanted` names (by its name or its user name), or the only one.
 *
 * @throws UsageError if none or more than one matches
 */
export function chooseAccount(
  paths: Paths,
  wanted: string | null,
): { readonly name: string; readonly account: Account } {
  const all = accountNames(paths).map((name) => ({
    name,
    account: readAccountFile(accountPaths(paths, name).accountFile),
  }));
  const fitting =
    wanted === null ? all : all.filter(({ name, account }) => name === wanted || account.username === wanted);
  const [only, second] = fitting;
  if (only !== undefined && second === undefined) return only;
  if (all.length === 0) throw new UsageError(NOT_SIGNED_IN, exitCode('signIn'));
  // The account names contain numeric user ids, so the message adds the user names.
  const names = all.map(({ name, account }) => `${visible(account.username)} (${name})`).join(', ');
  if (only === undefined)
    throw new UsageError(`no account ${visible(wanted ?? '')}; signed in: ${names}`, exitCode('signIn'));
  throw new UsageError(`several accounts match: choose one with --account: ${names}`);
}

/** The path of the account's file. */
export function accountFileOf(paths: Paths, account: Pick<Account, 'origin' | 'userId'>): string {
  return join(accountPaths(paths, accountName(account.origin, account.userId)).accountFile);
}
