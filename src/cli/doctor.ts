import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { Clock } from '../base/clock.ts';
import { StorageError, UsageError } from '../base/errors.ts';
import { silentLogger } from '../base/log.ts';
import { accountPaths, type Paths } from '../config/paths.ts';
import { ContentStore } from '../store/content-store.ts';
import { Store } from '../store/environment.ts';
import { checkBytes, checkStore } from '../store/store-check.ts';
import { accountNames, readAccountFile } from './account-file.ts';
import { exitCode } from './exit-codes.ts';
import { visible } from './mount-event.ts';

export interface DoctorFlags {
  readonly store: boolean;
  readonly account: string | null;
}

/** More than so many findings of one store are counted, not shown. */
const SHOWN_MAX = 100;

/**
 * `cfs doctor --store`: reads everything that is kept here of an account (of each, where none is named) and says what is not
 * as it should be. Exit code: ok, or store where something was found.
 *
 * @throws UsageError with the process that has the store open, as a mount does · StorageError where it cannot be read
 */
export async function doctorCommand(
  deps: { paths: Paths; clock: Clock; print: (text: string) => void },
  flags: DoctorFlags,
): Promise<number> {
  if (!flags.store) throw new UsageError('say what is to be looked at: cfs doctor --store');
  const { paths, clock, print } = deps;
  let isSound = true;
  for (const { name, title } of wantedAccounts(paths, flags.account)) {
    const directory = accountPaths(paths, name).storeDirectory;
    // Looking at what was never mounted would make it.
    if (!existsSync(join(directory, 'index'))) {
      print(`${title}: nothing is stored here\n`);
      continue;
    }
    const found = await examined(directory, clock, (finding) => print(`${title}: ${finding}\n`));
    if (found.findings > SHOWN_MAX) print(`${title}: and ${found.findings - SHOWN_MAX} more\n`);
    print(`${title}: ${summaryOf(found)}\n`);
    isSound &&= found.findings === 0;
  }
  return isSound ? exitCode('ok') : exitCode('store');
}

interface Examined {
  readonly nodes: number;
  readonly contents: number;
  readonly findings: number;
}

async function examined(directory: string, clock: Clock, say: (finding: string) => void): Promise<Examined> {
  const store = await openStore(directory, clock);
  try {
    // Nothing is fetched and nothing evicted: what these limits are does not matter.
    const options = { inlineMaxBytes: 16 * 1024, cacheBytes: Number.MAX_SAFE_INTEGER };
    const contents = new ContentStore({ store, directory, clock, log: silentLogger, options });
    let findings = 0;
    for (const check of [checkStore(store), checkBytes(store, contents)]) {
      for (const finding of check) if (++findings <= SHOWN_MAX) say(finding);
    }
    const examined = { nodes: countOf(store.all('node')), contents: countOf(store.all('content')), findings };
    contents.close();
    return examined;
  } finally {
    await store.close();
  }
}

async function openStore(directory: string, clock: Clock): Promise<Store> {
  try {
    return await Store.open({ directory, clock, log: silentLogger });
  } catch (error) {
    if (error instanceof UsageError || error instanceof StorageError) throw error;
    const reason = error instanceof Error ? error.message : String(error);
    throw new StorageError(`the store in ${visible(directory)} cannot be opened: ${reason}`, { cause: error });
  }
}

/** @throws UsageError (usage, signIn) where there is no such account, or none at all */
function wantedAccounts(paths: Paths, wanted: string | null): readonly { name: string; title: string }[] {
  const accounts = accountNames(paths).map((name) => {
    const { username, origin } = readAccountFile(accountPaths(paths, name).accountFile);
    return { name, username, title: `${visible(username)} at ${origin}` };
  });
  if (accounts.length === 0) throw new UsageError('not signed in: run cfs login URL', exitCode('signIn'));
  const fitting = accounts.filter(({ name, username }) => wanted === null || wanted === name || wanted === username);
  if (fitting.length === 0) throw new UsageError(`${wanted} is not signed in here`, exitCode('signIn'));
  return fitting;
}

function summaryOf({ nodes, contents, findings }: Examined): string {
  const looked = `${nodes} ${nodes === 1 ? 'entry' : 'entries'} and ${contents} ${contents === 1 ? 'content' : 'contents'}`;
  if (findings === 0) return `sound: ${looked} looked at`;
  return `${findings} ${findings === 1 ? 'finding' : 'findings'} in ${looked}`;
}

function countOf(rows: Iterable<unknown>): number {
  let count = 0;
  for (const _ of rows) count++;
  return count;
}
