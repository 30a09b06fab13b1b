import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { accountPaths, type Paths } from '../../config/paths.ts';
import { readAccountFile } from '../../mount/account-file.ts';

/** The account of `cfs demo`, as kept beside the server's data once its tree is complete. */
export interface DemoAccount {
  /** The server that the account belongs to. */
  readonly origin: string;
  /** The account's name. */
  readonly name: string;
}

/** The account of an earlier start; null if that start did not complete it, or if its files are missing. */
export function knownAccount(paths: Paths): DemoAccount | null {
  try {
    const known = JSON.parse(readFileSync(fileOf(paths), 'utf8')) as Partial<DemoAccount>;
    if (typeof known.origin !== 'string' || typeof known.name !== 'string') return null;
    readAccountFile(accountPaths(paths, known.name).accountFile);
    return { origin: known.origin, name: known.name };
  } catch {
    return null;
  }
}

export function rememberAccount(paths: Paths, account: DemoAccount): void {
  const unfinished = `${fileOf(paths)}.new`;
  writeFileSync(unfinished, JSON.stringify(account), { mode: 0o600 });
  renameSync(unfinished, fileOf(paths));
}

function fileOf(paths: Paths): string {
  return join(paths.demoServerDirectory, 'demo.json');
}
