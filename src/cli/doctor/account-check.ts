import { readdirSync, readFileSync, statSync } from 'node:fs';
import { UsageError } from '../../base/errors.ts';
import { loadOptions } from '../../config/load.ts';
import type { Options } from '../../config/options.ts';
import { type AccountPaths, accountPaths, type Paths } from '../../config/paths.ts';
import { unknownVariables } from '../../config/variables.ts';
import { type Account, readAccountFile } from '../../mount/account-file.ts';
import { visible } from '../../mount/mount-event.ts';
import { type Finding, finding } from './finding.ts';

const OTHERS = 0o077;

/** An account whose file can be read. */
export interface KnownAccount {
  readonly name: string;
  /** For messages: `ann@example.com at https://api.example.com`. */
  readonly title: string;
  readonly account: Account;
  readonly files: AccountPaths;
}

/** The mount options without flags. If they contain mistakes, the defaults, so that the other checks can run. */
export function checkConfiguration(
  paths: Paths,
  env: Readonly<Record<string, string | undefined>>,
): { readonly options: Options; readonly findings: readonly Finding[] } {
  const findings: Finding[] = [];
  let text: string | null = null;
  try {
    text = readFileSync(paths.configFile, 'utf8');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ENOENT') {
      const what = `${visible(paths.configFile)} cannot be read (${code})`;
      findings.push(finding('configuration-unreadable', what, visible(paths.configFile)));
    }
  }
  for (const sentence of unknownVariables(env)) findings.push(finding('variable-unknown', visible(sentence)));
  try {
    const file = text === null ? null : { path: paths.configFile, text };
    return { options: loadOptions({ flags: {}, env, file }).options, findings };
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    for (const mistake of error.message.split('\n')) findings.push(finding('configuration-mistake', visible(mistake)));
    return { options: loadOptions({ flags: {}, env: {}, file: null }).options, findings };
  }
}

/** Every account of this user, and the faults of its files. */
export function checkAccounts(paths: Paths): {
  readonly accounts: readonly KnownAccount[];
  readonly findings: readonly Finding[];
} {
  const accounts: KnownAccount[] = [];
  const findings: Finding[] = [];
  for (const name of namesIn(paths.accountsDirectory)) {
    const files = accountPaths(paths, name);
    const shown = visible(files.accountFile);
    let mode: number;
    try {
      mode = statSync(files.accountFile).mode;
    } catch (error) {
      // Signed out; only the store is left.
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') continue;
      findings.push(finding('account-damaged', `${shown} cannot be read`));
      continue;
    }
    if ((mode & OTHERS) !== 0) {
      const what = `${shown} can be read by others (mode ${(mode & 0o777).toString(8)})`;
      findings.push(finding('account-exposed', what, shown));
    }
    try {
      const account = readAccountFile(files.accountFile);
      // Parsed here, so that later checks can rely on it.
      const title = `${visible(account.username)} at ${new URL(account.origin).origin}`;
      accounts.push({ name, title, account, files });
    } catch {
      findings.push(finding('account-damaged', `${shown} is damaged or cannot be read`));
    }
  }
  if (accounts.length === 0 && findings.length === 0)
    findings.push(finding('not-signed-in', 'this user is not signed in'));
  return { accounts, findings };
}

function namesIn(directory: string): readonly string[] {
  try {
    return readdirSync(directory).sort();
  } catch {
    return [];
  }
}
